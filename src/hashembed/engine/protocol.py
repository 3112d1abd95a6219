"""What the training loop needs of a model."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, I64
from hashembed.engine.labels import Labels
from hashembed.hashing.bags import Bags

State = dict[str, npt.NDArray[Any]]


CHUNK = 1 << 19  # n-grams that the CPU trains on between two looks at the clock and the keyboard


class LossNotFiniteError(ArithmeticError):
    """The loss became infinite or NaN; the engine's weights are those before that batch.

    On a GPU the optimizers' state may have changed.
    """


def loss_not_finite(done: int, batches: int) -> LossNotFiniteError:
    """The error after so many good batches."""
    return LossNotFiniteError(
        f"the loss is no longer a finite number after {done} of {batches} batches: "
        "try a smaller learning rate"
    )


def check_rates(batches: int, rates: F32) -> None:
    """One rate a batch."""
    if len(rates) != batches:
        raise ValueError(f"there are {batches} batches, but {len(rates)} rates")


def check_labels(labels: Labels, documents: int, classes: int, multilabel: bool) -> None:
    """Refuse labels that are not those of so many documents: kernels index with them."""
    offsets, numbers = labels.offsets, labels.labels
    if len(labels) != documents:
        raise ValueError(f"found {documents:,} documents, but the labels of {len(labels):,}")
    counts = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(numbers) or counts.min(initial=0) < 0:
        raise ValueError("the offsets of labels must rise from 0 to their number")
    if not multilabel and (counts != 1).any():
        raise ValueError("a model of one label a document found documents with none or several")
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
        raise ValueError(
            f"labels must be from 0 to {classes - 1}, found {numbers.min()} to {numbers.max()}"
        )


def check_class_weights(labels: Labels, multilabel: bool, classes: int) -> F32:
    """The class weights of labels that have them (2, C), where a model can use them."""
    weights = np.ascontiguousarray(labels.class_weights, np.float32)
    if not multilabel or weights.shape != (2, classes):
        kind = f"a {'multi-label' if multilabel else 'single-label'} model of {classes} classes"
        raise ValueError(f"found class weights of shape {weights.shape} for {kind}")
    return weights


class Engine(Protocol):
    """A model that trains on batches of bags."""

    multilabel: bool

    @property
    def chunk(self) -> int:
        """N-grams between two looks at the clock and the keyboard: what `train` is given."""

    @property
    def learning_rate(self) -> float | None:
        """The first rate where the training names none; None takes a rule from the lengths."""

    @property
    def num_parameters(self) -> int:
        """All that is trained, embedding included."""

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int,
        weights: F32 | None,
        snippets: Any,
    ) -> F32:
        """Train on these documents in batches, one rate a batch -> the loss of each."""

    def snippets(self, bags: Bags, seed: int, epoch: int, minimum: int, maximum: int) -> Any:
        """A run of keys of each document (`Bags.snippets`), as `train` takes it."""

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""

    def vectors(self, bags: Bags) -> F32:
        """The sums of hash vectors (documents, d) below all layers."""

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""

    def tensors(self) -> State:
        """The weights, for a file."""

    def state(self) -> State:
        """Copies of everything that training changes."""

    def load_state(self, state: State) -> None:
        """Back to that state."""

    def check_state(self, state: State) -> None:
        """A ValueError where `load_state` could not take it."""

    def keep(self) -> Any:
        """Such a copy for the time of a training run: it may stay on the engine's device."""

    def go_back(self, kept: Any) -> None:
        """Back to what was kept."""


def check_arrays(wanted: Mapping[str, Any], found: State) -> None:
    """Refuse arrays that do not have these names and shapes: copying would stretch them."""
    if different := wanted.keys() ^ found.keys():
        listed = ", ".join(sorted(different)[:5])
        raise ValueError(f"tensors must be those of one model, missing or unknown: {listed:.200}")
    for name, array in wanted.items():
        if array.shape != found[name].shape:
            raise ValueError(
                f"{name} must have the shape {tuple(array.shape)}, found {found[name].shape}"
            )
        if found[name].dtype.kind != "f":
            raise ValueError(f"{name} must hold floats, found {found[name].dtype}")


def to_probabilities(scores: F32, multilabel: bool) -> F32:
    """Logits (documents, classes) -> softmax, or sigmoids where there may be several classes."""
    if multilabel:
        e = np.exp(-np.abs(scores))
        return np.asarray(np.where(scores >= 0, 1, e) / (1 + e), np.float32)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)
