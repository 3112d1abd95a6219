"""Variants of the shallow model that only the torch engine has.

Appended importance weights (the paper's optional step), and concatenated components (its future
work). Rates, passes and initial values are those of `Shallow`.
"""

from dataclasses import dataclass, replace

from experiments.models.shallow import Shallow
from hashembed.engine.protocol import Engine
from hashembed.hashing.spec import HashSpec


@dataclass(frozen=True)
class Variant(Shallow):
    """append_importance, aggregation: as in `hashembed.HashEmbedding`."""

    append_importance: bool = False
    aggregation: str = "sum"

    def _model(self, classes: int, seed: int, threads: int | None) -> Engine:
        import torch

        from hashembed.nn.engine.model import DeepModel

        if threads:
            torch.set_num_threads(threads)
        spec = HashSpec(self.num_embeddings, self.num_buckets, self.num_hashes, self.indexing, seed)
        return DeepModel(
            spec,
            self.embedding_dim,
            classes,
            importance=self.importance,
            aggregation=self.aggregation,
            append_importance=self.append_importance,
            optimizer="adagrad",
            seed=seed,
        )


BASE = Variant(num_embeddings=1_000_000, num_buckets=100_000)
FEW = replace(BASE, num_buckets=1_000)
APPENDED = {
    "without": BASE,
    "appended": replace(BASE, append_importance=True),
    "without, B = 1,000": FEW,
    "appended, B = 1,000": replace(FEW, append_importance=True),
    "without, B = 1,000, d = 2": replace(FEW, embedding_dim=2),
    "appended, B = 1,000, d = 2": replace(FEW, embedding_dim=2, append_importance=True),
}
CONCAT = {
    "sum, d = 20": BASE,
    "concatenation, d = 20": replace(BASE, aggregation="concat"),
    "sum, d = 40": replace(BASE, embedding_dim=40),
    "concatenation, d = 10": replace(BASE, aggregation="concat", embedding_dim=10),
    "concatenation, d = 10, B = 200,000": replace(
        BASE, aggregation="concat", embedding_dim=10, num_buckets=200_000
    ),
    "sum, d = 20, B = 1,000": FEW,
    "concatenation, d = 20, B = 1,000": replace(FEW, aggregation="concat"),
}
SETS = ("imdb", "ag_news_partial", "20newsgroups")
