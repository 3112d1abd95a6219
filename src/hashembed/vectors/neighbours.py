"""Nearest rows of a table by cosine."""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.checks import whole_number


class Neighbour(NamedTuple):
    """A word and the cosine of its vector with the one that was asked for."""

    word: str
    cosine: float


def unit_rows(vectors: F32) -> F32:
    """Rows scaled to length 1; rows of zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return np.asarray(vectors / np.maximum(lengths, 1e-30)[:, None], np.float32)


def nearest_rows(units: F32, vector: F32, top: int, left_out: I64) -> list[tuple[int, float]]:
    """The rows of `units` with the largest cosine to a vector, without those `left_out`.

    Equal cosines are ordered by row, so that the result is always the same.
    """
    whole_number("top", top, 1, 2**31 - 1)
    if vector.shape != units.shape[1:]:
        raise ValueError(f"a vector here has {units.shape[1]} numbers, found {vector.shape}")
    cosines = units @ unit_rows(vector[None])[0]
    cosines[left_out[left_out >= 0]] = -np.inf
    count = min(top, len(cosines))
    if not count:
        return []
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    rows = np.flatnonzero(cosines >= least)
    rows = rows[np.argsort(-cosines[rows], kind="stable")][:count]
    return [(int(row), float(cosines[row])) for row in rows if cosines[row] > -np.inf]
