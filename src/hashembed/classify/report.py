"""What a classifier was trained on, and the sizes it chose."""

from dataclasses import asdict, dataclass
from typing import Any

UNEVEN = 10  # ratio of the largest to the smallest class from which the report mentions it


@dataclass(frozen=True)
class FitReport:
    """Counts of the training data, and the sizes of the tables. `str()` describes them."""

    texts: int
    empty: int  # texts without a word
    ngrams: int
    distinct: int  # n-grams, estimated; 0 if they were not counted
    num_embeddings: int  # K
    num_buckets: int  # B
    num_hashes: int  # k
    embedding_dim: int  # d
    parameters: int
    class_counts: dict[Any, int]

    @property
    def imbalance(self) -> float:
        """The ratio of the largest class to the smallest."""
        counts = list(self.class_counts.values())
        return max(counts) / max(min(counts), 1)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "class_counts": [[c, n] for c, n in self.class_counts.items()]}

    def __str__(self) -> str:
        distinct = f", about {self.distinct:,} distinct" if self.distinct else ""
        empty = f" ({self.empty:,} without a word)" if self.empty else ""
        classes = len(self.class_counts)
        tables = (
            f"K = {self.num_embeddings:,}, B = {self.num_buckets:,}, k = {self.num_hashes}, "
            f"d = {self.embedding_dim}"
        )
        lines = [
            f"{self.texts:,} texts{empty}, {self.ngrams:,} n-grams{distinct}",
            f"{tables}: {self.parameters:,} parameters",
            f"{classes:,} class{'es' if classes != 1 else ''}{self._evenness()}",
        ]
        return "\n".join(lines)

    def _evenness(self) -> str:
        if len(self.class_counts) < 2 or self.imbalance < UNEVEN:
            return ""
        largest = max(self.class_counts, key=self.class_counts.__getitem__)
        smallest = min(self.class_counts, key=self.class_counts.__getitem__)
        return (
            f", uneven: {largest} has {self.class_counts[largest]:,} texts, {smallest} "
            f'{self.class_counts[smallest]:,} (class weight "sqrt" finds more of the rare ones)'
        )
