"""Small data for the tests of the experiments."""

import numpy as np
import pyarrow as pa
from experiments.datasets import Part


def made(rows: int, classes: int = 2, seed: int = 0) -> Part:
    """Texts whose class shows in one word of ten."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    words = rng.integers(0, 40, (rows, 10)).astype(str).tolist()
    for row, label in zip(words, labels, strict=True):
        row[int(rng.integers(10))] = f"class{label}"
    return Part(pa.chunked_array([[" ".join(row) for row in words]]), labels)
