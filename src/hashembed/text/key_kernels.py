"""Kernels from text to keys: they hash words in batches and write the keys of their n-grams.

The unit of work is a *segment*: a document, or a part of a long one between two separators.
`count_words` counts what each segment holds, `lay_out` decides where its keys go, and `fill_keys`
writes them. `count_words` and `fill_keys` take a range of segments, so any number of threads can
share the work. `text/word_kernels.py` finds the words.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, U8, U32, Bools
from hashembed.core.intrinsics import bit_count
from hashembed.core.njit import njit
from hashembed.hashing.scalars import fmix32, murmur_absorb, murmur_scramble, pack, u32, u64
from hashembed.hashing.spec import NGRAM_SEEDS, SUBWORD_SEEDS, WORD_SEEDS
from hashembed.text.characters import SEPARATOR
from hashembed.text.repeat_kernels import ALL, keep_counted, table_of
from hashembed.text.word_kernels import (
    BATCH,
    SHORT,
    Batch,
    Orders,
    Rules,
    absorb,
    chunk,
    decode,
    find_words,
    finish,
    fold_word,
    folded,
    inlined,
    inner,
    is_mark,
    most_words,
)


class Segments(NamedTuple):
    """Text, cut: segment s is data[starts[s] : ends[s]]."""

    data: U8
    starts: I64  # (segments,)
    ends: I64  # (segments,)
    last: Bools  # (segments,): whether the document ends there


_ROW, _ROW2, _ROW3 = BATCH, 2 * BATCH, 3 * BATCH
_WORD_A, _WORD_B = (u32(s) for s in WORD_SEEDS)
_NGRAM_A, _NGRAM_B = (u32(s) for s in NGRAM_SEEDS)
_SUB_A, _SUB_B = (u32(s) for s in SUBWORD_SEEDS)

_entry = njit(native=True, nogil=True, error_model="numpy")
_outer = njit(error_model="numpy")


# --- a batch of words -------------------------------------------------------------------------


@inlined
def _lower(x, upper):
    """Four ASCII bytes, in lower case where `upper` has the high bit of the byte."""
    is_upper = (x + u32(0x3F3F3F3F)) & ~(x + u32(0x25252525)) & upper
    return u32(x | (is_upper >> u32(2)))


@inlined
def _short_lane(seed, s0, s1, s2, s3, size):
    """One lane of a word of up to 15 bytes, given its scrambled blocks."""
    h1 = murmur_absorb(seed, s0)
    h2 = murmur_absorb(h1, s1)
    h3 = murmur_absorb(h2, s2)
    h = u32(seed ^ s0) if size < 4 else u32(h1 ^ s1)
    h = h if size < 8 else u32(h2 ^ s2)
    h = h if size < 12 else u32(h3 ^ s3)
    return fmix32(u32(h ^ size))


@inner
def _hash_batch(raw, sizes, m, upper, lanes, state):
    """The lanes of m words, the scrambled lanes, and the n-gram state after each word."""
    for i in range(m):
        size = sizes[i]
        s0 = murmur_scramble(_lower(raw[i], upper))
        s1 = murmur_scramble(_lower(raw[_ROW + i], upper))
        s2 = murmur_scramble(_lower(raw[_ROW2 + i], upper))
        s3 = murmur_scramble(_lower(raw[_ROW3 + i], upper))
        a = _short_lane(_WORD_A, s0, s1, s2, s3, size)
        b = _short_lane(_WORD_B, s0, s1, s2, s3, size)
        a = a if size <= SHORT else raw[i]
        b = b if size <= SHORT else raw[_ROW + i]
        sa, sb = murmur_scramble(a), murmur_scramble(b)
        lanes[i], lanes[_ROW + i], lanes[_ROW2 + i], lanes[_ROW3 + i] = a, b, sa, sb
        state[i], state[_ROW + i] = murmur_absorb(_NGRAM_A, sa), murmur_absorb(_NGRAM_B, sb)


@inner
def _hash_ngrams(lanes, state, m, lo, hi, keys):
    """The keys of the n-grams that begin at each of m words; document ends are ignored."""
    if lo == 1:
        for i in range(m):
            keys[i] = pack(lanes[i], lanes[_ROW + i])
    for n in range(2, hi + 1):
        row = max(n - lo, 0) * BATCH
        for i in range(m - n + 1):
            a = murmur_absorb(state[i], lanes[_ROW2 + n - 1 + i])
            b = murmur_absorb(state[_ROW + i], lanes[_ROW3 + n - 1 + i])
            state[i], state[_ROW + i] = a, b
            keys[row + i] = pack(fmix32(u32(a ^ u32(4 * n))), fmix32(u32(b ^ u32(4 * n))))


@inner
def _subword_keys(codes, m, lo, hi, out, o):
    """Keys of all pieces of lo..hi of m characters, except '<' and '>' alone -> the new o."""
    for i in range(m):
        state = _SUB_A, _SUB_B, u64(0), u64(0)
        for n in range(1, min(hi, m - i) + 1):
            state = absorb(state, codes[i + n - 1])
            if n >= lo and (n > 1 or 0 < i < m - 1):
                a, b = finish(state)
                out[o] = pack(a, b)
                o += 1
    return o


@inner
def _spread(keys, i, count, out, o, step):
    """out[o], out[o + step], ... = keys[i], keys[i + 1], ..."""
    for j in range(count):
        out[o] = keys[i + j]
        o += step


@inner
def _keep(batch, first, m):
    """Move the words from `first` on to the front of a batch of m."""
    raw, sizes, spans, last = batch.raw, batch.sizes, batch.spans, batch.last
    for i in range(m - first):
        for row in range(0, len(raw), BATCH):
            raw[row + i] = raw[row + first + i]
        sizes[i], last[i] = sizes[first + i], last[first + i]
        spans[i], spans[BATCH + i] = spans[first + i], spans[BATCH + first + i]
    for i in range(m - first, m):
        last[i] = False


@_outer
def _write(data, rules, batch, codes, m, emit, out, o):
    """All keys of the first `emit` of m words, from out[o] on; the other words stay.

    Returns the new o and `codes`, a buffer for the characters of a word, replaced by a larger one
    where a word needs it.
    """
    lo, hi, sub_lo, sub_hi = rules.orders
    _hash_batch(batch.raw, batch.sizes, m, u32(rules.upper), batch.lanes, batch.state)
    _hash_ngrams(batch.lanes, batch.state, m, lo, hi, batch.keys)
    keys, spans, width = batch.keys, batch.spans, hi - lo + 1
    i = 0
    while i < emit:
        stop = i + 1  # the end of the document, or beyond the batch
        while stop <= m and not batch.last[stop - 1]:
            stop += 1
        full = i if sub_hi else max(i, min(emit, stop - hi + 1))  # words with all orders
        for n in range(width):
            _spread(keys, u64(n * BATCH + i), u64(full - i), out, u64(o + n), u64(width))
        o += (full - i) * width
        i = min(emit, stop)
        for j in range(full, i):
            for n in range(min(hi, stop - j) - lo + 1):
                out[o] = keys[n * BATCH + j]
                o += 1
            if sub_hi:
                most = 3 * (spans[BATCH + j] - spans[j]) + 2
                if most > len(codes):
                    codes = np.empty(2 * most, np.uint32)
                size = fold_word(data, spans[j], spans[BATCH + j], rules.table, codes, None)
                o = _subword_keys(codes, size, sub_lo, sub_hi, out, o)
    _keep(batch, emit, m)
    return o, codes


@_outer
def new_batch(orders):
    """Memory for a batch of words and their n-grams of this many orders."""
    # One allocation: arrays at multiples of 4 KiB from each other make loads wait for stores.
    rows = np.empty((15 + 2 * orders) * BATCH, np.uint32)
    return Batch(
        rows[: 4 * BATCH],
        rows[4 * BATCH : 5 * BATCH],
        rows[5 * BATCH : 9 * BATCH].view(np.int64),
        np.zeros(BATCH, np.bool_),
        rows[9 * BATCH : 13 * BATCH],
        rows[13 * BATCH : 15 * BATCH],
        rows[15 * BATCH :].view(np.int64),
    )


@_entry
def fill_keys(segments: Segments, first: int, stop: int, rules: Rules, out: I64, o: int) -> None:
    """Write the keys of the segments first..stop-1, from out[o] on."""
    batch = new_batch(rules.orders[1] - rules.orders[0] + 1)
    _fill(segments, first, stop, rules, batch, out, o)


@_outer
def _fill(segments, first, stop, rules, batch, out, o):
    """`fill_keys` with the memory of a batch, which is empty before and after."""
    data, starts, ends, last = segments
    table, punctuation = rules.table, rules.punctuation
    hi, most = rules.orders[1], most_words(punctuation)
    codes = np.empty(64, np.uint32)
    s, i, m = first, starts[first], 0
    own, limit = 2**62, stop
    while own:  # words of these segments whose n-grams are not written yet
        while s < limit and m <= most:
            i, m = find_words(data, i, ends[s], table, punctuation, batch, m)
            if i < ends[s]:
                continue
            if last[s] and m:
                batch.last[m - 1] = True
            own = m if s == stop - 1 else own
            if s >= stop - 1 and not last[s]:
                limit = s + 2  # n-grams extend into the next segment
            s += 1
            i = starts[s] if s < limit else i
        emit = own if s == limit else min(own, m - hi + 1)
        o, codes = _write(data, rules, batch, codes, m, emit, out, o)
        own, m = own - emit, m - emit


# --- segments ---------------------------------------------------------------------------------


@_entry
def cut_documents(starts: I64, ends: I64, table: U32, size: int, segments: Segments) -> int:
    """Documents as segments of at least `size` bytes that begin at separators -> how many."""
    data, a, b, last = segments
    m = 0
    for d in range(len(starts)):
        begin, i = starts[d], starts[d] + size
        while i < ends[d]:
            point, _ = decode(data, i, ends[d])
            if table[point] == SEPARATOR:
                a[m], b[m], last[m] = begin, i, False
                begin, i, m = i, i + size, m + 1
            else:
                i += 1
        a[m], b[m], last[m] = begin, ends[d], True
        m += 1
    return m


@inner
def _ngrams(words, lo, hi):
    """The number of n-grams of orders lo..hi among some words."""
    orders = max(min(hi, words) - lo + 1, 0)
    return orders * (words + 1) - orders * (2 * lo + orders - 1) // 2


@inner
def _pieces(data, i, end, table, punctuation, lo, hi):
    """The number of character n-grams in the words from data[i] on."""
    total, chars, kind = 0, 0, np.uint8(0)
    while i <= end:
        point, n, count = 0, 1, 0
        if i < end:
            point, n = decode(data, i, end)
            count, _ = folded(table, point)
        mark = is_mark(punctuation, point)
        if count == 0 or mark != kind:  # a separator, or the end of a run
            if chars:
                total += _ngrams(chars + 2, lo, hi) - 2 * (lo == 1)
            chars = 0
        kind = mark
        chars += count
        i += n
    return total


@inlined
def _words(data, i, end, table, punctuation):
    """The number of words from data[i] on."""
    total, inside, within = u64(0), u64(0), u64(0)
    while i < end:
        n, mask, _, _, points = chunk(data, i, end, table, punctuation)
        total += bit_count(mask & ~(mask << u64(1) | inside))
        inside = mask >> u64(n - 1) & u64(1)
        if punctuation is not None:
            total += bit_count(points & ~(points << u64(1) | within))
            within = points >> u64(n - 1) & u64(1)
        i += n
    return np.int64(total)


@_entry
def count_words(
    segments: Segments, first: int, stop: int, rules: Rules, words: I64, pieces: I64
) -> None:
    """The words, and with subwords the character n-grams, of each of segments first..stop-1."""
    data, starts, ends, _ = segments
    table, punctuation = rules.table, rules.punctuation
    _, _, sub_lo, sub_hi = rules.orders
    for s in range(first, stop):
        words[s] = _words(data, starts[s], ends[s], table, punctuation)
        if sub_hi:
            pieces[s] = _pieces(data, starts[s], ends[s], table, punctuation, sub_lo, sub_hi)


@_entry
def lay_out(
    words: I64, pieces: I64, last: Bools, orders: Orders, offsets: I64, places: I64
) -> None:
    """Where the keys of each document and of each segment begin, from offsets[0] on."""
    lo, hi, _, _ = orders
    first, total, d = 0, 0, 0
    for s in range(len(words)):
        total += words[s]
        if last[s]:
            o, left = offsets[d] + _ngrams(total, lo, hi), total
            for t in range(first, s + 1):
                places[t] = o - _ngrams(left, lo, hi)
                left -= words[t]
                o += pieces[t]
            first, total, d = s + 1, 0, d + 1
            offsets[d] = o


@_outer
def text_keys(data, end, rules, batch, keys):
    """The keys of the one text data[:end], for kernels that need no more -> their number.

    If `keys` is too small, nothing is written: call it again with as much space as it returns.
    It is fastest if the data has 80 bytes more than the text (see `text/few_texts.py`).
    batch: from `new_batch`. It may serve many texts.
    """
    table, punctuation = rules.table, rules.punctuation
    lo, hi, sub_lo, sub_hi = rules.orders
    count = _ngrams(_words(data, 0, end, table, punctuation), lo, hi)
    if sub_hi:
        count += _pieces(data, 0, end, table, punctuation, sub_lo, sub_hi)
    if 0 < count <= len(keys):
        bounds = np.zeros(2, np.int64)
        bounds[1] = end
        text = Segments(data, bounds[:1], bounds[1:], np.ones(1, np.bool_))
        _fill(text, 0, 1, rules, batch, keys, 0)
        if rules.repeats != ALL:
            count = keep_counted(keys, 0, count, 0, 1, rules.repeats, table_of(count))
    return count
