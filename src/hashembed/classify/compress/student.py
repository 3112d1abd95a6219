"""With texts: one table for all that the model knows about their n-grams."""

from dataclasses import dataclass, replace

import numpy as np

from hashembed.classify.compress.basis import principal_axes, project
from hashembed.classify.compress.coding import Fineness, choose_codes, energies
from hashembed.classify.compress.evidence import find_evidence, mean_bias
from hashembed.classify.compress.tuning import tune
from hashembed.classify.engine_plan import EnginePlan
from hashembed.core.arrays import F32, F64, I64
from hashembed.engine.linear import LinearModel
from hashembed.engine.shallow.listed import ListedModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec

BUCKETS = 2**22  # more cost a bit for each row; fewer let n-grams meet that have nothing in common
MOST_NGRAMS = 500_000


@dataclass(frozen=True)
class Folded:
    """The evidence of n-grams in few coordinates, with n-grams of one bucket joined."""

    plan: EnginePlan
    buckets: I64  # (n,), rising
    vectors: F64  # (n, d)
    weights: F64  # (n,)
    axes: F32  # (C, d)
    bias: F32
    threads: int | None

    def energies(self) -> F64:
        """What it costs to leave a row out."""
        return energies(self.vectors, self.weights)

    def model(self, fineness: Fineness) -> ListedModel:
        """The model with codes of this fineness."""
        coded = choose_codes(self.vectors, self.weights, fineness, BUCKETS)
        return self._made(coded.places, coded.numbers)

    def tuned(self, fineness: Fineness, full: LinearModel, bags: Bags) -> "Folded":
        """The rows that are kept at this fineness, tuned to the answers of the full model."""
        places = choose_codes(self.vectors, self.weights, fineness, BUCKETS).places
        small = self._made(places, self.vectors[places])
        if not tune(small, full, bags, self.plan.spec.seed):
            return self
        tensors = small.tensors()
        return replace(
            self,
            buckets=self.buckets[places],
            vectors=tensors["E"].astype(np.float64),
            weights=self.weights[places],
            axes=tensors["W"].astype(np.float16).astype(np.float32),
            bias=tensors["bias"],
        )

    def _made(self, places: I64, numbers: F64) -> ListedModel:
        tensors = {"E": numbers.astype(np.float32), "W": self.axes, "bias": self.bias}
        return ListedModel.from_rows(
            self.plan.spec,
            self.buckets[places],
            tensors,
            multilabel=self.plan.multilabel,
            threads=self.threads,
        )


def fold(
    model: LinearModel, plan: EnginePlan, bags: Bags, most: int, most_axes: int, threads: int | None
) -> Folded:
    """Fold a model into one table for the n-grams of some texts that matter, at most so many.

    most_axes: the numbers that an n-gram has, at most.
    """
    evidence = find_evidence(model, bags, min(most, MOST_NGRAMS))
    axes = principal_axes(evidence.logits, evidence.weights, most_axes)
    axes = axes.astype(np.float16).astype(np.float64)  # as the file has them
    own_plan = _plan_of(plan, axes.shape[1])
    buckets = own_plan.spec(evidence.keys)[1][:, 0]
    order = np.argsort(buckets, kind="stable")
    own = buckets[order]
    first = np.flatnonzero(np.diff(own, prepend=-1))
    weights = evidence.weights[order]
    weighted = project(evidence.logits, axes)[order] * weights[:, None]
    total = np.add.reduceat(weights, first)
    vectors = np.add.reduceat(weighted, first, axis=0) / total[:, None]
    return Folded(
        own_plan,
        own[first],
        vectors,
        total,
        axes.astype(np.float32),
        mean_bias(model),
        threads,
    )


def nothing(model: LinearModel, plan: EnginePlan, threads: int | None) -> Folded:
    """What `fold` gives for no n-grams, with one number for each: the least that there can be."""
    return Folded(
        _plan_of(plan, 1),
        np.empty(0, np.int64),
        np.empty((0, 1)),
        np.empty(0),
        np.zeros((len(model.parts[0].memory.bias), 1), np.float32),
        mean_bias(model),
        threads,
    )


def _plan_of(plan: EnginePlan, width: int) -> EnginePlan:
    """The engine of a folded model whose n-grams have so many numbers."""
    spec = HashSpec(BUCKETS, BUCKETS, 1, seed=plan.spec.seed)
    return replace(plan, spec=spec, embedding_dim=width, members=1, device="cpu", importance=False)
