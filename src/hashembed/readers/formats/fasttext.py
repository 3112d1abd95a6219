"""fastText's format, the fast path: `__label__NAME text`, one document per line."""

import os
from typing import Any

import numpy as np

from hashembed.readers.formats.line_kernels import NEWLINE, cut_labelled_lines
from hashembed.readers.formats.slices import strings
from hashembed.readers.report import DataError

_PREFIX = b"__label__"


def read_fasttext(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Read a file of lines `__label__NAME text`, with exactly one label each -> labels, texts.

    Both are Arrow columns of strings; the labels are dictionary-encoded.
    """
    data = np.fromfile(path, np.uint8)
    most = int(np.count_nonzero(data == NEWLINE)) + 1
    label, text, ends = np.empty((3, most), np.int64)
    lines = cut_labelled_lines(data, np.frombuffer(_PREFIX, np.uint8), label, text, ends)
    if lines < 0:
        raise DataError(
            f"{path}, line {-lines}: found no label, expected a line that begins with "
            f"{_PREFIX.decode()}NAME"
        )
    labels = strings(data, label[:lines], text[:lines])
    return labels.dictionary_encode(), strings(data, text[:lines], ends[:lines])
