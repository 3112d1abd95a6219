"""Kernels that find lines and labels in bytes, and copy slices of them."""

import numpy as np

from hashembed.core.arrays import I32, I64, U8
from hashembed.core.njit import njit

NEWLINE, RETURN, SPACE, TAB = np.uint8(10), np.uint8(13), np.uint8(32), np.uint8(9)

_FNV = np.uint64(0x100000001B3)  # the prime of the hash FNV-1a
_HIGH = np.uint64(32)

_STRIDE = 32  # bytes compared at once
_COUNTED = 128  # bytes counted at once: what a byte can count


@njit(nogil=True)
def seek(data, at, end, one, other):
    """The position of the first `one` or `other` at or after `at`, or the end."""
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


@njit(native=True, nogil=True)
def count_byte(data: U8, byte: int) -> int:
    """How often the byte is in the data."""
    wanted, count, at = np.uint8(byte), np.int64(0), 0
    while at + _COUNTED <= len(data):
        part = data[at : at + _COUNTED]
        found = np.uint8(0)
        for i in range(_COUNTED):
            found += np.uint8(part[i] == wanted)
        count += found
        at += _COUNTED
    for i in range(at, len(data)):
        count += data[i] == wanted
    return int(count)


@njit(native=True, nogil=True)
def behind(data: U8, at: int, count: int) -> int:
    """The position `count` lines after `at`, or the end."""
    size = len(data)
    while count > 0 and at < size:
        at = min(seek(data, at, size, NEWLINE, NEWLINE) + 1, size)
        count -= 1
    return at


@njit(native=True, nogil=True)
def scan_lines(data: U8, starts: I64, ends: I64) -> int:
    """Where each line begins and ends, without its line end -> lines."""
    lines, at, size = 0, 0, len(data)
    while at < size:
        stop = seek(data, at, size, NEWLINE, NEWLINE)
        starts[lines] = at
        ends[lines] = stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        lines += 1
        at = stop + 1
    return lines


@njit(native=True, nogil=True)
def cut_labels(
    data: U8, prefix: U8, starts: I64, ends: I64, texts: I64, counts: I64, names: I64, stops: I64
) -> int:
    """Find the labels at the beginning of each line -> number of labels.

    The labels of all lines are consecutive: label j is data[names[j] : stops[j]], line i has
    counts[i] of them, and its text is data[texts[i] : ends[i]].
    """
    found, size = 0, len(prefix)
    for i in range(len(starts)):
        at, end = starts[i], ends[i]
        counts[i] = 0
        while True:
            while at < end and (data[at] == SPACE or data[at] == TAB):
                at += 1
            same = 0
            while same < size and at + same < end and data[at + same] == prefix[same]:
                same += 1
            if same < size:
                break
            at += size
            names[found] = at
            while at < end and data[at] != SPACE and data[at] != TAB:
                at += 1
            stops[found] = at
            found += 1
            counts[i] += 1
        texts[i] = at
    return found


@njit(native=True, nogil=True)
def cut_labelled_lines(data: U8, prefix: U8, label: I64, text: I64, ends: I64) -> int:
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


@njit(nogil=True)
def copy(data, start, end, out, to):
    """out[to:] = data[start:end]. LLVM knows that the indices of slices are not negative."""
    source = data[start:end]
    target = out[to : to + len(source)]
    for i in range(len(source)):
        target[i] = source[i]


@njit(native=True, nogil=True)
def gather(data: U8, starts: I64, ends: I64, offsets: I64, out: U8) -> None:
    """out[offsets[i] : offsets[i + 1]] = data[starts[i] : ends[i]]."""
    for i in range(len(starts)):
        copy(data, starts[i], ends[i], out, offsets[i])


@njit(nogil=True)
def _equal(data, one, other, size):
    same = 0
    while same < size and data[one + same] == data[other + same]:
        same += 1
    return same == size


@njit(native=True, nogil=True)
def number_slices(
    data: U8, starts: I64, ends: I64, salt: np.uint64, slots: I32, numbers: I32, firsts: I32
) -> int:
    """Number distinct slices in order of appearance -> how many there are.

    numbers[i] is the number of slice i, firsts[n] the first slice of number n. `slots` is a hash
    table: its size is a power of two, above the number of slices, and all of it is -1.
    """
    found, mask = 0, np.uint64(len(slots) - 1)
    for i in range(len(starts)):
        start, size = starts[i], ends[i] - starts[i]
        h = salt
        for j in range(start, start + size):
            h = (h ^ np.uint64(data[j])) * _FNV
        slot = (h ^ (h >> _HIGH)) & mask
        while True:
            n = slots[slot]
            if n < 0:
                n = np.int32(found)
                slots[slot] = n
                firsts[n] = i
                found += 1
                break
            first = firsts[n]
            if ends[first] - starts[first] == size and _equal(data, starts[first], start, size):
                break
            slot = (slot + np.uint64(1)) & mask
        numbers[i] = n
    return found
