"""Class numbers of documents: one or several for each document."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, F64, I64, Bools
from hashembed.core.wording import named

Classes = npt.NDArray[Any]

MOST_WEIGHT = 1e9  # of a class; larger ones endanger sums in single precision
SHOWN = 10  # classes in a message


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of document i are labels[offsets[i] : offsets[i + 1]].

    class_weights: for documents with any number of classes, the weight in training of having each
    class and of not having it; None is 1.
    """

    labels: I64
    offsets: I64  # (n + 1,)
    class_weights: F32 | None = None  # (2, classes)

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
        found = self.labels[np.repeat(self.offsets[indices], counts) + within]
        return Labels(found, offsets, self.class_weights)

    def matrix(self, classes: int) -> Bools:
        """Which document has which class: (n, classes)."""
        out = np.zeros((len(self), classes), np.bool_)
        out[np.repeat(np.arange(len(self)), np.diff(self.offsets)), self.labels] = True
        return out

    def counts(self, classes: int) -> I64:
        """The number of documents of each class."""
        return np.bincount(self.labels, minlength=classes).astype(np.int64)


def document_weights(labels: Labels, classes: Classes, wish: object) -> F32 | None:
    """A weight for each document with one class, by `class_weight`; None is 1.

    "balanced" is scikit-learn's n / (C n_c): every class has the same total weight. "sqrt" takes
    the square roots of these weights, a compromise with the natural frequencies. Both have mean 1.
    """
    if wish is None:
        return None
    if isinstance(wish, Mapping):
        of_class = _named_weights(wish, classes)
    else:
        counts = labels.counts(len(classes))
        of_class = _even(counts[None], int(np.count_nonzero(counts)), _power(wish))[0]
    return of_class[labels.labels].astype(np.float32)


def weigh_classes(labels: Labels, classes: Classes, wish: object) -> Labels:
    """Labels of documents with any number of classes, weighted by `class_weight`; None is 1.

    Each class is a separate yes-or-no question. "balanced" gives both answers the same total
    weight, as scikit-learn's one-vs-rest does: n / (2 n_yes) and n / (2 n_no); "sqrt" takes their
    square roots; both have mean 1. A weight in a dictionary is that of yes.
    """
    if wish is None:
        return labels
    if isinstance(wish, Mapping):
        yes = _named_weights(wish, classes)
        weights = np.stack([yes, np.ones_like(yes)])
    else:
        counts = labels.counts(len(classes))
        weights = _even(np.stack([counts, len(labels) - counts]).T, 2, _power(wish)).T
    return replace(labels, class_weights=np.ascontiguousarray(weights, np.float32))


def check_class_weight(wish: object, classes: Classes, more_may_come: bool = False) -> None:
    """Refuse a `class_weight` that makes no sense for these classes.

    A name that is not a class is a mistake, unless all classes have a weight: a part of the data,
    as in cross-validation, may lack a class. If more classes may come, the name must have their
    type.
    """
    if wish is None:
        return
    if not isinstance(wish, Mapping):
        _power(wish)
        return
    known = classes.tolist()
    for label, weight in wish.items():
        try:
            fine = 0 <= float(weight) <= MOST_WEIGHT
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise ValueError(
                f"a class weight must be a number from 0 to {MOST_WEIGHT:.0e}, found {weight!r} "
                f"for {label!r}; {_listed(known)}"
            )
    strange = [label for label in wish if label not in known]
    if more_may_come:
        kinds = {type(label) for label in known}
        strange = [label for label in strange if kinds and _plain_type(label) not in kinds]
    if strange and (more_may_come or any(label not in wish for label in known)):
        raise ValueError(
            f"{named('class_weight')} names {strange[0]!r}, which is no class; {_listed(known)}"
        )
    if known and all(wish.get(label, 1.0) == 0 for label in known):
        raise ValueError(
            f"{named('class_weight')} is 0 for every class: nothing to learn; {_listed(known)}"
        )


def _power(wish: object) -> float:
    powers = {"balanced": 1.0, "sqrt": 0.5}
    if not isinstance(wish, str) or wish not in powers:
        raise ValueError(
            f"class_weight must be None, 'balanced', 'sqrt' or a dictionary, found {wish!r}"
        )
    return powers[wish]


def _even(counts: I64, shares: int, power: float) -> F64:
    """Weights (rows, groups) that give the groups of a row equal totals, to a power, with mean 1.

    counts: the members of each group. A group without members has weight 1.
    """
    total = counts.sum(axis=1, keepdims=True)
    weights = np.where(counts > 0, total / (shares * np.maximum(counts, 1)), 1) ** power
    mean = (counts * weights).sum(axis=1, keepdims=True) / np.maximum(total, 1)
    return np.asarray(np.where(counts > 0, weights / np.where(mean > 0, mean, 1), 1))


def _named_weights(wish: Mapping[Any, Any], classes: Classes) -> F64:
    return np.array([wish.get(label, 1.0) for label in classes.tolist()], np.float64)


def _plain_type(label: Any) -> type:
    return type(label.item() if isinstance(label, np.generic) else label)


def _listed(classes: list[Any]) -> str:
    shown = ", ".join(repr(label) for label in classes[:SHOWN])
    more = f" and {len(classes) - SHOWN:,} more" if len(classes) > SHOWN else ""
    return f"the classes are {shown}{more}"


def sample_weights(given: npt.ArrayLike, count: int) -> F32:
    """The caller's weights of `count` documents, checked."""
    with np.errstate(over="ignore"):  # infinite in single precision: refused below
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
