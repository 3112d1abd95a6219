"""Labelled text from files, as Arrow columns."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

PREFIX = b"__label__"
NEWLINE = 10

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class DataError(ValueError):
    """Data that cannot be read; the message names the file and the line."""


@njit(nogil=True, cache=True)
def _cut_lines(data, prefix, label, text, ends):
    """Where the label and the text of each line lie -> lines, or minus the first bad one."""
    lines, at, size = 0, 0, len(data)
    while at < size:
        stop = at
        while stop < size and data[stop] != NEWLINE:
            stop += 1
        if at + len(prefix) > stop:
            return -(lines + 1)
        for i in range(len(prefix)):
            if data[at + i] != prefix[i]:
                return -(lines + 1)
        space = at
        while space < stop and data[space] != 32 and data[space] != 9:
            space += 1
        label[lines], text[lines], ends[lines] = at + len(prefix), space, stop
        lines += 1
        at = stop + 1
    return lines


@njit(nogil=True, cache=True)
def _gather(data, starts, ends, offsets, out):
    """out[offsets[i] : offsets[i + 1]] = data[starts[i] : ends[i]]."""
    for i in range(len(starts)):
        at = offsets[i] - starts[i]
        for x in range(starts[i], ends[i]):
            out[at + x] = data[x]


def _strings(data: U8, starts: I64, ends: I64) -> Any:
    """An Arrow column of these pieces of the data."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    _gather(data, starts, ends, offsets, out)
    return pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(out))


def read_fasttext(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """fastText's format, `__label__NAME text`, a document a line -> labels, texts.

    Both are Arrow columns of strings; the labels are dictionary-encoded.
    """
    data = np.fromfile(path, np.uint8)
    most = int(np.count_nonzero(data == NEWLINE)) + 1
    label, text, ends = np.empty((3, most), np.int64)
    lines = _cut_lines(data, np.frombuffer(PREFIX, np.uint8), label, text, ends)
    if lines < 0:
        raise DataError(
            f"{path}, line {-lines}: found no label, expected a line that begins with "
            f"{PREFIX.decode()}NAME"
        )
    labels = _strings(data, label[:lines], text[:lines])
    return labels.dictionary_encode(), _strings(data, text[:lines], ends[:lines])
