"""Bags of keys with their labels and weights."""

from dataclasses import dataclass

from hashembed.core.arrays import F32, I64
from hashembed.engine.labels import Labels
from hashembed.hashing.bags import Bags


@dataclass(frozen=True)
class Documents:
    """Bags with their labels and weights; None weighs all documents alike."""

    bags: Bags
    labels: Labels
    weights: F32 | None = None

    def take(self, indices: I64) -> "Documents":
        """Some of them."""
        weights = None if self.weights is None else self.weights[indices]
        return Documents(self.bags.take(indices), self.labels.take(indices), weights)
