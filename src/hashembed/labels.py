"""The classes of documents, one or several each, as numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of document i are labels[offsets[i] : offsets[i + 1]]."""

    labels: I64
    offsets: I64  # (n + 1,)

    @classmethod
    def single(cls, labels: npt.ArrayLike) -> "Labels":
        """One class for each document."""
        array = np.ascontiguousarray(labels, np.int64)
        return cls(array, np.arange(len(array) + 1))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, indices: I64) -> "Labels":
        """The labels of these documents, in this order."""
        counts = np.diff(self.offsets)[indices]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return Labels(self.labels[np.repeat(self.offsets[indices], counts) + within], offsets)

    def matrix(self, classes: int) -> npt.NDArray[np.bool_]:
        """Which document has which class: (n, classes)."""
        out = np.zeros((len(self), classes), np.bool_)
        out[np.repeat(np.arange(len(self)), np.diff(self.offsets)), self.labels] = True
        return out

    def counts(self, classes: int) -> I64:
        """The number of documents of each class."""
        return np.bincount(self.labels, minlength=classes).astype(np.int64)


def balanced_weights(labels: Labels, classes: int) -> npt.NDArray[np.float32]:
    """A weight for each document, so that every class weighs the same in all.

    Documents with several classes take the mean of their weights, those with none take 1.
    """
    counts = labels.counts(classes)
    present = np.count_nonzero(counts)
    of_class = len(labels.labels) / (present * np.maximum(counts, 1)) if present else counts + 1.0
    return weights_of_documents(labels, of_class)


def weights_of_documents(labels: Labels, of_class: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The mean weight of each document's classes; 1 for those with none."""
    number = np.diff(labels.offsets)
    document = np.repeat(np.arange(len(labels)), number)
    total = np.bincount(document, of_class[labels.labels], minlength=len(labels))
    return np.where(number > 0, total / np.maximum(number, 1), 1).astype(np.float32)


def class_weights(
    labels: Labels, classes: npt.NDArray[Any], wish: object
) -> npt.NDArray[np.float32] | None:
    """A weight for each document by `class_weight` as scikit-learn has it; None is 1."""
    if wish is None:
        return None
    if wish == "balanced":
        return balanced_weights(labels, len(classes))
    if not isinstance(wish, Mapping):
        raise ValueError(f"class_weight must be None, 'balanced' or a dictionary, found {wish!r}")
    table = np.array([wish.get(c, 1.0) for c in classes.tolist()], np.float32)
    return weights_of_documents(labels, table)


def sample_weights(given: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    """The caller's weights of so many documents, checked."""
    weights = np.asarray(given, np.float32)
    if weights.shape != (count,):
        raise ValueError(
            f"sample_weight must have one weight for each of {count:,} texts, "
            f"found shape {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("sample_weight must be finite and not negative")
    if not weights.any():
        raise ValueError("sample_weight is zero for every text: nothing to train on")
    return weights


def split(count: int, fraction: float, seed: int) -> tuple[I64, I64]:
    """Indices for training and for validation, drawn from the seed, each in rising order."""
    if not 0 <= fraction < 1:
        raise ValueError(f"the validation fraction must be from 0 to below 1, found {fraction}")
    shuffled = np.random.default_rng([seed & (2**63 - 1), 0x5EED]).permutation(count)
    held = round(count * fraction)
    return np.sort(shuffled[held:]), np.sort(shuffled[:held])
