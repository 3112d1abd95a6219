"""Collisions of a real vocabulary: counted, and expected by the theorem."""

from dataclasses import dataclass

import numpy as np

from experiments.data.datasets import Dataset
from hashembed.hashing.spec import HashSpec
from hashembed.hashing.theory import collision_probability, indistinguishable_probability
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Collisions:
    ngrams: tuple[int, int] = (1, 2)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Shares of tokens that collide -> counted and expected, by size of table."""
        keys = np.unique(text_to_bags(data.train.texts, TextConfig(self.ngrams)).keys)
        rows = []
        for size in SIZES:
            for indexing in ("independent", "shared"):
                spec = HashSpec(size, max(2, size // 10), 2, indexing, seed)
                row, buckets = spec(keys)
                triple = np.column_stack([row, buckets])
                rows.append(
                    {
                        "K": size,
                        "B": spec.num_buckets,
                        "indexing": indexing,
                        "same_row": share_in_collision(row[:, None]),
                        "same_row_expected": float(collision_probability(len(keys), size)),
                        "same_vector": share_in_collision(triple),
                        "same_vector_expected": float(
                            indistinguishable_probability(len(keys), spec)
                        ),
                    }
                )
        return {"vocabulary": len(keys), "shares": rows, "parameters": 0, "train_seconds": 0.0}


def share_in_collision(cells: np.ndarray) -> float:
    """The share of rows that are equal to another row."""
    code = cells[:, 0].astype(np.uint64)
    for column in cells[:, 1:].T:  # all sizes fit: 24 + 20 + 20 bits
        code = code << np.uint64(20) | column.astype(np.uint64)
    _, counts = np.unique(code, return_counts=True)
    return float(counts[counts > 1].sum() / max(len(code), 1))
