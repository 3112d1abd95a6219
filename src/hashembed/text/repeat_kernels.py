"""Kernels that leave out repeated keys of a document. `text/repeats.py` says which count."""

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.njit import njit

ALL, DAMP, ONCE = 0, 1, 2  # `Rules.repeats`


@njit(error_model="numpy")
def table_of(most):
    """A table for documents of up to `most` keys: pairs of a key and (document << 32 | count)."""
    size = 2
    while size < 2 * most:
        size *= 2
    return np.zeros(2 * size, np.int64)


@njit(_nrt=False, error_model="numpy")
def keep_counted(keys, begin, end, o, document, repeats, table):
    """Move the keys begin..end-1 that count to keys[o], keys[o + 1], ... -> the new o.

    document: a number from 1 that the table has not seen.
    """
    last = len(table) - 2
    for i in range(begin, end):
        key = keys[i]
        h = (key << 1) & last
        while table[h] != key and table[h + 1] >> 32 == document:
            h = (h + 2) & last
        if table[h + 1] >> 32 != document:
            table[h], table[h + 1] = key, document << 32
        table[h + 1] += 1
        count = table[h + 1] & 0xFFFFFFFF
        if count == 1 or (repeats == DAMP and count & (count - 1) == 0):
            keys[o] = key
            o += 1
    return o


@njit(native=True, nogil=True, error_model="numpy")
def drop_repeats(
    keys: I64, offsets: I64, first: int, stop: int, repeats: int, lengths: I64
) -> None:
    """Move the keys of documents first..stop-1 that count to where the first of them begins.

    lengths: out, how many each of these documents keeps.
    """
    most = 0
    for d in range(first, stop):
        most = max(most, offsets[d + 1] - offsets[d])
    table = table_of(most)
    o = offsets[first]
    for d in range(first, stop):
        before = o
        o = keep_counted(keys, offsets[d], offsets[d + 1], o, d - first + 1, repeats, table)
        lengths[d] = o - before
