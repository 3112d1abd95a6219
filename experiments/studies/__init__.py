"""Methods that measure more than accuracy: collisions, pruning, curves, sizes of sets."""
