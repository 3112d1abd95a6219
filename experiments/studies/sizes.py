"""Table 1: how many rows, classes and n-grams a set has, and the checksum of what was read."""

from dataclasses import dataclass

import numpy as np

from experiments.data.datasets import Dataset
from hashembed.text.config import TextConfig
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.pipeline import text_to_bags


@dataclass(frozen=True)
class Sizes:
    ngrams: tuple[int, int] = (1, 2)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        train = text_to_bags(data.train.texts, TextConfig(self.ngrams))
        counts = np.bincount(data.train.labels, minlength=data.classes)
        return {
            "train_rows": len(data.train),
            "test_rows": len(data.test),
            "classes": data.classes,
            "smallest_class": int(counts.min()),
            "largest_class": int(counts.max()),
            "ngrams": len(train.keys),
            "distinct_ngrams": count_distinct(train.keys),
            "checksum": data.checksum(),
        }
