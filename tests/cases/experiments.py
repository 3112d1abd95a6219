"""Small data and models for the tests of the experiments."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from experiments.data.datasets import Part
from experiments.models.deep import Deep
from experiments.models.shallow import Shallow

TINY = Shallow(num_embeddings=1000, num_buckets=100, embedding_dim=16)
TINY_DEEP = Deep(
    num_embeddings=1000, num_buckets=100, embedding_dim=8, learning_rate=0.01, passes=15
)


def made(rows: int, classes: int = 2, seed: int = 0) -> Part:
    """Texts whose class shows in one word of ten."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    words = rng.integers(0, 40, (rows, 10)).astype(str).tolist()
    for row, label in zip(words, labels, strict=True):
        row[int(rng.integers(10))] = f"class{label}"
    return Part(pa.chunked_array([[" ".join(row) for row in words]]), labels)


def write_csv(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
