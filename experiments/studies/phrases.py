"""Table 4: the n-grams with the largest and the smallest importance weights.

With a dictionary every row of P belongs to one n-gram. This also measures the accuracy when only
the most important n-grams are kept: the paper's "implicit pruning".
"""

from dataclasses import dataclass, replace

import numpy as np

from experiments.data.datasets import Dataset
from experiments.models.shallow import Shallow
from hashembed.classify.explain.text import importance_norms
from hashembed.engine.labels import Labels
from hashembed.engine.loop import evaluate
from hashembed.hashing.spec import Indexing

KEPT = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@dataclass(frozen=True)
class Phrases(Shallow):
    """The model of the ablation `dictionary` with B = 50,000; the paper's has d = 200 and is deep.

    min_count: rarer n-grams are not listed. The paper has no such limit, but the weights of rare
    n-grams are still close to their initial values.
    `count_of_important` is the median count of the tenth with the largest weights.
    """

    num_embeddings: int = 1_000_000
    num_buckets: int = 50_000
    indexing: Indexing = "identity"
    dictionary: int | None = 1_000_000
    ngrams: tuple[int, int] = (1, 9)
    top: int = 30
    min_count: int = 10

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        metrics, model, test = self.train_and_test(data, seed, threads)
        words = self.vocabulary(data)
        weights = importance_norms(model, np.arange(len(words)))
        order = np.argsort(-weights, kind="stable")
        listed = order[words.counts[order] >= self.min_count]

        def rows(ranks: np.ndarray) -> list[tuple[str, float, int]]:
            return [
                (words.strings[i].as_py(), float(weights[i]), int(words.counts[i])) for i in ranks
            ]

        # Initial weights have deviation 0.0005: an n-gram with a few times that is still at rest.
        metrics |= {
            "ngrams": len(words),
            "listed": len(listed),
            "at_rest": float((weights < 0.002).mean()),
            "most": rows(listed[: self.top]),
            "least": rows(listed[::-1][: self.top]),
            "count_of_important": float(np.median(words.counts[order[: -(-len(order) // 10)]])),
            "kept": [],
        }
        P = model.importance_weights
        learned, truth = P.copy(), Labels.single(data.test.labels)
        both = np.argsort(-weights * np.sqrt(words.counts), kind="stable")
        orders = {"weight": order, "count": np.arange(len(words)), "both": both}
        for share in KEPT:
            size = round(share * len(words))
            reached = {"share": share}
            for by, ranks in orders.items():
                P[:] = 0
                P[ranks[:size]] = learned[ranks[:size]]
                reached[by] = evaluate(model, test, truth)["validation_accuracy"]
            metrics["kept"].append(reached)
        return metrics


TABLE4 = Phrases()
# Why does frequency choose better on one set?
PRUNING = {
    "as table 4": TABLE4,
    "a quarter of the rate": replace(TABLE4, rate_scale=0.25),
    "a quarter of the rate, 8 passes": replace(TABLE4, rate_scale=0.25, num_passes=8),
    "10 passes": replace(TABLE4, num_passes=10),
    "B = 1,000,000": replace(TABLE4, num_buckets=1_000_000),
    "1- and 2-grams": replace(TABLE4, ngrams=(1, 2)),
}
