"""One document per line, plain or with fastText's labels."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import I64
from hashembed.core.wording import given
from hashembed.readers.formats.line_kernels import count_byte, cut_labels
from hashembed.readers.formats.slices import as_bytes, cut_lines, strings
from hashembed.readers.report import Problem
from hashembed.readers.rows import Rows, encoded


class Lines:
    """Every line is a text, even an empty one."""

    format: str = "lines"

    def __init__(self) -> None:
        self.label: str | None = None
        self.text: str | None = None
        self.notes: list[str] = []

    def parse(self, data: bytes, line: int, patience: int) -> tuple[Rows, int]:
        """See `Parser`."""
        starts, ends = cut_lines(data)
        texts = strings(as_bytes(data), starts, ends)
        return Rows(None, texts, line + np.arange(len(starts))), len(data)


class FastText:
    """fastText's lines: labels, which are words with a prefix, usually first, and the text.

    Empty lines are ignored, except in a reading without labels.
    """

    format: str = "fastText"

    def __init__(self, labelled: bool, prefix: str, file: str):
        self.labelled, self.prefix, self.file = labelled, prefix, file
        self.label: str | None = f"{prefix}NAME" if labelled else None
        self.text: str | None = "the rest of the line"
        self.notes: list[str] = []

    def parse(self, data: bytes, line: int, patience: int) -> tuple[Rows, int]:
        """See `Parser`."""
        array = as_bytes(data)
        starts, ends = cut_lines(data)
        lines = line + np.arange(len(starts))
        begins, counts = np.empty((2, len(starts)), np.int64)
        prefix = self.prefix.encode()
        # Counting a byte is much faster than counting the prefix.
        byte, in_prefix = prefix[0], prefix.count(prefix[:1])
        seen = count_byte(array, byte)
        names, stops = np.empty((2, seen // in_prefix + 1), np.int64)
        found = cut_labels(array, as_bytes(prefix), starts, ends, begins, counts, names, stops)
        texts = strings(array, begins, ends)
        values = strings(array, names[:found], stops[:found])
        in_labels = found * in_prefix + count_byte(
            np.frombuffer(values.buffers()[2], np.uint8), byte
        )
        if in_labels < seen and found < data.count(prefix):
            texts, values, counts = _labels_anywhere(data, starts, ends, self.prefix)
        if not self.labelled:
            return Rows(None, texts, lines), len(data)
        empty = (counts == 0) & (np.diff(np.frombuffer(texts.buffers()[1], np.int64)) == 0)
        if empty.any():
            texts, counts, lines = texts.filter(pa.array(~empty)), counts[~empty], lines[~empty]
        no_label = (
            f"found no label, expected a line that begins with {self.prefix}NAME "
            f"(give another prefix with {given('label_prefix')})"
        )
        rows = Rows(
            _label_column(values, counts),
            texts,
            lines,
            bad=counts == 0,
            explain=lambda row: Problem(self.file, int(lines[row]), no_label),
        )
        return rows, len(data)


def _labels_anywhere(data: bytes, starts: I64, ends: I64, prefix: str) -> tuple[Any, Any, I64]:
    """Texts, labels and the number of labels of each line. Labels may be anywhere in it."""
    label = re.compile(rf"(?:^|(?<=[ \t])){re.escape(prefix)}([^ \t]*)[ \t]*")
    texts: list[str] = []
    values: list[str] = []
    counts = np.zeros(len(starts), np.int64)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        text = data[start:end].decode()
        names = label.findall(text) if prefix in text else []
        counts[i] = len(names)
        values += names
        texts.append((label.sub("", text) if names else text).lstrip(" \t"))
    return pa.array(texts, pa.large_string()), pa.array(values, pa.string()), counts


def _label_column(values: Any, counts: npt.NDArray[np.int64]) -> Any:
    """A column of lists if a line has several labels. Otherwise a missing label is empty."""
    if (counts == 1).all():
        return encoded(values)
    if (counts > 1).any():
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values.cast(pa.string()))
    indices = np.full(len(counts), None)
    indices[counts == 1] = np.arange(len(values))
    return encoded(values.take(pa.array(indices, pa.int64())).fill_null(""))
