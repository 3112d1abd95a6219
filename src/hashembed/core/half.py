"""Tables in half precision."""

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, whole_rows
from hashembed.core.half_kernels import fill_halves
from hashembed.core.threads import run_workers

_INFINITY = 0x7C00  # as bits of a half
_FEW = 1 << 16  # numbers that one thread converts sooner than two


def to_half(table: F32, threads: int) -> npt.NDArray[np.float16] | None:
    """A table (rows, width) in half precision; None if that cannot hold all of its numbers.

    The table may consist of the first columns of a wider one.
    """
    rows, width = table.shape
    out = np.empty((rows, width), np.float16)
    if table.size == 0:
        return out
    try:
        wide = whole_rows(table)
    except ValueError:
        wide = np.ascontiguousarray(table)
    workers = threads if table.size > _FEW else 1
    halves = out.view(np.uint16)
    largest = run_workers(fill_halves, workers, wide, wide.view(np.uint32), width, halves)
    return out if max(largest) < _INFINITY else None
