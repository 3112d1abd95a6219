"""fastText's format, the fast path: `__label__NAME text`, one document per line."""

import os
from typing import Any

import numpy as np

from hashembed.core.njit import njit
from hashembed.readers.formats.delimited_kernels import NEWLINE, SPACE, TAB, strings
from hashembed.readers.report import DataError

_PREFIX = b"__label__"


@njit(nogil=True, cache=True)
def _cut_lines(data, prefix, label, text, ends):
    """Find the label and the text of each line -> lines, or minus the number of a bad line."""
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
        while space < stop and data[space] != SPACE and data[space] != TAB:
            space += 1
        label[lines], text[lines], ends[lines] = at + len(prefix), space, stop
        lines += 1
        at = stop + 1
    return lines


def read_fasttext(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Read a file of lines `__label__NAME text`, with exactly one label each -> labels, texts.

    Both are Arrow columns of strings; the labels are dictionary-encoded.
    """
    data = np.fromfile(path, np.uint8)
    most = int(np.count_nonzero(data == NEWLINE)) + 1
    label, text, ends = np.empty((3, most), np.int64)
    lines = _cut_lines(data, np.frombuffer(_PREFIX, np.uint8), label, text, ends)
    if lines < 0:
        raise DataError(
            f"{path}, line {-lines}: found no label, expected a line that begins with "
            f"{_PREFIX.decode()}NAME"
        )
    labels = strings(data, label[:lines], text[:lines])
    return labels.dictionary_encode(), strings(data, text[:lines], ends[:lines])
