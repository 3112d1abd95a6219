"""Without texts: the tables as they are, in fewer numbers and coarser codes.

Which n-grams a row serves is not known then. So all rows of a table have the same weight: what an
error in one of its numbers costs on average.
"""

from dataclasses import replace

import numpy as np

from hashembed.classify.compress.basis import eigenvectors, project, weighted_products
from hashembed.classify.compress.coding import Fineness, choose_codes, energies
from hashembed.classify.engine_plan import EnginePlan
from hashembed.core.arrays import F32, F64
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.linear import LinearModel
from hashembed.engine.packed import MAX_NUMBERS, MAX_ROWS
from hashembed.engine.protocol import State
from hashembed.engine.shallow.model import ShallowModel

LEAST_BITS = 1.5  # for each number; with fewer, an ensemble does better with fewer members


class Tables:
    """The tables of a model, each as few numbers as its classes need."""

    def __init__(self, model: LinearModel, plan: EnginePlan, size: int | None) -> None:
        parts = list(model.parts)
        folded = [_folded(part) for part in parts]
        tables = [folded[0][name] for name in ("E", "P") if name in folded[0]]
        numbers, rows = sum(table.size for table in tables), sum(map(len, tables))
        if numbers > MAX_NUMBERS or rows > MAX_ROWS:
            raise ValueError(
                f"cannot compress the model without texts: its tables have {rows:,} rows and "
                f"{numbers:,} numbers, and a small file has at most {MAX_ROWS:,} rows and "
                f"{MAX_NUMBERS:,} numbers. Give the training data"
            )
        affordable = min(MAX_NUMBERS // numbers, MAX_ROWS // rows)
        if size is not None:
            affordable = min(int(8 * size / (LEAST_BITS * numbers)), affordable)
        folded = folded[: max(affordable, 1)]
        self.members, self.threads = folded, parts[0].threads
        self.specs = [part.spec for part in parts[: len(folded)]]
        width = folded[0]["E"].shape[1]
        self.plan = replace(plan, members=len(folded), embedding_dim=width, device="cpu")

    def energies(self) -> F64:
        """What it costs to leave a row of E out."""
        E, weight, _ = self._weighed(self.members[0])
        return energies(E, np.full(len(E), weight))

    def model(self, fineness: Fineness) -> LinearModel:
        """The model with codes of this fineness."""
        made = []
        for spec, tensors in zip(self.specs, self.members, strict=True):
            E, of_E, of_P = self._weighed(tensors)
            coded = {**tensors, "W": tensors["W"].astype(np.float16).astype(np.float32)}
            if "P" in tensors:
                coded["P"] = _quantized(tensors["P"].astype(np.float64), of_P, fineness)
            coded["E"] = _quantized(E, of_E, fineness)
            multilabel = self.plan.multilabel
            made.append(
                ShallowModel.from_tensors(spec, coded, multilabel=multilabel, threads=self.threads)
            )
        return made[0] if len(made) == 1 else Ensemble(made)

    def _weighed(self, tensors: State) -> tuple[F64, float, float]:
        """E, and the weights of errors in E and in P."""
        E = tensors["E"].astype(np.float64)
        if "P" not in tensors:
            return E, 1.0, 0.0
        P = tensors["P"].astype(np.float64)
        return E, _square_sum(P) / len(E), _square_sum(E) / len(E)


def _quantized(table: F64, weight: float, fineness: Fineness) -> F32:
    out = np.zeros(table.shape, np.float32)
    weights = np.full(len(table), max(weight, 1e-12))
    coded = choose_codes(table, weights, fineness, len(table))
    out[coded.places] = coded.numbers
    return out


def _square_sum(table: F64) -> float:
    """Of all numbers of a table, added row by row."""
    return float(sum((table * table).sum(axis=0).tolist()))


def _folded(part: ShallowModel) -> State:
    """E times W^T in as few numbers as the classes need, if these are fewer."""
    tensors = part.tensors()
    W = tensors["W"].astype(np.float64)
    if not part.multilabel:
        W = W - (W.sum(axis=0) / len(W))
    rank = len(W) if part.multilabel else len(W) - 1
    if rank >= W.shape[1] or rank < 1:
        return tensors
    _, axes = eigenvectors(weighted_products(W.T, np.ones(W.shape[1])))
    axes = axes[:, :rank].astype(np.float16).astype(np.float64)
    inner = project(np.ascontiguousarray(W.T, np.float32), axes)  # (d, rank)
    tensors["E"] = project(tensors["E"], inner).astype(np.float32)
    tensors["W"] = axes.astype(np.float32)
    return tensors
