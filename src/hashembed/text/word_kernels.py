"""Kernels that find the words of UTF-8 text, and hash those that the vectorised loop cannot.

If punctuation is kept, its runs are words too. Functions that need to know take `punctuation`:
`punctuation_table()`, or None if it is dropped. They are compiled once for each case, so dropping
punctuation costs nothing.

Text is read 64 bytes at a time, as masks of 64 bits in which words are runs of ones. A short ASCII
word goes into the batch unchanged; `text/key_kernels.py` folds and hashes many of them in one
vectorised loop. Any other word is folded with the table of `text/characters.py` and hashed here,
one character at a time.
"""

from typing import Any, NamedTuple

import numpy as np

from hashembed.core.arrays import I64, U8, U32, Bools
from hashembed.core.intrinsics import leading_zeros, trailing_zeros
from hashembed.core.njit import Intrinsic, njit
from hashembed.hashing.scalars import fmix32, murmur_absorb, murmur_scramble, u32, u64
from hashembed.hashing.spec import WORD_SEEDS
from hashembed.text.characters import EXPANSIONS, MARK, PAIRS, SEPARATOR

CHUNK = 64  # bytes in a mask
SHORT = 15  # bytes in the longest word that is hashed in the batch; longer ones are hashed here
BATCH = 256  # words
# The most words in a batch that has space for one more chunk: if punctuation is dropped, words have
# a separator between them; if it is kept, every byte may be a word.
MOST_DROPPED, MOST_KEPT = BATCH - CHUNK // 2, BATCH - CHUNK


Orders = tuple[int, int, int, int]  # lowest and highest of word n-grams, of character n-grams


class Rules(NamedTuple):
    """How text becomes keys, in the form that the kernels take."""

    table: U32  # `character_table()`: what becomes of each character
    punctuation: U8 | None  # `punctuation_table()`, or None where punctuation is dropped
    orders: Orders
    upper: int  # mask of `_lower` in `key_kernels.py`: the high bit of each byte, or 0
    repeats: int  # which of equal keys count: a code of `repeat_kernels.py`


class Batch(NamedTuple):
    """Words whose n-grams are not written yet, and buffers for the n-grams."""

    raw: U32  # (4 * BATCH,): rows of the first, second, ... four bytes, or rows of the two lanes
    sizes: U32  # (BATCH,): bytes, or SHORT + 1 for a word whose lanes are in `raw`
    spans: I64  # (2 * BATCH,): rows of where in the text a word begins and ends
    last: Bools  # (BATCH,): whether the document ends after this word
    lanes: U32  # (4 * BATCH,): rows of both lanes, and of both scrambled
    state: U32  # (2 * BATCH,): rows of what both n-gram lanes have absorbed
    keys: I64  # (orders * BATCH,): rows of the n-grams of each order


# Numba does not check unsigned indices for being negative.
_ROW, _ROW2, _ROW3 = (u64(n) for n in (BATCH, 2 * BATCH, 3 * BATCH))
# By the number of bytes of a character: the form of its UTF-8, and the range of code points.
_SHAPE = np.array([0, 0x80, 0xC0E0, 0xC0C0F0, 0xC0C0C0F8, 0], np.uint64)
_FORM = np.array([1, 0x00, 0x80C0, 0x8080E0, 0x808080F0, 1], np.uint64)
_PAYLOAD = np.array([0, 0x7F, 0x1F, 0x0F, 0x07, 0], np.uint64)
_LEAST = np.array([0, 0, 0x80, 0x800, 0x10000, 0], np.uint64)
_SPAN = np.array([0, 0x80, 0x780, 0xF800, 0x100000, 0], np.uint64)
# The first n of 16 bytes, in two masks.
_LOW = np.array([256 ** min(n, 8) - 1 for n in range(16)], np.uint64)
_HIGH = np.array([256 ** max(n - 8, 0) - 1 for n in range(16)], np.uint64)
_ALL = u64(2**64 - 1)
_WORD_A, _WORD_B = (u32(s) for s in WORD_SEEDS)

# Without reference counts of arrays, which would be an atomic operation in every call.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
inner = njit(**_OPTIONS)
inlined = njit(**_OPTIONS, forceinline=True)

_CODE = "hashembed.text.word_code"
_load_u64 = Intrinsic(_CODE, "load_u64")
_classify = Intrinsic(_CODE, "classify")


# --- characters -------------------------------------------------------------------------------


@inlined
def _continues(data, i, end):
    return i < end and data[i] & 0xC0 == 0x80


@inner
def _decode_carefully(data, i, end):
    """`decode` for bytes that may be malformed: U+FFFD for each maximal invalid part."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xC2 or b > 0xF4 or not _continues(data, i + 1, end):
        return 0xFFFD, 1
    c = np.int64(data[i + 1]) & 0x3F
    if b < 0xE0:
        return (b & 0x1F) << 6 | c, 2
    if b < 0xF0:
        c |= (b & 0x0F) << 6
        if c < 0x20 or 0x360 <= c < 0x380:  # overlong, surrogate
            return 0xFFFD, 1
        if not _continues(data, i + 2, end):
            return 0xFFFD, 2
        return c << 6 | np.int64(data[i + 2]) & 0x3F, 3
    c |= (b & 0x07) << 6
    if c < 0x10 or c >= 0x110:  # overlong, beyond Unicode
        return 0xFFFD, 1
    if not _continues(data, i + 2, end):
        return 0xFFFD, 2
    c = c << 6 | np.int64(data[i + 2]) & 0x3F
    if not _continues(data, i + 3, end):
        return 0xFFFD, 3
    return c << 6 | np.int64(data[i + 3]) & 0x3F, 4


@inlined
def _code_bytes(code):
    """The number of bytes in the UTF-8 of one character, from the first."""
    b = u64(code) & u64(0xFF)
    return u64(1) + u64(b >= u64(0xC0)) + u64(b >= u64(0xE0)) + u64(b >= u64(0xF0))


@inlined
def _assemble(x, n):
    """The character of n bytes at the low end of x, and whether it is well-formed."""
    point = (x & _PAYLOAD[n]) << u64(18) | (x & u64(0x3F00)) << u64(4)
    point |= (x & u64(0x3F0000)) >> u64(10) | (x & u64(0x3F000000)) >> u64(24)
    point >>= u64(24) - u64(6) * n
    formed = (x & _SHAPE[n] == _FORM[n]) & (point - _LEAST[n] < _SPAN[n])
    return point, formed & (point >> u64(11) != u64(0x1B))


@inlined
def decode(data, i, end):
    """The character at data[i] and the number of its bytes, all before `end`."""
    if i + 8 <= len(data):
        x = _load_u64(data, i)
        n = _code_bytes(x)
        point, formed = _assemble(x, n)
        if formed and i + np.int64(n) <= end:
            return np.int64(point), np.int64(n)
    return _decode_carefully(data, i, end)


@inlined
def absorb(state, code):
    """The state of both lanes after one more character: a, b, bytes not hashed yet, all bytes."""
    a, b, tail, size = state
    tail |= u64(code) << (u64(8) * (size & u64(3)))
    n = _code_bytes(code)
    if (size & u64(3)) + n >= u64(4):
        s = murmur_scramble(u32(tail))
        a, b, tail = murmur_absorb(a, s), murmur_absorb(b, s), tail >> u64(32)
    return a, b, tail, size + n


@inlined
def finish(state):
    """Both lanes of the absorbed characters."""
    a, b, tail, size = state
    s = murmur_scramble(u32(tail))
    return fmix32(u32(a ^ s ^ u32(size))), fmix32(u32(b ^ s ^ u32(size)))


@inlined
def is_mark(punctuation, point):
    """1 for punctuation that is kept, else 0."""
    if punctuation is None:
        return np.uint8(0)
    return punctuation[point]


@inlined
def folded(table, point):
    """What a character becomes: how many characters, and where in the table their UTF-8 begins.

    A separator becomes none.
    """
    code = table[point]
    if code & u32(0xFF) == MARK:
        row = EXPANSIONS + 4 * np.int64(code >> u32(8))
        return np.int64(table[row]), row + 1
    return np.int64(1), np.int64(point)


@inner
def fold_word(data, i, end, table, codes, places):
    """The characters of '<' + the word data[i:end] + '>', folded, into `codes` -> how many.

    Unless `places` is None, places[0, c] and places[1, c] become where in the data the original
    of character c begins and ends.
    """
    codes[0] = 0x3C
    m = 1
    while i < end:
        point, n = decode(data, i, end)
        count, first = folded(table, point)
        for j in range(count):
            codes[m] = table[first + j]
            if places is not None:
                places[0, m], places[1, m] = i, i + n
            m += 1
        i += n
    codes[m] = 0x3E
    return m + 1


@inner
def _hash_word(data, i, end, table, punctuation):
    """The word that begins at data[i]: its end and its lanes."""
    state = _WORD_A, _WORD_B, u64(0), u64(0)
    kind = np.uint8(0)
    if punctuation is not None:
        kind = is_mark(punctuation, decode(data, i, end)[0])
    while i < end:
        point, n = decode(data, i, end)
        if is_mark(punctuation, point) != kind:
            break
        count, first = folded(table, point)
        if count == 0:  # a separator
            break
        for j in range(count):
            state = absorb(state, table[first + j])
        i += n
    a, b = finish(state)
    return i, a, b


@inlined
def chunk(data, i, end, table, punctuation):
    """Up to 64 bytes from data[i] on: how many, and masks of words, of bytes outside ASCII, of the
    first bytes of characters, and of punctuation that is kept.

    A byte outside ASCII belongs to a word unless it is part of a well-formed separator. Separators
    are recognised by their lead byte; the bytes before it do not matter.
    """
    n = min(end - i, CHUNK)
    words, high, leads, chars, points = u64(0), u64(0), u64(0), u64(0), u64(0)
    if i + CHUNK < len(data):
        words, high, leads, chars, spaces = _classify(data, i)
        if punctuation is not None:
            points = ~(words | spaces)
    else:
        for j in range(n):
            b = data[i + j]
            words |= u64(b >= 0x80 or table[b] != SEPARATOR) << u64(j)
            high |= u64(b >= 0x80) << u64(j)
            leads |= u64(b >= 0xC2 and i + j + 1 < end) << u64(j)
            if punctuation is not None:
                points |= u64(b < 0x80 and punctuation[b]) << u64(j)
        if punctuation is not None:
            words &= ~points
    if n < CHUNK:
        inside = (u64(1) << u64(n)) - u64(1)
        words, high, leads, points = words & inside, high & inside, leads & inside, points & inside
    while leads:
        j = np.int64(trailing_zeros(leads))
        leads &= leads - u64(1)
        pair = np.int64(data[i + j] & 0x3F) << 1 | np.int64(data[i + j + 1] >> 5) & 1
        if table[PAIRS + pair] >> u32(data[i + j + 1] & 31) & u32(1):
            point, size = decode(data, i + j, end)
            mark = is_mark(punctuation, point)
            if table[point] == SEPARATOR or mark:
                if j + size > n:  # leave it to the next chunk
                    inside = (u64(1) << u64(j)) - u64(1)
                    return j, words & inside, high, chars, points & inside
                own = ((u64(1) << u64(size)) - u64(1)) << u64(j)
                words &= ~own
                if mark:
                    points |= own
    return n, words, high, chars, points


# --- words ------------------------------------------------------------------------------------


@inner
def _hash_run(data, i, chars, size, table, punctuation):
    """The lanes of the word of `size` bytes at data[i]; `chars` marks where characters begin."""
    state = _WORD_A, _WORD_B, u64(0), u64(0)
    known = chars & u64(1)
    while chars:
        at = trailing_zeros(chars)
        chars &= chars - u64(1)
        n = min(trailing_zeros(chars), size) - at
        point, formed = _assemble(_load_u64(data, i + np.int64(at)), min(n, u64(5)))
        code = table[point if formed else u64(0)]
        if not formed or code & u32(0xFF) == MARK:
            known = u64(0)
            break
        state = absorb(state, code)
    if known:
        return finish(state)
    _, a, b = _hash_word(data, i, i + np.int64(size), table, punctuation)
    return a, b


@inlined
def most_words(punctuation):
    """The most words in a batch that has space for one more chunk."""
    if punctuation is None:
        return MOST_DROPPED
    return MOST_KEPT


@inner
def find_words(data, i, end, table, punctuation, batch, m):
    """Add words from data[i] on to the m words of a batch -> where it stopped, the new m."""
    raw, sizes, spans = batch.raw, batch.sizes, batch.spans
    m, most = u64(m), u64(most_words(punctuation))
    while i < end and m <= most:
        n, words, high, chars, points = chunk(data, i, end, table, punctuation)
        after = i + n
        final = words  # the mask of the last word
        if punctuation is not None:
            final = words if words >> u64(n - 1) else points
        if after < end and final >> u64(n - 1):  # the last word may continue in the next chunk
            start = CHUNK - np.int64(leading_zeros(~final & (_ALL >> u64(CHUNK - n))))
            after = i + start
            words &= (u64(1) << u64(start)) - u64(1)
            if punctuation is not None:
                points &= (u64(1) << u64(start)) - u64(1)
            if start == 0:
                after, raw[m], raw[_ROW + m] = _hash_word(data, i, end, table, punctuation)
                sizes[m], spans[m], spans[_ROW + m] = SHORT + 1, i, after
                m += u64(1)
        if i + CHUNK + SHORT >= len(data):
            high, chars = _ALL, u64(0)  # do not read beyond the end
        while words | points:
            start = trailing_zeros(words | points)
            own = words
            if punctuation is not None:
                own = words if words >> start & u64(1) else points
            carried = own + (u64(1) << start)  # the lowest run of ones, as the bit after it
            size = trailing_zeros(carried) - start
            begin = i + np.int64(start)
            spans[m], spans[_ROW + m] = begin, begin + np.int64(size)
            run = own & ~carried
            if size > SHORT or run & high:
                known = (chars & run) >> start
                raw[m], raw[_ROW + m] = _hash_run(data, begin, known, size, table, punctuation)
                sizes[m] = SHORT + 1
            else:
                low = _load_u64(data, begin) & _LOW[size]
                top = _load_u64(data, begin + 8) & _HIGH[size]
                raw[m], raw[_ROW + m] = u32(low), u32(low >> u64(32))
                raw[_ROW2 + m], raw[_ROW3 + m] = u32(top), u32(top >> u64(32))
                sizes[m] = size
            if punctuation is None:
                words &= carried
            else:
                words, points = words & ~run, points & ~run
            m += u64(1)
        i = after
    return i, np.int64(m)
