"""How much the vectors count beside the n-grams: by the loss on rows that were not trained on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hashembed.core.arrays import F32, F64
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_losses, make_probabilities

SHARES = np.linspace(0, 1, 21)
EXPONENTS = np.linspace(-4, 4, 65)  # of temperatures, to the base of 2
LN2 = 0.6931471805599453
# With so many rows, vectors are left out if they lower the mean loss by less.
ENOUGH_ROWS, LEAST_GAIN = 300, 0.002
LARGEST_SHARE = 0.98  # the n-grams keep something, from which `partial_fit` can go on


@dataclass(frozen=True)
class Mix:
    """Factors of the logits of n-grams and of vectors, and the share of the vectors."""

    ngrams: float
    vectors: float
    share: float
    temperature: float  # by which the logits of n-grams are divided, apart from their share
    rows: int  # that it was found on

    def __call__(self, ngrams: F32, vectors: F32) -> F32:
        """The mixed logits."""
        return np.float32(self.ngrams) * ngrams + np.float32(self.vectors) * vectors


def choose_mix(
    ngrams: F32, vectors: F32, labels: Labels, multilabel: bool, weights: F32 | None
) -> Mix:
    """The best mix of two kinds of logits (n, C) of rows that neither was trained on.

    Both are first brought to their best temperatures. Then each share has a likelihood, and the
    mean share counts: on few rows it lies between the extremes, on many it is the best one.
    """

    def loss(z: F32) -> float:
        return total_loss(z, labels, multilabel, weights)

    cool, warm = _best_temperature(ngrams, loss), _best_temperature(vectors, loss)
    a, b = ngrams / np.float32(cool), vectors / np.float32(warm)
    losses = np.array([loss(np.float32(1 - s) * a + np.float32(s) * b) for s in SHARES])
    share = 0.0
    if np.isfinite(losses).all() and not _is_certainly_small(losses, len(ngrams)):
        share = min(float((_likelihoods(losses) * SHARES).sum()), LARGEST_SHARE)
    mixed = np.float32(1 - share) * a + np.float32(share) * b
    temperature = _best_temperature(mixed, loss)
    return Mix(
        (1 - share) / (cool * temperature),
        share / (warm * temperature),
        share,
        cool * temperature,
        len(ngrams),
    )


def _is_certainly_small(losses: F64, rows: int) -> bool:
    """Whether the vectors do not help, as far as many rows can tell."""
    return rows >= ENOUGH_ROWS and float(losses[0] - losses.min()) < LEAST_GAIN * rows


def _likelihoods(losses: F64) -> F64:
    """Shares of exp(-loss), which add up to 1."""
    z = np.array(-losses[None])
    make_probabilities(z, False)
    return np.asarray(z[0])


def total_loss(z: F32, labels: Labels, multilabel: bool, weights: F32 | None) -> float:
    """The sum of the losses of logits (n, C)."""
    out = np.empty(len(z))
    fill_losses(np.ascontiguousarray(z), labels.labels, labels.offsets, multilabel, out)
    return float(out.sum() if weights is None else (out * weights).sum())


def _best_temperature(z: F32, loss: Callable[[F32], float]) -> float:
    """Of a grid. A normal prior of log T keeps it close to 1 on few rows."""
    losses = [loss(z / np.float32(2.0**e)) + (LN2 * e) ** 2 / 2 for e in EXPONENTS]
    return float(2.0 ** EXPONENTS[int(np.argmin(losses))])
