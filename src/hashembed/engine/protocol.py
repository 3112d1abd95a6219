"""What the training loop needs of a model: the protocol `Engine`, its errors and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, F64, I64
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import make_probabilities
from hashembed.hashing.bags import Bags

State = dict[str, npt.NDArray[Any]]
Floats = TypeVar("Floats", F32, F64)

# What `Engine.snippets` and `Engine.keep` return is the engine's own: arrays, or tensors on its
# device. Others only pass it back to the same engine.
Snippets = Any
Kept = Any

MAX_BATCH = 2**24  # documents in a step
CHUNK = 1 << 19  # n-grams in one call of `train` on a CPU; Ctrl-C is noticed between calls


class LossNotFiniteError(ArithmeticError):
    """The loss became infinite or NaN. The engine has the weights from before that batch.

    On a GPU the optimizers' state may have changed.
    """


def loss_not_finite(done: int, batches: int) -> LossNotFiniteError:
    """The error after `done` good batches."""
    return LossNotFiniteError(
        f"the loss is no longer a finite number after {done} of {batches} batches: "
        "try a smaller learning rate"
    )


def check_rates(batches: int, rates: F32) -> None:
    """Refuse rates unless there is one for each batch."""
    if len(rates) != batches:
        raise ValueError(f"there are {batches} batches, but {len(rates)} rates")


def check_labels(labels: Labels, documents: int, classes: int, multilabel: bool) -> None:
    """Refuse labels that do not fit the documents and classes: kernels index with them."""
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
    """The class weights (2, C) of labels; refuse them if the model cannot use them."""
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
        """N-grams that one call of `train` should get; Ctrl-C is noticed between calls."""

    @property
    def learning_rate(self) -> float | None:
        """The first rate unless the settings name one; None takes `default_rate`."""

    @property
    def num_parameters(self) -> int:
        """The number of trained parameters, embedding included."""

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int,
        weights: F32 | None,
        snippets: Snippets | None,
    ) -> F32:
        """Train on the documents of `order`, in batches with one rate each -> their losses."""

    def snippets(self, bags: Bags, seed: int, epoch: int, minimum: int, maximum: int) -> Snippets:
        """A run of keys of each document (`Bags.snippets`), for `train`."""

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""

    def vectors(self, bags: Bags) -> F32:
        """The sums of hash vectors (documents, d) below all layers."""

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""

    def scale_logits(self, factor: float) -> None:
        """Multiply the logits by a factor."""

    def tensors(self) -> State:
        """The weights, for a file."""

    def state(self) -> State:
        """Copies of everything that training changes."""

    def load_state(self, state: State) -> None:
        """Return to that state."""

    def check_state(self, state: State) -> None:
        """Raise a ValueError if `load_state` could not take this state."""

    def keep(self) -> Kept:
        """A copy of the state for `go_back`; unlike `state` it may stay on the engine's device."""

    def go_back(self, kept: Kept) -> None:
        """Return to a state that was kept."""


class JointEngine(Engine, Protocol):
    """An engine whose copies can train together on one GPU, batch by batch."""

    @property
    def fast(self) -> bool:
        """Whether this one can."""

    def train_together(
        self,
        members: Sequence[Any],
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        batch_size: int,
        weights: F32 | None,
        snippets: Snippets | None,
    ) -> F32:
        """Train all members on the same batches -> their losses (members, documents)."""


def trains_jointly(engine: Engine) -> TypeGuard[JointEngine]:
    """Whether copies of this engine can train together."""
    return bool(getattr(engine, "fast", False))


def check_arrays(wanted: Mapping[str, Any], found: State) -> None:
    """Refuse arrays without exactly these names and shapes: copying would broadcast them."""
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


def to_probabilities(scores: Floats, multilabel: bool) -> Floats:
    """Logits (..., classes) -> softmax, or with several labels sigmoids; the type is kept."""
    z = np.array(scores, np.float64, order="C")
    make_probabilities(z.reshape(-1, z.shape[-1]), multilabel)
    return np.asarray(z, scores.dtype)
