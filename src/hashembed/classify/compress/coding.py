"""Chooses codes: of all ways to write a table, the one with the least error for its bits.

Codes stand for levels, about multiples of a step. An error in a row costs its square times the
row's weight, and a bit costs a price. Each number gets the code with the least cost: the nearest
one, one closer to zero, or zero. A row is kept if that costs less than leaving it out. The bits of
a code follow from how frequent it is in its column, since codes are compressed later.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F64, I64
from hashembed.engine.outputs import fill_logarithms

TOP = 126  # the largest code: with signs there are 252 values
ROUNDS = 3  # codes and their bits depend on each other
CHEAP = 0.01  # the price of a bit where bits are asked for, in squares of a step
_LOG2 = 0.6931471805599453
_UNSEEN = 0.05  # how often a code counts that does not occur
_FACTORS = tuple(0.75**n for n in range(20))  # of a step that reaches the largest number
_LEAST_GAP = 2.0  # bits of the place of a row, at least

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coded:
    """The rows that are kept, and their codes: code c stands for levels[c], -c for -levels[c]."""

    places: I64  # (n,), among the rows that were given, rising
    codes: Codes  # (n, columns)
    levels: F64  # rising from 0

    @property
    def numbers(self) -> F64:
        """What the codes stand for."""
        return np.asarray(np.sign(self.codes) * self.levels[np.abs(self.codes)], np.float64)


@dataclass(frozen=True)
class Fineness:
    """How fine codes are: by the price of a bit or, if they are given, by the bits of a number."""

    price: float = 0.0
    bits: int | None = None

    def resolve(self, numbers: F64, weights: F64) -> tuple[F64, float]:
        """The levels of codes for a table, and the price of a bit.

        A price has a step that suits it. If TOP such steps do not reach the largest number, steps
        grow, so that the levels are s c + q c^2.
        """
        typical = float(np.sort(weights)[len(weights) // 2]) if len(weights) else 1.0
        if self.bits is None:
            step = float(np.sqrt(self.price / typical)) or 1e-30
            largest, codes = float(np.abs(numbers).max(initial=0)), np.arange(TOP + 1.0)
            growth = max(largest - step * TOP, 0.0) / TOP**2
            return step * codes + growth * codes * codes, self.price
        top = 2 ** (self.bits - 1) - 1
        step = _best_step(np.abs(numbers), weights, top)
        return step * np.arange(top + 1.0), CHEAP * step * step * typical


def _best_step(sizes: F64, weights: F64, top: int) -> float:
    """The step whose first `top` multiples, and zero, are closest to the numbers."""
    largest = float(sizes.max(initial=0)) / top or 1.0
    best, least = largest, np.inf
    for factor in _FACTORS:
        step = factor * largest
        distance = sizes - step * np.minimum(np.rint(sizes / step), top)
        error = float(energies(distance, weights).sum())
        if error < least:
            best, least = step, error
    return best


def energies(numbers: F64, weights: F64) -> F64:
    """What it costs to leave a row out."""
    total = np.zeros(len(numbers))
    for column in numbers.T:
        total += column * column
    return np.asarray(total * weights)


def choose_codes(numbers: F64, weights: F64, fineness: Fineness, total: int) -> Coded:
    """Codes for a table's rows (n, columns). total: rows of the table, with those that are zero."""
    levels, price = fineness.resolve(numbers, weights)
    energy = energies(numbers, weights)
    places = np.flatnonzero(energy > _LEAST_GAP * price)
    sizes = np.ascontiguousarray(np.abs(numbers[places]).T)  # (columns, n): one after the other
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, sizes)
    errors = weights[places]
    codes, kept = nearest, np.ones(len(places), np.bool_)
    for _ in range(ROUNDS):
        count = max(int(np.count_nonzero(kept)), 1)
        gap = float(_bits(np.array([count]), total)[0]) + 1.44  # of a row's place
        codes, cost = _cheapest(sizes, nearest, levels, errors, codes[:, kept], price)
        kept = (cost + price * gap < energy[places]) & codes.any(axis=0)
    signed = np.where(numbers[places] < 0, -codes.T, codes.T)
    return Coded(places[kept], signed[kept], levels)


def _cheapest(
    sizes: F64, nearest: Codes, levels: F64, errors: F64, seen: Codes, price: float
) -> tuple[Codes, F64]:
    """For each number the code of least cost, and the cost of each row."""
    codes, total = np.empty_like(nearest), np.zeros(nearest.shape[1])
    for own, size, chosen, before in zip(nearest, sizes, codes, seen, strict=True):
        counts = np.bincount(before, minlength=len(levels)) + _UNSEEN
        bits = _bits(counts, float(counts.sum()))
        bits[1:] += 1  # the sign
        least = np.full(len(own), np.inf)
        for code in (own, np.maximum(own - 1, 0), np.zeros_like(own)):
            distance = size - levels[code]
            cost = errors * distance * distance + price * bits[code]
            better = cost < least
            np.copyto(chosen, code, where=better)
            np.copyto(least, cost, where=better)
        total += least
    return codes, total


def _bits(counts: npt.NDArray[np.floating] | I64, total: float) -> F64:
    """The bits of things that occur so often among so many."""
    shares, out = np.asarray(counts / total, np.float64), np.empty(len(counts))
    fill_logarithms(shares, out)
    return -out / _LOG2
