"""Delimited text: its rows, and its dialect, detected from a sample."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import I64
from hashembed.readers.formats.delimited_kernels import (
    DOUBLED,
    GOOD,
    PLAIN,
    FoundRows,
    join_columns,
    scan_rows,
)
from hashembed.readers.formats.slices import as_bytes, count_lines, string_column
from hashembed.readers.rows import Options

DELIMITERS = ",\t;|"
_SAMPLE = 1 << 20  # bytes
_SAMPLE_LINES = 1000
_WIDEST = 1000  # columns examined


@dataclass(frozen=True)
class Dialect:
    """How rows are written, and their number of columns."""

    delimiter: str
    quotes: bool
    columns: int = 1


@dataclass
class Table:
    """Rows found in the data, up to the byte `used`."""

    data: npt.NDArray[np.uint8]
    used: int
    fields: I64  # number of columns of each row
    lines: I64
    wrong: I64
    starts: I64  # (rows, slots)
    ends: I64
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def scan(
        cls, data: bytes, line: int, patience: int, dialect: Dialect, slots: Sequence[int]
    ) -> "Table":
        """Find the rows; slots[c] is the slot of column c, or -1. See `scan_rows` for the rest."""
        most, width = count_lines(data) + 1, max(slots, default=-1) + 1
        fields, lines, wrong = np.empty((3, most), np.int64)
        starts, ends = np.empty((2, most, width), np.int64)
        kinds = np.empty((most, width), np.uint8)
        found = FoundRows(fields, lines, wrong, starts, ends, kinds)
        array, places = as_bytes(data), np.array(slots, np.int64)
        delimiter, quotes = ord(dialect.delimiter), dialect.quotes
        rows, used, _ = scan_rows(array, line, patience, delimiter, quotes, places, found)
        return cls(array, used, *found).take(slice(rows))

    def take(self, rows: slice | npt.NDArray[np.bool_]) -> "Table":
        """Some of the rows."""
        return Table(
            self.data,
            self.used,
            self.fields[rows],
            self.lines[rows],
            self.wrong[rows],
            self.starts[rows],
            self.ends[rows],
            self.kinds[rows],
        )

    def join(self, slots: slice, good: npt.NDArray[np.bool_], escapes: bool) -> Any:
        """The columns in these slots, joined, as Arrow strings."""
        size = int((self.ends[good, slots] - self.starts[good, slots] + 1).sum())
        offsets, out = np.zeros(len(good) + 1, np.int64), np.empty(size, np.uint8)
        columns = self.starts, self.ends, self.kinds
        first, count = slots.start, slots.stop - slots.start
        join_columns(self.data, *columns, first, count, good, escapes, offsets, out)
        return string_column(offsets, out[: offsets[-1]])


def sample_of(data: bytes) -> bytes:
    """The first lines of the data."""
    head = data[:_SAMPLE]
    pieces = head.split(b"\n", _SAMPLE_LINES)
    if len(pieces) > _SAMPLE_LINES:
        return head[: len(head) - len(pieces[-1])]
    return data if len(head) == len(data) else head[: head.rfind(b"\n") + 1] or data


def patience_for(data: bytes, last: bool) -> int:
    """How long an incomplete row may be that continues after this data; 0 at the end."""
    return 0 if last else len(data)


def recognise(sample: bytes, last: bool, options: Options) -> Dialect:
    """Detect the delimiter, which gives the most rows of one width, and the use of quotes.

    Quotes enclose columns, unless the delimiter is a tab and at least as many rows break the rules
    of quotes as follow them.
    """
    candidates = options.delimiter or ("\t" if options.format == "tsv" else DELIMITERS)
    best, best_share = Dialect(candidates[0], options.quotes is not False), 0.0
    for delimiter in candidates:
        dialect, share, behave = _fit(sample, last, Dialect(delimiter, options.quotes is not False))
        if options.quotes is None and delimiter == "\t" and not behave:
            dialect, share, _ = _fit(sample, last, Dialect(delimiter, False))
        if share > best_share and (dialect.columns > 1 or len(candidates) == 1):
            best, best_share = dialect, share
    return best


def _fit(sample: bytes, last: bool, dialect: Dialect) -> tuple[Dialect, float, bool]:
    """The dialect with its usual width, the share of such rows, whether quotes follow the rules."""
    table = Table.scan(sample, 1, patience_for(sample, last), dialect, range(8))
    good = table.wrong == GOOD
    width, count = Counter(table.fields[good].tolist()).most_common(1)[0] if good.any() else (1, 0)
    told = np.arange(8) < table.fields[good][:, None]
    quoted = ((table.kinds[good] != PLAIN) & told).any(axis=1).sum()
    broken = len(good) - good.sum()
    found = Dialect(dialect.delimiter, dialect.quotes, int(width))
    return found, count / max(len(good), 1), bool(broken == 0 or quoted > broken)


def cells_of(
    sample: bytes, last: bool, dialect: Dialect
) -> tuple[list[list[str]], list[list[int]]]:
    """The well-formed rows as Python strings, and the kinds of their columns."""
    patience = patience_for(sample, last)
    widths = Table.scan(sample, 1, patience, dialect, ()).fields
    width = min(int(widths.max(initial=0)), _WIDEST)
    table = Table.scan(sample, 1, patience, dialect, range(width))
    cells: list[list[str]] = []
    kinds: list[list[int]] = []
    for row in np.flatnonzero(table.wrong == GOOD):
        count = min(int(table.fields[row]), width)
        found = []
        for column in range(count):
            cell = sample[table.starts[row, column] : table.ends[row, column]].decode()
            doubled = table.kinds[row, column] == DOUBLED
            found.append(cell.replace('""', '"') if doubled else cell)
        cells.append(found)
        kinds.append(table.kinds[row, :count].tolist())
    return cells, kinds
