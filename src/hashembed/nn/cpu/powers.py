"""Powers of two with the same bits on every processor, which those of a C library need not have."""

import numpy as np

from hashembed.core.arrays import F64
from hashembed.core.njit import njit

_LOG_2 = 0.6931471805599453


def _taylor(terms: int) -> tuple[float, ...]:
    """The coefficients of 2^x, highest power first. One half needs 14 of them."""
    found = [1.0]
    for i in range(1, terms):
        found.append(found[-1] * _LOG_2 / i)
    return tuple(reversed(found))


_TERMS = _taylor(15)


@njit(forceinline=True)
def _whole_power(n):
    """2^n of an integer from -1022 to 1023, which is the exponent of a float64."""
    return np.int64((n + 1023) << 52).view(np.float64)


@njit
def power_of_two(x):
    """2^x for x below 1023, to within about one unit in the last place; 0 for very small ones."""
    n = np.int64(np.floor(max(x, -2040.0) + 0.5))
    rest = max(x, -2040.0) - n
    total = 0.0
    for term in _TERMS:
        total = total * rest + term
    half = n // 2  # in two steps, because the power may be too small for an exponent
    return total * _whole_power(half) * _whole_power(n - half)


@njit(native=True, nogil=True, error_model="numpy")
def powers_of_two(x: F64, powers: F64) -> None:
    """2^x of all numbers."""
    for j in range(len(x)):
        powers[j] = power_of_two(x[j])
