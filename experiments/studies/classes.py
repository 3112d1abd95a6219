"""Few buckets suffice for few classes: is it their number, or what there is to tell apart?"""

from dataclasses import dataclass, replace

import numpy as np

from experiments.data.datasets import Dataset, Part
from experiments.models.shallow import Shallow


@dataclass(frozen=True)
class FewerClasses(Shallow):
    """`Shallow` on a set reduced to `classes` classes; None keeps all of them.

    merge: keep all rows and deal the classes into that many groups, frequent ones first. Otherwise
    keep the rows of the most frequent classes only.
    """

    num_embeddings: int = 1_000_000
    classes: int | None = None
    merge: bool = False

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        if self.classes is not None:
            data = narrowed(data, self.classes, self.merge)
        return super().run(data, seed, threads)


def narrowed(data: Dataset, classes: int, merge: bool) -> Dataset:
    """The set with fewer classes, numbered from 0."""
    counts = np.bincount(data.train.labels, minlength=data.classes)
    rank = np.empty(data.classes, np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(data.classes)

    def part(of: Part) -> Part:
        ranks = rank[of.labels]
        if merge:
            return Part(of.texts, ranks % classes)
        return Part(of.texts, ranks).take(np.flatnonzero(ranks < classes))

    return replace(data, train=part(data.train), test=part(data.test), classes=classes)


BUCKETS = (500, 10_000, 1_000_000)
KINDS = {
    **{f"the {n} largest classes": (n, False) for n in (2, 4, 16)},
    **{f"all classes in {n} groups": (n, True) for n in (2, 4, 16)},
    "all classes": (None, False),
}
PLAN = {
    f"{kind}, B = {B:,}": FewerClasses(classes=n, merge=merge, num_buckets=B)
    for kind, (n, merge) in KINDS.items()
    for B in BUCKETS
}
SETS = ("langid_commonvoice", "news_category", "20newsgroups")
