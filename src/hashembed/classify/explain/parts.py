"""What an exact explanation reads of a model: the vectors of n-grams, and the output layer."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hashembed.core.arrays import F64, I64
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.protocol import Engine
from hashembed.engine.shallow.model import ShallowModel


class Part(Protocol):
    """A model whose logits are sums over n-grams, on any device."""

    def vectors(self, keys: I64) -> F64:
        """The hash vectors of keys (n, d)."""

    def weights(self, keys: I64) -> F64 | None:
        """The importance weights of keys (n, k); None if all are fixed at 1."""

    def output(self) -> tuple[F64, F64]:
        """The output layer: W (C, d), bias (C,)."""


@dataclass(frozen=True)
class ShallowPart:
    """A shallow model on the CPU."""

    model: ShallowModel

    def vectors(self, keys: I64) -> F64:
        """The sums of k component vectors, weighted and added in float64."""
        components = self.model.components(keys)  # (n, k, d)
        if self.model.importance:
            rows, _ = self.model.spec(keys)
            components *= self.model.importance_weights[rows][:, :, None]
        return np.asarray(components.sum(axis=1))

    def weights(self, keys: I64) -> F64 | None:
        """Rows of P."""
        if not self.model.importance:
            return None
        rows, _ = self.model.spec(keys)
        return self.model.importance_weights[rows].astype(np.float64)

    def output(self) -> tuple[F64, F64]:
        """Copies in float64."""
        tables = self.model.tables
        return tables.W.astype(np.float64), tables.bias.astype(np.float64)


def parts_of(engine: Engine) -> list[Part]:
    """The models whose mean logits are those of the engine; none if it is not linear."""
    if not isinstance(engine, Ensemble):
        part = _part(engine)
        return [] if part is None else [part]
    if engine.votes != "logits":
        return []
    found = [part for part in map(_part, engine.members) if part is not None]
    return found if len(found) == len(engine.members) else []


def _part(engine: Engine) -> Part | None:
    if isinstance(engine, ShallowModel):
        return ShallowPart(engine)
    from hashembed.nn.engine.model import DeepModel
    from hashembed.nn.engine.reading import Reading, is_linear

    return Reading(engine) if isinstance(engine, DeepModel) and is_linear(engine) else None
