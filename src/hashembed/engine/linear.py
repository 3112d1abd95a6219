"""Linear models: a shallow model, or an ensemble of them whose logits are averaged.

Their logits are sums over n-grams. So they can be explained exactly, and grow new classes.
"""

from collections.abc import Sequence
from typing import Protocol, cast

from hashembed.engine.protocol import Engine
from hashembed.engine.shallow.model import ShallowModel


class LinearModel(Engine, Protocol):
    """An engine whose logits are the mean of those of its `parts`."""

    text_scorer: object  # of `engine/shallow/texts.py`

    @property
    def parts(self) -> Sequence[ShallowModel]:
        """The shallow models: itself, or its members."""

    @property
    def importance(self) -> bool:
        """Whether all parts have importance weights."""

    def grow(self, num_classes: int) -> None:
        """Add classes, without evidence at first. The logits of the others do not change."""

    def mean_squares(self) -> dict[str, float]:
        """The mean accumulator of the rows that were ever touched, for each table."""

    def fill_squares(self, means: dict[str, float]) -> None:
        """Set every accumulator to its table's mean: for a model that was saved without them."""


def linear(engine: Engine) -> LinearModel | None:
    """The engine, if it is a linear model."""
    return cast(LinearModel, engine) if getattr(engine, "parts", ()) else None
