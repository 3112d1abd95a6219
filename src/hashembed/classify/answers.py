"""Turns logits into answers: the most likely class, the top k, or all above a threshold."""

import math
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32
from hashembed.core.checks import whole_number
from hashembed.core.wording import named
from hashembed.engine.protocol import to_probabilities

THRESHOLD = 0.5  # default probability above which a multi-label model gives a label


def limits(
    multilabel: bool, threshold: float | None, top: int | None, usual: float = THRESHOLD
) -> tuple[float | None, int | None]:
    """Check threshold and number of answers; without both, the default for the kind of model.

    usual: the threshold of a multi-label model, unless another one is given.
    """
    if top is not None:
        top = whole_number("top", top, 1, 2**31 - 1)
    if threshold is not None:
        threshold = _checked(threshold)
    if threshold is None and top is None:
        return (usual, None) if multilabel else (None, 1)
    return threshold, top


def _checked(threshold: float) -> float:
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise ValueError(
            f"{named('threshold')} must be a probability from 0 to 1, found {threshold!r}"
        )
    return float(threshold)


def chosen(
    logits: F32, multilabel: bool, threshold: float | None, top: int | None
) -> npt.NDArray[np.bool_]:
    """Which classes (n, C) are above the threshold and among the `top` of their text."""
    out = np.ones(logits.shape, np.bool_)
    if threshold is not None and multilabel:
        out = logits > _logit(threshold)
    elif threshold is not None:
        out = to_probabilities(logits, False) > threshold
    if top is not None and top < logits.shape[1]:
        among = np.zeros(logits.shape, np.bool_)
        np.put_along_axis(among, best(logits, top), True, axis=1)
        out &= among
    return out


def best(logits: F32, top: int | None) -> npt.NDArray[np.int64]:
    """The `top` most likely classes of each text (n, top), or all, sorted; ties keep order."""
    if top == 1 and logits.shape[1]:
        return np.asarray(logits.argmax(axis=1)[:, None])
    return np.argsort(-logits, axis=1, kind="stable")[:, :top]


def _logit(probability: float) -> np.float32:
    if probability in (0, 1):
        return np.float32(math.inf if probability else -math.inf)
    return np.float32(math.log(probability / (1 - probability)))


def free_name(name: str, columns: Collection[str]) -> str:
    """The name of a new column, with a number if the data has a column of that name."""
    found, number = name, 2
    while found in columns:
        found, number = f"{name}_{number}", number + 1
    return found
