"""The first half of a training batch: from tokens to distinct tokens to sums of hash vectors.

Inlined into the kernel of `engine/shallow/kernel.py`, which says how the pieces play together.
"""

import numpy as np

from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import DOCUMENTS_AHEAD
from hashembed.engine.shallow.parts import hash_vector
from hashembed.engine.shallow.vectors import load_row, plus, store_row, zero_vector
from hashembed.hashing.locate import IDENTITY, INDEPENDENT, bucket_of, row_of
from hashembed.hashing.scalars import fmix32, reduce_range, spread_key

LONGEST_AHEAD = 512  # keys of a document that are asked for; the rest the processor sees coming
KEYS_IN_LINE = 8

_EMPTY = np.uint32(0xFFFFFFFF)


@njit(inline="always")
def shard_of(row, shards, scale, indexing):
    """Which shard a row of P belongs to: a range of rows, unless they come as they please."""
    if indexing >= IDENTITY:
        return reduce_range(fmix32(row), shards)
    return np.int64((np.uint64(row) * scale) >> np.uint64(32))


@njit(inline="always")
def count_tokens(
    begin, stop, first, base, tables, documents, batches, scratch, counts, scale, K, indexing
):
    """Rows of the tokens of documents begin..stop, and how many of them each shard has."""
    seed, shards = tables.seeds[0], counts.shape[1]
    for x in range(begin, stop):
        doc, at = batches.order[x], batches.begins[x] - base
        start, length = documents.starts[doc], documents.lengths[doc]
        later = batches.order[min(x + 2 * DOCUMENTS_AHEAD, stop - 1)]
        prefetch(documents.starts, later)
        prefetch(documents.lengths, later)
        later = batches.order[min(x + DOCUMENTS_AHEAD, stop - 1)]
        for y in range(0, min(documents.lengths[later], LONGEST_AHEAD), KEYS_IN_LINE):
            prefetch(documents.keys, documents.starts[later] + y)
        # Views that begin at 0: of `keys[start + y]` Numba would have to ask if it is negative.
        keys, rows = documents.keys[start : start + length], scratch.rows[at : at + length]
        for y in range(length):
            rows[y] = np.uint32(row_of(keys[y], seed, K, indexing))
        own = counts[x - first]
        for s in range(shards):
            own[s] = 0
        for y in range(length):
            own[np.uint64(shard_of(rows[y], shards, scale, indexing))] += 1


@njit(inline="always")
def sort_tokens(
    begin, stop, first, base, documents, batches, scratch, counts, runs, cursor, scale, indexing
):
    """Bring the tokens of documents begin..stop to their shards."""
    documents_here, shards = counts.shape
    for s in range(shards):
        cursor[s] = 0
    for q in range(documents_here):
        for s in range(shards):
            cursor[s] += counts[q, s]
    at = 0
    for s in range(shards):
        runs[0, s] = at
        at += cursor[s]
        runs[documents_here, s] = at
        cursor[s] = at - cursor[s]
    for q in range(begin - first):
        for s in range(shards):
            cursor[s] += counts[q, s]
    for x in range(begin, stop):
        doc, at = batches.order[x], batches.begins[x] - base
        start, length = documents.starts[doc], documents.lengths[doc]
        keys, rows = documents.keys[start : start + length], scratch.rows[at : at + length]
        for s in range(shards):
            runs[x - first, s] = cursor[s]
        for y in range(length):
            s = np.uint64(shard_of(rows[y], shards, scale, indexing))
            to = cursor[s]
            cursor[s] = to + 1
            # Without lanes of its own a bucket follows from the row, and so do equal vectors.
            scratch.marks[np.uint64(to)] = keys[y] if indexing == INDEPENDENT else rows[y]


@njit(inline="always")
def find_distinct(marks, places, table, salt):
    """The distinct ones of `marks`, in order of appearance, to its front -> how many there are.

    `places` becomes which of them each one is. The table is probed one entry after the other. An
    empty entry stands for the next place, where the mark is already: so a mark is found in both
    cases, and whether it is new is no branch that could be mispredicted.
    """
    bits = 1
    while (1 << bits) < 2 * len(marks):
        bits += 1
    last, shift = np.uint64((1 << bits) - 1), np.uint64(64 - bits)
    for e in range(1 << bits):
        table[e] = _EMPTY
    used = np.uint32(0)
    for x in range(len(marks)):
        mark = marks[x]
        marks[used] = mark
        e = spread_key(mark, salt) >> shift
        place = min(table[e], used)
        while marks[place] != mark:
            e = (e + np.uint64(1)) & last
            place = min(table[e], used)
        table[e] = place
        places[x] = place
        used = np.uint32(used + np.uint32(place == used))
    return np.int64(used)


@njit(inline="always")
def hash_distinct(marks, rows, buckets, tables, K, B, k, indexing):
    """Rows and buckets of distinct tokens.

    Loops over tokens are innermost and write one array each: that is what LLVM vectorises.
    """
    seed = tables.seeds[0]
    for u in range(len(marks)):
        if indexing == INDEPENDENT:
            rows[u] = np.uint32(row_of(marks[u], seed, K, indexing))
        else:
            rows[u] = np.uint32(marks[u])
    for i in range(k):
        own, seed = buckets[i], tables.seeds[i + 1]
        for u in range(len(marks)):
            own[u] = np.uint32(bucket_of(i, marks[u], rows[u], seed, B, indexing))


@njit(inline="always")
def hash_vectors(used, rows, buckets, tables, weights, vectors, d, k, importance):
    """vectors[u] = the hash vector of distinct token u, and weights[u] its importance weights."""
    E, records = tables.E, tables.records
    for u in range(used):
        if importance:
            prefetch(records, rows[u + AHEAD])
        for i in range(k):
            prefetch(E, buckets[i, u + AHEAD])
        store_row(vectors, u, hash_vector(E, records, rows[u], buckets, u, d, k, importance))
        if importance:
            for i in range(k):
                weights[u, i] = records[rows[u], i]


@njit(inline="always")
def add_runs(runs, s, low, places, vectors, d, partial):
    """partial[q] = sum of the vectors of document q's tokens in shard s."""
    for q in range(len(runs) - 1):
        h = zero_vector(d)
        for x in range(runs[q, s] - low, runs[q + 1, s] - low):
            h = plus(h, load_row(vectors, places[x], d))
        store_row(partial, q, h)


@njit(inline="always")
def embed_shard(s, runs, tables, scratch, table, K, B, d, k, importance, indexing):
    """What shard s adds to the document vectors."""
    low, high = runs[0, s], runs[len(runs) - 1, s]
    marks, places = scratch.marks[low:high], scratch.places[low:high]
    used = find_distinct(marks, places, table, scratch.salt)
    scratch.distinct[s] = used
    # Beyond the distinct tokens there is something, or nothing yet, that may be asked for in vain.
    rows = scratch.distinct_rows[low : low + used + AHEAD]
    buckets = scratch.buckets[:, low : low + used + AHEAD]
    hash_distinct(marks[:used], rows, buckets, tables, K, B, k, indexing)
    weights, vectors = scratch.weights[low:high], scratch.vectors[low:high]
    hash_vectors(used, rows, buckets, tables, weights, vectors, d, k, importance)
    add_runs(runs, s, low, places, vectors, d, scratch.partial[s])
