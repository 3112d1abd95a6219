"""What the training loop needs of a model."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hashembed.bags import Bags
from hashembed.labels import Labels

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
State = dict[str, npt.NDArray[Any]]


class LossNotFiniteError(ArithmeticError):
    """The loss became infinite or NaN; the engine's weights are those before that batch."""


class Engine(Protocol):
    """A model that trains on batches of bags."""

    multilabel: bool

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int,
        weights: F32 | None,
        snippets: tuple[I64, I64] | None,
    ) -> F32:
        """Train on these documents in batches, one rate a batch -> the loss of each."""

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""

    def state(self) -> State:
        """Copies of everything that training changes."""

    def load_state(self, state: State) -> None:
        """Back to that state."""
