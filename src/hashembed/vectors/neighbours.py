"""Nearest rows of a table by cosine: a plain scan, and a fast one with the same results.

The fast one scans a copy of the table in one byte a number, which gives each cosine up to a known
error. Only the rows that may be among the nearest are then computed exactly.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F64, I64, is_among
from hashembed.core.checks import whole_number
from hashembed.core.threads import cpu_count, run_workers
from hashembed.vectors.scan_kernels import BLOCK, scan_codes

_ROWS = 1 << 14  # computed at a time
_FEW = 2000  # rows, for which a plain scan is as fast
_PART = 8  # if a larger part of all rows is wanted, so is it
_ROUNDING = 4e-6  # of a score in single precision, generously
_QUERY_LEVELS = 2**13  # MAX_DIM / 16 products with a byte fit in 32 bits


class Neighbour(NamedTuple):
    """A word and the cosine of its vector with the one that was asked for."""

    word: str
    cosine: float


def unit_rows(vectors: F32) -> F32:
    """Rows scaled to length 1; rows of zeros stay."""
    return np.asarray(vectors / np.maximum(_lengths(vectors), 1e-30)[:, None], np.float32)


def cosines_with(vectors: F32, direction: F64) -> F32:
    """The cosine of each row with a vector of length 1; 0 for a row of zeros.

    The cosine of a row does not depend on which other rows there are.
    """
    out = np.empty(len(vectors), np.float32)
    for first in range(0, len(vectors), _ROWS):
        part = vectors[first : first + _ROWS].astype(np.float64)
        lengths = np.maximum(np.sqrt((part * part).sum(axis=1)), 1e-30)
        out[first : first + _ROWS] = (part * direction).sum(axis=1) / lengths
    return out


def nearest_rows(vectors: F32, vector: F32, top: int, left_out: I64) -> list[tuple[int, float]]:
    """The rows with the largest cosine to a vector, without those `left_out`: a plain scan.

    Equal cosines are ordered by row, so that the result is always the same.
    """
    direction = _direction(vectors, vector, top)
    return _largest(np.arange(len(vectors)), cosines_with(vectors, direction), top, left_out)


class NearestRows:
    """Finds what `nearest_rows` finds, in less time."""

    def __init__(self, vectors: F32, threads: int | None = None) -> None:
        rows, dim = vectors.shape
        self.vectors, self.threads = vectors, threads
        self.codes = np.zeros((rows, -(-dim // BLOCK) * BLOCK), np.int8)
        self.scales, self.errors = np.empty((2, rows), np.float32)
        for first in range(0, rows, _ROWS):
            part = slice(first, first + _ROWS)
            units = unit_rows(vectors[part])
            scales = np.abs(units).max(axis=1, initial=0) / np.float32(127)
            codes = np.rint(units / np.maximum(scales, 1e-30)[:, None])
            self.codes[part, :dim], self.scales[part] = codes, scales
            self.errors[part] = _lengths(units - codes.astype(np.float64) * scales[:, None])

    def find(self, vector: F32, top: int, left_out: I64) -> list[tuple[int, float]]:
        """The rows with the largest cosine to a vector, without those `left_out`."""
        direction = _direction(self.vectors, vector, top)
        wanted = top + len(left_out)  # so many may be better than the ones to be found
        if wanted * _PART > len(self.vectors) or len(self.vectors) < _FEW:
            return nearest_rows(self.vectors, vector, top, left_out)
        rows = self._candidates(direction, wanted)
        return _largest(rows, cosines_with(self.vectors[rows], direction), top, left_out)

    def _candidates(self, direction: F64, wanted: int) -> I64:
        """All rows that may be among the `wanted` nearest ones."""
        factor = max(float(np.abs(direction).max()), 1e-30) / _QUERY_LEVELS
        query = np.zeros(self.codes.shape[1], np.int16)
        query[: len(direction)] = np.rint(direction / factor)
        rounded = query[: len(direction)] * factor
        # |u.v - u'.v'| <= |u| |v - v'| + |u - u'| |v'|, where u' and v' are the coded vectors.
        missed = float(np.sqrt(((direction - rounded) ** 2).sum())) + _ROUNDING
        length = float(np.sqrt((rounded**2).sum()))
        upper = np.empty(len(self.codes), np.float32)
        workers = self.threads or cpu_count()
        best = np.full((workers, wanted), -np.inf, np.float32)
        table = self.codes, self.scales, self.errors
        run_workers(scan_codes, workers, *table, query, factor, length, missed, upper, best)
        return np.flatnonzero(upper >= best[:, 0].max())


def _direction(vectors: F32, vector: F32, top: int) -> F64:
    whole_number("top", top, 1, 2**31 - 1)
    if vector.shape != vectors.shape[1:]:
        raise ValueError(f"a vector here has {vectors.shape[1]} numbers, found {vector.shape}")
    wide = vector.astype(np.float64)
    return np.asarray(wide / max(float(np.sqrt((wide * wide).sum())), 1e-30))


def _largest(rows: I64, cosines: F32, top: int, left_out: I64) -> list[tuple[int, float]]:
    """The rows with the largest cosines. The rows rise."""
    if len(left_out):
        kept = ~is_among(rows, left_out)
        rows, cosines = rows[kept], cosines[kept]
    count = min(top, len(rows))
    if not count:
        return []
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    places = np.flatnonzero(cosines >= least)
    places = places[np.argsort(-cosines[places], kind="stable")][:count]
    return [(int(rows[place]), float(cosines[place])) for place in places]


def _lengths(rows: F32 | F64) -> F64:
    """In double precision; the length of a row does not depend on the others."""
    wide = rows.astype(np.float64)
    return np.asarray(np.sqrt((wide * wide).sum(axis=1)))
