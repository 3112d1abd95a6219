"""Scores of all rows of a table in one byte a number."""

from typing import Annotated

import numpy as np

from hashembed.core.arrays import F32, F32_2D, I8, I16, I64, Dimensions
from hashembed.core.njit import Intrinsic, njit

BLOCK = 32  # numbers in a row are a multiple of this

I8_2D = Annotated[I8, Dimensions(2)]


# dot_codes(codes, row, query): the dot product of a row of bytes and a query, as int64
dot_codes = Intrinsic("hashembed.vectors.scan_code", "dot_codes")


@njit(inline="always")
def keep_largest(heap, value):
    """Replace the least of a heap by a larger value."""
    size, at = len(heap), 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@njit(native=True, nogil=True, error_model="numpy")
def scan_codes(
    worker: int, workers: int, barrier: I64, codes: I8_2D, scales: F32, errors: F32, query: I16,
    factor: float, length: float, missed: float, upper: F32, best: F32_2D,
) -> None:  # fmt: skip
    """Bounds of the dot product of each row with a query.

    They are the product of the codes, and errors[row] * length + missed more or less.
    upper: (rows,), out. best: (workers, n), out: a heap of the n largest lower bounds of a
    worker's rows, so best[worker, 0] is their least.
    """
    rows = codes.shape[0]
    heap = best[worker]
    for j in range(len(heap)):
        heap[j] = -np.inf
    for r in range(rows * worker // workers, rows * (worker + 1) // workers):
        score = np.float32(
            np.float64(dot_codes(codes, r, query)) * (np.float64(scales[r]) * factor)
        )
        slack = np.float32(np.float64(errors[r]) * length + missed)
        upper[r] = score + slack
        lower = score - slack
        if lower > heap[0]:
            keep_largest(heap, lower)
