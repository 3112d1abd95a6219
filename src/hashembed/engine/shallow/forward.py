"""The first half of a training batch: from tokens to distinct tokens to sums of hash vectors.

These functions are inlined into the kernel of `engine/shallow/kernel.py`, which lists the phases.
"""

import numpy as np

from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import DOCUMENTS_AHEAD, Shard, Step
from hashembed.engine.shallow.parts import hash_keys, hash_rows, hash_vector
from hashembed.engine.shallow.vectors import load, plus, store, zero_vector
from hashembed.hashing.locate import IDENTITY, INDEPENDENT, SHARED
from hashembed.hashing.scalars import fmix32, reduce_range, spread_key

LONGEST_AHEAD = 512  # keys of a document to prefetch; the hardware prefetcher finds the rest
KEYS_IN_LINE = 8

_EMPTY = np.uint32(0xFFFFFFFF)


@njit(inline="always")
def make_step(number, worker, workers, job):
    """Batch `number`; a worker owns the documents that begin in its share of the tokens."""
    batches, scratch = job.batches, job.scratch
    begins, shards = batches.begins, batches.shards[number]
    first = number * batches.batch_size
    last = min(first + batches.batch_size, len(batches.order))
    base, tokens = begins[first], begins[last] - begins[first]
    low = base + tokens * worker // workers
    high = base + tokens * (worker + 1) // workers
    begin = first
    while begin < last and begins[begin] < low:
        begin += 1
    stop = begin
    while stop < last and (begins[stop] < high or worker + 1 == workers):
        stop += 1
    size = last - first
    return Step(
        worker=worker,
        first=first,
        last=last,
        begin=begin,
        stop=stop,
        base=base,
        shards=shards,
        scale=np.uint64((shards << 32) // job.num_rows),
        rate=batches.rates[number],
        counts=scratch.counts[:size],
        runs=scratch.runs[: size + 1],
    )


@njit(inline="always")
def shard_views(number, step, scratch):
    """Shard `number` of the batch."""
    runs = step.runs
    low, high = np.int64(runs[0, number]), np.int64(runs[len(runs) - 1, number])
    return Shard(
        number=number,
        low=low,
        marks=scratch.marks[low:high],
        places=scratch.places[low:high],
        rows=scratch.distinct_rows[low : high + AHEAD],
        buckets=scratch.buckets[:, low : high + AHEAD],
        weights=scratch.weights[low:high],
        vectors=scratch.vectors[low:high],
        moved=scratch.moved[low:high],
        movers=scratch.movers[low : high + AHEAD],
        owners=scratch.owners[low:high],
        P_sums=scratch.P_sums[low:high],
        bin_begins=scratch.bin_begins[number],
    )


@njit(inline="always")
def shard_of(row, shards, scale, indexing):
    """Which shard a row of P belongs to: a range of rows if rows are hashes, else a hash of it."""
    if indexing >= IDENTITY:
        return reduce_range(fmix32(row), shards)
    return np.int64((np.uint64(row) * scale) >> np.uint64(32))


@njit(inline="always")
def count_tokens(step, job, indexing):
    """The rows of the tokens of this worker's documents, and how many of them each shard has."""
    documents, batches, scratch = job.documents, job.batches, job.scratch
    counts, shards, scale, stop = step.counts, step.shards, step.scale, step.stop
    seed, K = job.tables.seeds[0], job.num_rows
    for x in range(step.begin, stop):
        doc, at = batches.order[x], batches.begins[x] - step.base
        start, length = documents.starts[doc], documents.lengths[doc]
        later = batches.order[min(x + 2 * DOCUMENTS_AHEAD, stop - 1)]
        prefetch(documents.starts, later)
        prefetch(documents.lengths, later)
        later = batches.order[min(x + DOCUMENTS_AHEAD, stop - 1)]
        for y in range(0, min(documents.lengths[later], LONGEST_AHEAD), KEYS_IN_LINE):
            prefetch(documents.keys, documents.starts[later] + y)
        # Views that begin at 0: for `keys[start + y]` Numba would check if the index is negative.
        keys, rows = documents.keys[start : start + length], scratch.rows[at : at + length]
        hash_rows(keys, seed, K, indexing, rows)
        own = counts[x - step.first]
        for s in range(shards):
            own[s] = 0
        for y in range(length):
            own[np.uint64(shard_of(rows[y], shards, scale, indexing))] += 1


@njit(inline="always")
def sort_tokens(step, job, indexing):
    """Move the tokens of this worker's documents to their shards."""
    documents, batches, scratch = job.documents, job.batches, job.scratch
    counts, runs, cursor = step.counts, step.runs, scratch.cursors[step.worker]
    first, scale, shards = step.first, step.scale, step.shards
    documents_here = len(counts)
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
    for q in range(step.begin - first):
        for s in range(shards):
            cursor[s] += counts[q, s]
    for x in range(step.begin, step.stop):
        doc, at = batches.order[x], batches.begins[x] - step.base
        start, length = documents.starts[doc], documents.lengths[doc]
        keys, rows = documents.keys[start : start + length], scratch.rows[at : at + length]
        for s in range(shards):
            runs[x - first, s] = cursor[s]
        for y in range(length):
            s = np.uint64(shard_of(rows[y], shards, scale, indexing))
            to = cursor[s]
            cursor[s] = to + 1
            # Unless indexing is independent, buckets follow from the row, and so do equal vectors.
            scratch.marks[np.uint64(to)] = keys[y] if indexing == INDEPENDENT else rows[y]


@njit(error_model="numpy")
def find_distinct(marks, places, table, salt):
    """Move the distinct ones of `marks`, in order of appearance, to its front -> their number.

    places[x] becomes which of them marks[x] is. Probing is linear. An empty entry stands for the
    next place, and the mark has been put there already. So the search ends at an equal mark in
    either case, and no branch that could be mispredicted asks whether the mark is new.
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
def hash_vectors(used, shard, tables, columns, width, wide, k, importance):
    """The hash vectors of the distinct tokens of a shard, and their importance weights."""
    E, records, rows, buckets = tables.E, tables.records, shard.rows, shard.buckets
    weights, vectors = shard.weights, shard.vectors
    for u in range(used):
        if importance:
            prefetch(records, rows[u + AHEAD])
        for i in range(k):
            prefetch(E, buckets[i, u + AHEAD])
        row = rows[u]
        for c in range(0, columns - wide + 1, wide):
            store(vectors, u, c, hash_vector(E, records, row, buckets, u, c, wide, k, importance))
        for c in range(columns // wide * wide, columns, width):
            store(vectors, u, c, hash_vector(E, records, row, buckets, u, c, width, k, importance))
        if importance:
            for i in range(k):
                weights[u, i] = records[row, i]


@njit(inline="always")
def add_run(begin, end, places, vectors, column, width):
    """The sum of a part of the vectors of the tokens begin..end-1."""
    total = zero_vector(width)
    for x in range(begin, end):
        total = plus(total, load(vectors, places[x], column, width))
    return total


@njit(inline="always")
def add_runs(shard, runs, columns, width, wide, partial, first):
    """partial[first + q] = sum of the vectors of document q's tokens in the shard."""
    s, low, places, vectors = shard.number, shard.low, shard.places, shard.vectors
    for q in range(len(runs) - 1):
        begin, end = runs[q, s] - low, runs[q + 1, s] - low
        for c in range(0, columns - wide + 1, wide):
            store(partial, first + q, c, add_run(begin, end, places, vectors, c, wide))
        for c in range(columns // wide * wide, columns, width):
            store(partial, first + q, c, add_run(begin, end, places, vectors, c, width))


@njit(inline="always")
def embed_shard(number, step, job, columns, width, wide, k, importance, indexing):
    """What a shard adds to the document vectors."""
    tables, scratch, K, B = job.tables, job.scratch, job.num_rows, job.num_buckets
    shard = shard_views(number, step, scratch)
    marks = shard.marks
    used = find_distinct(marks, shard.places, scratch.found[step.worker], scratch.salt)
    scratch.distinct[number] = used
    code = IDENTITY if indexing == SHARED else indexing  # marks are rows then
    hash_keys(marks[:used], tables.seeds, K, B, k, code, shard.rows, shard.buckets)
    hash_vectors(used, shard, tables, columns, width, wide, k, importance)
    first = number * job.batches.batch_size
    add_runs(shard, step.runs, columns, width, wide, scratch.partial, first)
