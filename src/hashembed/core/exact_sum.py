"""Sums of floats that do not depend on the order, nor on how the numbers are divided into parts."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_SMALLEST = -1127  # no bit of a float64 is below 2 to this power
_LOW = 27  # bits of the lower half of a mantissa
_MOST = 1 << 26  # numbers whose halves of mantissas can be added up in a float64


class ExactSum:
    """The exact sum of float64 numbers, rounded once, when it is asked for."""

    def __init__(self) -> None:
        self._units = 0  # of 2 ** _SMALLEST
        self._special = 0.0  # infinities and NaN

    def add(self, values: npt.ArrayLike) -> "ExactSum":
        """Add some numbers -> itself."""
        array = np.ravel(np.asarray(values, np.float64))
        for start in range(0, len(array), _MOST):
            self._add(array[start : start + _MOST])
        return self

    def _add(self, values: npt.NDArray[np.float64]) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            self._special += float(values[~finite].sum())
            values = values[finite]
        fractions, exponents = np.frexp(values)
        mantissas = (fractions * 2.0**53).astype(np.int64)
        high = mantissas >> _LOW
        low = mantissas - (high << _LOW)
        places = exponents.astype(np.int64) - 53 - _SMALLEST
        of_high, of_low = np.bincount(places, high), np.bincount(places, low)
        for place in np.flatnonzero((of_high != 0) | (of_low != 0)).tolist():
            self._units += ((int(of_high[place]) << _LOW) + int(of_low[place])) << place

    def merge(self, other: "ExactSum") -> None:
        """Add the sum of other numbers."""
        self._units += other._units
        self._special += other._special

    def __float__(self) -> float:
        return float(self._units / (1 << -_SMALLEST)) + self._special


def merged(one: Iterable[ExactSum], other: Iterable[ExactSum]) -> list[ExactSum]:
    """The sums of pairs."""
    found = []
    for a, b in zip(one, other, strict=True):
        total = ExactSum()
        total.merge(a)
        total.merge(b)
        found.append(total)
    return found
