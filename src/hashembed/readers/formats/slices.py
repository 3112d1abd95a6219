"""Lines and other slices of bytes, as arrays of their bounds and as Arrow columns."""

from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I64, U8
from hashembed.readers.formats.line_kernels import behind, count_byte, gather, scan_lines


def as_bytes(data: bytes) -> U8:
    """The bytes as an array."""
    return np.frombuffer(data, np.uint8)


def count_lines(data: bytes) -> int:
    """The number of line ends, several times faster than `data.count`."""
    return int(count_byte(as_bytes(data), 10))


def behind_lines(data: bytes, at: int, count: int) -> int:
    """The position `count` lines after `at`, or the end."""
    return int(behind(as_bytes(data), at, count))


def cut_lines(data: bytes) -> tuple[I64, I64]:
    """Where each line begins and ends."""
    starts, ends = np.empty((2, count_lines(data) + 1), np.int64)
    lines = scan_lines(as_bytes(data), starts, ends)
    return starts[:lines], ends[:lines]


def strings(data: U8, starts: I64, ends: I64) -> Any:
    """An Arrow column of these slices of the data."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    gather(data, starts, ends, offsets, out)
    return string_column(offsets, out)


def string_column(offsets: I64, out: U8) -> Any:
    """An Arrow column of large strings over these buffers."""
    return pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(out)
    )
