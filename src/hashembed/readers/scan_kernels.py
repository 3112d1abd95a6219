"""Kernels that find rows and columns in bytes and gather them into Arrow columns.

Delimited text follows RFC 4180: a quote at the begin of a column opens it, a doubled quote inside
is a quote, and after the closing one comes a delimiter or the end of the line. Elsewhere a quote is
a character like any other. A row that breaks the rule ends with its first line, so that an open
quote costs no more than that line.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I64, U8
from hashembed.core.njit import njit

NEWLINE, RETURN, SPACE, TAB = np.uint8(10), np.uint8(13), np.uint8(32), np.uint8(9)
QUOTE, BACKSLASH, LETTER_N = np.uint8(34), np.uint8(92), np.uint8(110)

_STRIDE = 32  # bytes compared at once
_COUNTED = 128  # bytes counted at once: what a byte can count

GOOD, AFTER_QUOTE, OPEN_QUOTE = 0, 1, 2  # what may be wrong with a row
PLAIN, QUOTED, DOUBLED = 0, 1, 2  # a column: as it stands, in quotes, with doubled quotes inside


@njit(nogil=True, cache=True)
def seek(data, at, end, one, other):
    """The place of the first `one` or `other` from `at` on, or the end."""
    while at + _STRIDE <= end:
        part = data[at : at + _STRIDE]
        hit = False
        for i in range(_STRIDE):
            hit |= (part[i] == one) | (part[i] == other)
        if hit:
            break
        at += _STRIDE
    while at < end and data[at] != one and data[at] != other:
        at += 1
    return at


@njit(nogil=True, cache=True)
def _count(data, byte):
    count, at = 0, 0
    while at + _COUNTED <= len(data):
        part = data[at : at + _COUNTED]
        found = np.uint8(0)
        for i in range(_COUNTED):
            found += np.uint8(part[i] == byte)
        count += found
        at += _COUNTED
    for i in range(at, len(data)):
        count += data[i] == byte
    return count


@njit(nogil=True, cache=True)
def _behind(data, at, count):
    size = len(data)
    while count > 0 and at < size:
        at = min(seek(data, at, size, NEWLINE, NEWLINE) + 1, size)
        count -= 1
    return at


@njit(nogil=True, cache=True)
def scan_lines(data, starts, ends):
    """Where each line begins and ends, without its line end -> lines."""
    lines, at, size = 0, 0, len(data)
    while at < size:
        stop = seek(data, at, size, NEWLINE, NEWLINE)
        starts[lines] = at
        ends[lines] = stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        lines += 1
        at = stop + 1
    return lines


@njit(nogil=True, cache=True)
def _scan_column(data, at, delimiter, quotes):
    """The column that begins at `at` -> bounds, kind, line ends within, its end, done, state.

    The end is where the delimiter or the line end stands; done: it is the last of its row.
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


@njit(nogil=True, cache=True)
def _remember(data, at, delimiter, quotes, state, fates):
    """Note where the columns of a broken row begin: a row that comes to one of them breaks, too.

    Returns the end of the last of them.
    """
    while at < len(fates) and fates[at] == GOOD:
        fates[at] = state
        _, _, _, _, end, done, _ = _scan_column(data, at, delimiter, quotes)
        if done:
            return end
        at = end + 1
    return at


@njit(nogil=True, cache=True)
def scan_rows(
    data, patience, delimiter, quotes, slots, line, fields, lines, wrong, starts, ends, kinds
):
    """Find the rows of delimited text -> rows, bytes and lines behind them.

    slots[c]: where column c goes in `starts`, `ends` and `kinds` (rows, slots), or -1.
    quotes: whether they enclose columns.
    patience: a row whose quote is open at the end is left if it has at most so many bytes, since it
    may go on behind them; a longer one is wrong.
    fields, lines, wrong (rows,): number of columns, first line, what is wrong. Empty lines are no
    rows.

    Linear, though a broken row is scanned to where it breaks and again from its second line on:
    what follows in a row depends only on where a column begins, so `fates` holds, for the columns
    of broken rows, how it ends. Columns that begin at different places share no more than a run of
    quotes, thus all of them together are hardly longer than the data.
    """
    rows, at, size, columns = 0, 0, len(data), len(slots)
    delimiter = np.uint8(delimiter)
    fates = np.zeros(0, np.uint8)
    known = 0  # the end of what `fates` tells of
    while at < size:
        begin, first, column, state = at, line, 0, GOOD
        done = False
        while not done:
            if at < known and fates[at] != GOOD:
                state = fates[at]
                break
            start, stop, kind, within, at, done, state = _scan_column(data, at, delimiter, quotes)
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
            known = max(known, _remember(data, begin, delimiter, quotes, state, fates))
            at, line = seek(data, begin, size, NEWLINE, NEWLINE) + 1, first
        elif column == 1 and start == stop and kind == PLAIN:
            line += 1
            continue
        line += 1
        fields[rows], lines[rows], wrong[rows] = column, first, state
        rows += 1
    return rows, min(at, size), line


@njit(nogil=True, cache=True)
def copy(data, start, end, out, to):
    """out[to:] = data[start:end]; through slices, whose indices LLVM knows not to be negative."""
    source = data[start:end]
    target = out[to : to + len(source)]
    for i in range(len(source)):
        target[i] = source[i]


@njit(nogil=True, cache=True)
def gather(data, starts, ends, offsets, out):
    """out[offsets[i] : offsets[i + 1]] = data[starts[i] : ends[i]]."""
    for i in range(len(starts)):
        copy(data, starts[i], ends[i], out, offsets[i])


@njit(nogil=True, cache=True)
def join_columns(data, starts, ends, kinds, good, escapes, offsets, out):
    """The columns of each good row, a space between, quotes undone; nothing for the others.

    escapes: a backslash and an n are a line end.
    """
    to = 0
    for i in range(len(starts)):
        for j in range(starts.shape[1] if good[i] else 0):
            if j:
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


def as_bytes(data: bytes) -> U8:
    """The bytes as kernels take them."""
    return np.frombuffer(data, np.uint8)


def count_lines(data: bytes) -> int:
    """The number of line ends; several times the speed of `data.count`."""
    return int(_count(as_bytes(data), NEWLINE))


def behind_lines(data: bytes, at: int, count: int) -> int:
    """The place behind so many lines from `at` on, or the end."""
    return int(_behind(as_bytes(data), at, count))


def cut_lines(data: bytes) -> tuple[I64, I64]:
    """Where each line begins and ends."""
    starts, ends = np.empty((2, count_lines(data) + 1), np.int64)
    lines = scan_lines(as_bytes(data), starts, ends)
    return starts[:lines], ends[:lines]


def strings(data: U8, starts: I64, ends: I64) -> Any:
    """An Arrow column of these pieces of the data."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    gather(data, starts, ends, offsets, out)
    return string_column(offsets, out)


def string_column(offsets: I64, out: U8) -> Any:
    """An Arrow column of large strings on these buffers."""
    return pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(out)
    )
