"""Which runs answer which question: the paper's tables, and the ablations."""
