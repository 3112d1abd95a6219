"""Chooses the size of the tiles, the number of programs and the device of the kernels.

Sizes for a GPU are the fastest of those tried on an H200. The interpreter runs tiles in Python, so
its sizes are small enough that tests reach every branch.
"""

import contextlib
from contextlib import AbstractContextManager
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION
from hashembed.nn.gpu.kernels.layout import EXTENT_UNIT

INTERPRETED: bool = triton.knobs.runtime.interpret

# Numbers in a tile and its warps, measured with d = 20 and d = 2.
SUM, UPDATE, SHORT = (1024, 1), (1024, 2), (1024, 4)
INTERPRETED_NUMBERS = 32
NARROW = 8  # rows of at most so many numbers are narrow

# Programs for each multiprocessor: `update_short` of wide and of narrow rows, and `sum_long`. There
# are few of `sum_long`, because it overlaps with the update of wide rows, which takes longest.
PROGRAMS, NARROW_PROGRAMS, LONG_PROGRAMS = (2, 2, 3) if INTERPRETED else (6, 4, 16)
AT_A_TIME, NARROW_AT_A_TIME = 2, 8  # terms of short rows in flight
LONG, LONG_NARROW = (2, 4) if INTERPRETED else (32, 64)  # most terms of a short row
FEW = 1 if INTERPRETED else 2  # terms that most rows have, at most
assert max(LONG, LONG_NARROW) < EXTENT_UNIT.value

FEW_TILES = 2 if INTERPRETED else 8  # a long row of more tiles is summed by groups of tiles
# Tiles whose edges `sum_edges` takes at a time (more are slower: few programs would have work), and
# tiles in a group.
EDGE_TILES, GROUP = (2, 4) if INTERPRETED else (8, 32)
CATCH_UP = 128  # rows that a program of `catch_up` takes; 32 for each warp

_NOTHING = contextlib.nullcontext()

TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


def acc(table: Tensor) -> tl.dtype:
    """Triton's name for the type of sums."""
    return TYPES[ACCUMULATION[table.dtype]]


def device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device; make it the tensor's."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return _NOTHING
    return torch.cuda.device(tensor.device)


def on_stream(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    """Work on this stream, or without one on the current stream."""
    return _NOTHING if stream is None else torch.cuda.stream(stream)


def cdiv(n: int, size: int) -> int:
    """How many parts of a size n has. Triton's own function takes much longer on the host."""
    return -(-n // size)


def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least n."""
    return 1 << (n - 1).bit_length()


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def row_tile(d: int, numbers: int, warps: int) -> tuple[int, int, int]:
    """Rows T and columns D of a tile of rows of d numbers, and its warps."""
    D = next_power_of_2(d)
    T = max(4, min((INTERPRETED_NUMBERS if INTERPRETED else numbers) // D, 128))
    return T, D, warps if NARROW < D <= 64 else 4


def most_short_terms(d: int) -> int:
    """A row of d numbers with more terms than this is long."""
    return LONG if next_power_of_2(d) > NARROW else LONG_NARROW
