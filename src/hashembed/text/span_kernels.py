"""The strings behind keys, in Numba: which piece of which text a key was made from.

The words come from `find_words`, the function that `text/key_kernels.py` hashes from, and n-grams
are visited in the order of `fill_keys`. So the i-th string of a document belongs to its i-th key.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, U8
from hashembed.core.njit import njit
from hashembed.hashing.scalars import u32
from hashembed.text.key_kernels import new_batch
from hashembed.text.word_kernels import BATCH, find_words, fold_word

NO_LIMIT = 2**62  # for `most_bytes`

_ELLIPSIS = "…".encode()  # punctuation: where that is dropped, no n-gram has one of its own

_part = njit(error_model="numpy")


class Cut(NamedTuple):
    """The n-grams behind some keys."""

    found: I64  # (keys, 5): first word, order, whether it is of characters, begin, end in the data
    texts: U8  # the strings, one after the other
    ends: I64  # (keys,): where in `texts` each string ends


@_part
def _find_all_words(data, start, end, rules, batch):
    """Where the words of a document begin and end: (2, words)."""
    spans, words, i = np.empty((2, 64), np.int64), 0, start
    while i < end:
        i, m = find_words(data, i, end, rules.table, rules.punctuation, batch, 0)
        if words + m > spans.shape[1]:
            larger = np.empty((2, 2 * (words + m)), np.int64)
            larger[:, :words] = spans[:, :words]
            spans = larger
        for j in range(m):
            spans[0, words + j], spans[1, words + j] = batch.spans[j], batch.spans[BATCH + j]
        words += m
    return spans[:, :words]


@_part
def _append(codes, begin, end, texts, size):
    """UTF-8 of codes[begin:end] to texts[size] and on -> `texts`, larger if need be, the new size.

    Space is left for a byte more and for an ellipsis.
    """
    most = size + 4 * (end - begin) + 4
    if most > len(texts):
        larger = np.empty(2 * most, np.uint8)
        larger[:size] = texts[:size]
        texts = larger
    for x in range(begin, end):
        code = codes[x]
        texts[size] = code & u32(0xFF)
        size += 1
        code >>= u32(8)
        while code:
            texts[size] = code & u32(0xFF)
            size += 1
            code >>= u32(8)
    return texts, size


@_part
def _shorten(texts, begin, size, most):
    """Cut the string texts[begin:size] to about `most` bytes, with an ellipsis -> the new size."""
    if size - begin <= most:
        return size
    size = begin + max(most - len(_ELLIPSIS), 0)
    while size > begin and texts[size] & 0xC0 == 0x80:
        size -= 1
    for byte in _ELLIPSIS:
        texts[size] = byte
        size += 1
    return size


@_part
def _append_words(data, spans, rules, codes, texts, size):
    """The words at `spans` (2, n), folded and joined by spaces, as `_append` does it."""
    for v in range(spans.shape[1]):
        if v > 0:
            texts[size] = 0x20
            size += 1
        m = fold_word(data, spans[0, v], spans[1, v], rules.table, codes, None)
        texts, size = _append(codes, 1, m - 1, texts, size)
    return texts, size


@njit(cache=True, nogil=True, error_model="numpy")
def cut_ngrams(documents, offsets, positions, rules, most_bytes):
    """The n-grams behind the keys at `positions`, which rise -> `Cut`.

    `documents` is (data, starts, ends); `offsets` say where the keys of each document begin. A
    string of more than `most_bytes` is cut and ends with an ellipsis.
    """
    data, starts, ends = documents
    lo, hi, sub_lo, sub_hi = rules.orders
    found, text_ends = np.zeros((len(positions), 5), np.int64), np.zeros(len(positions), np.int64)
    texts, size = np.empty(1 << 12, np.uint8), 0
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
                n, begin = lo + positions[p] - x, size
                found[p] = w, n, 0, spans[0, w], spans[1, w + n - 1]
                texts, size = _append_words(data, spans[:, w : w + n], rules, codes, texts, size)
                size = _shorten(texts, begin, size, most_bytes)
                text_ends[p] = size
                p += 1
            x += count
            m = 0
            if sub_hi:
                m = fold_word(data, spans[0, w], spans[1, w], rules.table, codes, places)
            for i in range(m):
                first = max(sub_lo, 1 if 0 < i < m - 1 else 2)
                count = max(min(sub_hi, m - i) - first + 1, 0)  # pieces that begin at i
                while p < len(positions) and positions[p] < x + count:
                    n, begin = first + positions[p] - x, size
                    a, b = max(i, 1), min(i + n, m - 1) - 1  # without '<' and '>'
                    found[p] = w, n, 1, places[0, a], places[1, b]
                    texts, size = _append(codes, i, i + n, texts, size)
                    size = _shorten(texts, begin, size, most_bytes)
                    text_ends[p] = size
                    p += 1
                x += count
            w += 1
    return Cut(found, texts[:size], text_ends)
