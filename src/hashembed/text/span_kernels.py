"""The strings behind keys, in Numba: which piece of which text a key was made from.

The words come from the cutter that `text/key_kernels.py` hashes, `find_words`, and n-grams are
walked in the order of `fill_keys`, so that the i-th string of a document belongs to its i-th key.
"""

import numpy as np

from hashembed.core.njit import njit
from hashembed.hashing.scalars import u32
from hashembed.text.key_kernels import new_batch
from hashembed.text.unicode import EXPANSIONS, MARK
from hashembed.text.word_kernels import BATCH, decode, find_words

_ELLIPSIS = "…".encode()  # punctuation: where that is dropped, no n-gram has one of its own

_part = njit(error_model="numpy")


@_part
def _find_all_words(data, start, end, table, punctuation, batch, spans):
    """Where the words of a document begin and end, into `spans` (2, most): how many they are."""
    words, i = 0, start
    while i < end:
        i, m = find_words(data, i, end, table, punctuation, batch, 0)
        for j in range(m):
            spans[0, words + j], spans[1, words + j] = batch.spans[j], batch.spans[BATCH + j]
        words += m
    return words


@_part
def _write_code(code, folded, size):
    """One character's UTF-8 to folded[size] and on: the new size."""
    while True:
        folded[size] = code & u32(0xFF)
        code, size = code >> u32(8), size + 1
        if code == 0:
            return size


@_part
def _fold_word(data, i, end, table, folded, chars):
    """A word as the pipeline sees it, into `folded`: its size and the number of its characters.

    Column c of `chars` (3, most) says where character c lies: from where to where in the data, and
    where in `folded` it ends.
    """
    size, c = 0, 0
    while i < end:
        point, n = decode(data, i, end)
        code = table[point]
        count, row = 1, 0
        if code & u32(0xFF) == MARK:
            row = EXPANSIONS + 4 * np.int64(code >> u32(8))
            count = np.int64(table[row])
        for j in range(count):
            size = _write_code(table[row + 1 + j] if row else code, folded, size)
            chars[0, c], chars[1, c], chars[2, c] = i, i + n, size
            c += 1
        i += n
    return size, c


@_part
def _append(folded, begin, end, texts, size):
    """folded[begin:end] to texts[size] and on: `texts`, larger if need be, and the new size."""
    while size + (end - begin) + 2 > len(texts):  # and room for what one byte more needs
        larger = np.empty(2 * len(texts), np.uint8)
        larger[:size] = texts[:size]
        texts = larger
    texts[size : size + end - begin] = folded[begin:end]
    return texts, size + end - begin


@_part
def _shorten(texts, begin, size, most):
    """Cut the string at texts[begin:size] to about `most` bytes, with an ellipsis: the new size."""
    if size - begin <= most:
        return size
    size = begin + max(most - len(_ELLIPSIS), 0)
    while size > begin and texts[size] & 0xC0 == 0x80:
        size -= 1
    for byte in _ELLIPSIS:
        texts[size] = byte
        size += 1
    return size


@njit(cache=True, nogil=True, error_model="numpy")
def cut_ngrams(data, starts, ends, offsets, positions, table, punctuation, config, most):
    """The n-grams behind the keys at `positions`, which rise, of documents data[starts:ends].

    `offsets` say where each document's keys begin; `punctuation` and `config` are those of
    `fill_keys`. Returns a row for each position, (first word, order, whether it is of characters,
    begin, end) with bytes of the data, and the strings: their bytes, at most `most` each, and
    where each one ends.
    """
    lo, hi, sub_lo, sub_hi, _ = config
    found = np.zeros((len(positions), 5), np.int64)
    texts, size = np.empty(1 << 12, np.uint8), 0
    text_ends = np.zeros(len(positions), np.int64)
    batch, room, p = new_batch(1), 0, 0
    spans, chars = np.empty((2, 1), np.int64), np.empty((3, 1), np.int64)
    folded = np.empty(1, np.uint8)
    for d in range(len(starts)):
        if p == len(positions) or positions[p] >= offsets[d + 1]:
            continue
        length = ends[d] - starts[d]
        if length > room:  # folding makes at most three characters or bytes of one byte
            room = 2 * length
            spans, chars = np.empty((2, room), np.int64), np.empty((3, 3 * room), np.int64)
            folded = np.empty(3 * room, np.uint8)
        words = _find_all_words(data, starts[d], ends[d], table, punctuation, batch, spans)
        x, w = offsets[d], 0
        while p < len(positions) and positions[p] < offsets[d + 1]:
            for n in range(lo, min(hi, words - w) + 1):
                if p < len(positions) and x == positions[p]:
                    found[p] = w, n, 0, spans[0, w], spans[1, w + n - 1]
                    begin = size
                    for v in range(w, w + n):
                        if v > w:
                            texts[size] = 0x20
                            size += 1
                        end, _ = _fold_word(data, spans[0, v], spans[1, v], table, folded, chars)
                        texts, size = _append(folded, 0, end, texts, size)
                    size = _shorten(texts, begin, size, most)
                    text_ends[p] = size
                    p += 1
                x += 1
            if sub_hi:
                _, m = _fold_word(data, spans[0, w], spans[1, w], table, folded, chars)
                m += 2  # characters of '<word>'
                for i in range(m):
                    first = max(sub_lo, 1 if 0 < i < m - 1 else 2)
                    for n in range(first, min(sub_hi, m - i) + 1):
                        if p < len(positions) and x == positions[p]:
                            a, b = max(i, 1) - 1, min(i + n, m - 1) - 1
                            found[p] = w, n, 1, chars[0, a], chars[1, b - 1]
                            begin = size
                            if i == 0:
                                texts[size] = 0x3C
                                size += 1
                            at = chars[2, a - 1] if a else 0
                            texts, size = _append(folded, at, chars[2, b - 1], texts, size)
                            if i + n == m:
                                texts[size] = 0x3E
                                size += 1
                            size = _shorten(texts, begin, size, most)
                            text_ends[p] = size
                            p += 1
                        x += 1
            w += 1
    return found, texts[:size], text_ends
