"""Kernels for the strings behind keys: which piece of which text a key was made from.

The words come from `find_words`, the function that `text/key_kernels.py` hashes from, and n-grams
are visited in the order of `fill_keys`. So the i-th string of a document belongs to its i-th key.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, I64_2D, U8
from hashembed.core.njit import njit
from hashembed.hashing.scalars import u32
from hashembed.text.key_kernels import new_batch
from hashembed.text.word_kernels import BATCH, Rules, find_words, fold_word

NO_LIMIT = 2**62  # for `most_bytes`
_USUAL = 64  # bytes of a string: space that is enough for most

_ELLIPSIS = "…".encode()  # punctuation: where that is dropped, no n-gram has one of its own

_part = njit(error_model="numpy")


class Cut(NamedTuple):
    """The n-grams behind some keys."""

    found: I64_2D  # (keys, 5): first word, order, whether of characters, begin and end in the data
    texts: U8  # the strings, one after the other
    ends: I64  # (keys,): where in `texts` each string ends


# Numba's assignments of arrays to slices and of tuples to rows need its C library.
@_part
def _copy(source, size, target, at):
    """target[at : at + size] = source[:size]."""
    for i in range(size):
        target[at + i] = source[i]


@_part
def _set_row(found, p, row):
    """found[p] = row."""
    for i in range(len(row)):
        found[p, i] = row[i]


@_part
def _find_all_words(data, start, end, rules, batch):
    """Where the words of a document begin and end: (2, words)."""
    spans, words, i = np.empty((2, 64), np.int64), 0, start
    while i < end:
        i, m = find_words(data, i, end, rules.table, rules.punctuation, batch, 0)
        if words + m > spans.shape[1]:
            larger = np.empty((2, 2 * (words + m)), np.int64)
            for side in range(2):
                _copy(spans[side], words, larger[side], 0)
            spans = larger
        for j in range(m):
            spans[0, words + j], spans[1, words + j] = batch.spans[j], batch.spans[BATCH + j]
        words += m
    return spans[:, :words]


@_part
def _append(codes, begin, end, text, size):
    """UTF-8 of codes[begin:end] to text[size] and on -> `text`, larger if need be, the new size.

    Space is left for a byte more and for an ellipsis.
    """
    most = size + 4 * (end - begin) + 4
    if most > len(text):
        larger = np.empty(2 * most, np.uint8)
        _copy(text, size, larger, 0)
        text = larger
    for x in range(begin, end):
        code = codes[x]
        text[size] = code & u32(0xFF)
        size += 1
        code >>= u32(8)
        while code:
            text[size] = code & u32(0xFF)
            size += 1
            code >>= u32(8)
    return text, size


@_part
def _shorten(text, size, most):
    """Cut a string of `size` bytes to about `most`, with an ellipsis -> the new size."""
    if size <= most:
        return size
    size = max(most - len(_ELLIPSIS), 0)
    while size > 0 and text[size] & 0xC0 == 0x80:
        size -= 1
    for byte in _ELLIPSIS:
        text[size] = byte
        size += 1
    return size


@_part
def _join_words(data, spans, rules, codes, text):
    """The words at `spans` (2, n), folded and joined by spaces -> as `_append`."""
    size = 0
    for v in range(spans.shape[1]):
        if v > 0:
            text[size] = 0x20
            size += 1
        m = fold_word(data, spans[0, v], spans[1, v], rules.table, codes, None)
        text, size = _append(codes, 1, m - 1, text, size)
    return text, size


@_part
def _store(text, size, texts, used, ends, p):
    """Add string p to those before -> the bytes of all. What does not fit is not written."""
    if used + size <= len(texts):
        _copy(text, size, texts, used)
    ends[p] = used + size
    return used + size


@njit(native=True, nogil=True, error_model="numpy")
def _cut(
    documents: tuple[U8, I64, I64],
    offsets: I64,
    positions: I64,
    rules: Rules,
    most_bytes: int,
    cut: Cut,
) -> int:
    """Fill in a `Cut` -> the bytes of its strings; if `texts` is too small, they are incomplete."""
    data, starts, ends = documents
    found, texts, text_ends = cut
    lo, hi, sub_lo, sub_hi = rules.orders
    text, used = np.empty(1 << 12, np.uint8), 0
    codes, places = np.empty(64, np.uint32), np.empty((2, 64), np.int64)
    batch, p = new_batch(1), 0
    for d in range(len(starts)):
        if p == len(positions) or positions[p] >= offsets[d + 1]:
            continue
        spans = _find_all_words(data, starts[d], ends[d], rules, batch)
        words = spans.shape[1]
        for w in range(words):
            most = 3 * (spans[1, w] - spans[0, w]) + 2  # a character becomes at most three
            if most > len(codes):
                codes, places = np.empty(2 * most, np.uint32), np.empty((2, 2 * most), np.int64)
        x, w = offsets[d], 0
        while p < len(positions) and positions[p] < offsets[d + 1]:
            count = max(min(hi, words - w) - lo + 1, 0)  # n-grams that begin at word w
            while p < len(positions) and positions[p] < x + count:
                n = lo + positions[p] - x
                _set_row(found, p, (w, n, 0, spans[0, w], spans[1, w + n - 1]))
                text, size = _join_words(data, spans[:, w : w + n], rules, codes, text)
                size = _shorten(text, size, most_bytes)
                used = _store(text, size, texts, used, text_ends, p)
                p += 1
            x += count
            m = 0
            if sub_hi:
                m = fold_word(data, spans[0, w], spans[1, w], rules.table, codes, places)
            for i in range(m):
                first = max(sub_lo, 1 if 0 < i < m - 1 else 2)
                count = max(min(sub_hi, m - i) - first + 1, 0)  # pieces that begin at i
                while p < len(positions) and positions[p] < x + count:
                    n = first + positions[p] - x
                    a, b = max(i, 1), min(i + n, m - 1) - 1  # without '<' and '>'
                    _set_row(found, p, (w, n, 1, places[0, a], places[1, b]))
                    text, size = _append(codes, i, i + n, text, 0)
                    size = _shorten(text, size, most_bytes)
                    used = _store(text, size, texts, used, text_ends, p)
                    p += 1
                x += count
            w += 1
    return used


def cut_ngrams(
    documents: tuple[U8, I64, I64], offsets: I64, positions: I64, rules: Rules, most_bytes: int
) -> Cut:
    """The n-grams behind the keys at `positions`, which rise.

    `documents` is (data, starts, ends); `offsets` say where the keys of each document begin. A
    string of more than `most_bytes` is cut and ends with an ellipsis.
    """
    count, size = len(positions), _USUAL * len(positions)
    found, ends = np.zeros((count, 5), np.int64), np.zeros(count, np.int64)
    while True:
        cut = Cut(found, np.empty(size, np.uint8), ends)
        used = _cut(documents, offsets, positions, rules, most_bytes, cut)
        if used <= size:
            return Cut(found, cut.texts[:used].copy(), ends)
        size = used
