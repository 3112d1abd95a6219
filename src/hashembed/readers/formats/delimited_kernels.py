"""Kernels that find the rows and columns of delimited text, and join columns.

Delimited text follows RFC 4180: a quote at the beginning of a column opens it, a doubled quote
inside is a quote, and a delimiter or a line end follows the closing quote. Elsewhere a quote is an
ordinary character. A row that breaks these rules ends with its first line, so an open quote loses
no more than that line.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, I64_2D, U8, U8_2D, Bools
from hashembed.core.njit import njit
from hashembed.readers.formats.line_kernels import NEWLINE, RETURN, SPACE, copy, seek

QUOTE, BACKSLASH, LETTER_N = np.uint8(34), np.uint8(92), np.uint8(110)

GOOD, AFTER_QUOTE, OPEN_QUOTE = 0, 1, 2  # states of a row
PLAIN, QUOTED, DOUBLED = 0, 1, 2  # kinds of columns: without quotes, in them, doubled ones inside


class FoundRows(NamedTuple):
    """Arrays that `scan_rows` fills."""

    fields: I64  # (rows,), number of columns
    lines: I64  # (rows,), first line
    wrong: I64  # (rows,), GOOD, AFTER_QUOTE or OPEN_QUOTE
    starts: I64_2D  # (rows, slots), bounds of columns
    ends: I64_2D
    kinds: U8_2D  # (rows, slots), PLAIN, QUOTED or DOUBLED


@njit(nogil=True)
def _scan_column(data, at, delimiter, quotes):
    """The column that begins at `at` -> bounds, kind, line ends within, end, done, state.

    The end is the position of the delimiter or line end. done: whether it ends the row.
    """
    size = len(data)
    if not quotes or at >= size or data[at] != QUOTE:
        stop = seek(data, at, size, delimiter, NEWLINE)
        done = stop >= size or data[stop] == NEWLINE
        cut = stop - 1 if done and stop > at and data[stop - 1] == RETURN else stop
        return at, cut, PLAIN, 0, stop, done, GOOD
    kind, lines = QUOTED, 0
    start = at = at + 1
    while True:
        at = seek(data, at, size, QUOTE, NEWLINE)
        if at >= size:
            return start, at, kind, lines, at, True, OPEN_QUOTE
        if data[at] == NEWLINE:
            lines += 1
            at += 1
        elif at + 1 < size and data[at + 1] == QUOTE:
            kind = DOUBLED
            at += 2
        else:
            break
    stop = at
    at += 1
    if at < size and data[at] == RETURN and (at + 1 == size or data[at + 1] == NEWLINE):
        at += 1
    if at < size and data[at] != delimiter and data[at] != NEWLINE:
        return start, stop, kind, lines, at, True, AFTER_QUOTE
    return start, stop, kind, lines, at, at >= size or data[at] == NEWLINE, GOOD


@njit(nogil=True)
def _remember(data, at, delimiter, quotes, state, fates):
    """Record where the columns of a broken row begin: a row that reaches one of them breaks too.

    Returns the end of the last column.
    """
    while at < len(fates) and fates[at] == GOOD:
        fates[at] = state
        _, _, _, _, end, done, _ = _scan_column(data, at, delimiter, quotes)
        if done:
            return end
        at = end + 1
    return at


@njit(native=True, nogil=True)
def scan_rows(
    data: U8, line: int, patience: int, delimiter: int, quotes: bool, slots: I64, found: FoundRows
) -> tuple[int, int, int]:
    """Find the rows of delimited text -> number of rows, bytes used, next line.

    line: the number of the first line.
    patience: a row whose quote is open at the end of the data is left over if it has at most this
        many bytes, because it may continue; a longer one is wrong.
    quotes: whether double quotes enclose columns.
    slots[c]: the slot of column c in `found`, or -1.
    found: a `FoundRows` to fill. Empty lines are not rows.

    The scan takes linear time, although a broken row is scanned up to where it breaks and then
    again from its second line. How a row continues depends only on where a column begins, so
    `fates` records, for each column of a broken row, how the row ends. Columns that begin at
    different places overlap in at most a run of quotes, so all of them together are hardly longer
    than the data.
    """
    fields, lines, wrong, starts, ends, kinds = found
    rows, at, size, columns = 0, 0, len(data), len(slots)
    comma = np.uint8(delimiter)
    fates = np.zeros(0, np.uint8)
    known = 0  # `fates` is known up to here
    while at < size:
        begin, first, column, state = at, line, 0, GOOD
        done = False
        while not done:
            if at < known and fates[at] != GOOD:
                state = fates[at]
                break
            start, stop, kind, within, at, done, state = _scan_column(data, at, comma, quotes)
            line += within
            if state != GOOD:
                break
            if column < columns and slots[column] >= 0:
                slot = slots[column]
                starts[rows, slot], ends[rows, slot], kinds[rows, slot] = start, stop, kind
            column += 1
            at += 1
        if state == OPEN_QUOTE and size - begin <= patience:
            return rows, begin, first
        if state != GOOD:
            if len(fates) == 0:
                fates = np.zeros(size + 1, np.uint8)
            known = max(known, _remember(data, begin, comma, quotes, state, fates))
            at, line = seek(data, begin, size, NEWLINE, NEWLINE) + 1, first
        elif column == 1 and start == stop and kind == PLAIN:
            line += 1
            continue
        line += 1
        fields[rows], lines[rows], wrong[rows] = column, first, state
        rows += 1
    return rows, min(at, size), line


@njit(native=True, nogil=True)
def join_columns(
    data: U8,
    starts: I64_2D,
    ends: I64_2D,
    kinds: U8_2D,
    first: int,
    count: int,
    good: Bools,
    escapes: bool,
    offsets: I64,
    out: U8,
) -> None:
    """Join the columns of each good row with a space, without their quotes; bad rows are empty.

    first, count: the slots of the columns.
    escapes: whether a backslash and an n stand for a line end.
    """
    to = 0
    for i in range(len(starts)):
        for j in range(first, first + count if good[i] else first):
            if j > first:
                out[to] = SPACE
                to += 1
            at, end = starts[i, j], ends[i, j]
            doubled = kinds[i, j] == DOUBLED
            while True:
                stop = end
                if doubled or escapes:
                    stop = seek(data, at, end, QUOTE if doubled else BACKSLASH, BACKSLASH)
                copy(data, at, stop, out, to)
                to += stop - at
                if stop >= end:
                    break
                out[to] = data[stop]
                if data[stop] == QUOTE:
                    stop += 1
                elif escapes and stop + 1 < end and data[stop + 1] == LETTER_N:
                    out[to] = NEWLINE
                    stop += 1
                to += 1
                at = stop + 1
        offsets[i + 1] = to
