"""The second half of a training batch: from document vectors to errors, gradients and updates.

These functions are inlined into the kernel of `engine/shallow/kernel.py`, which lists the phases.
"""

import numpy as np

from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import DOCUMENTS_AHEAD
from hashembed.engine.shallow.forward import shard_views
from hashembed.engine.shallow.parts import (
    ONE,
    ZERO,
    adagrad_factor,
    add_scores,
    errors_to_gradient,
    largest_error,
    sigmoid_error,
    softmax_error,
    weighted_sigmoid_error,
)
from hashembed.engine.shallow.vectors import (
    dot,
    load_row,
    plus,
    plus_scaled,
    store_row,
    zero_vector,
)

NOBODYS = np.uint32(0xFFFFFFFF)  # no row of P


@njit(inline="always")
def errors_of(step, job, d):
    """The losses of this worker's documents, and the gradients of their vectors."""
    tables, documents, batches, scratch = job.tables, job.documents, job.batches, job.scratch
    order, offsets, weights = batches.order, documents.label_offsets, documents.weights
    multilabel, stop = job.multilabel, step.stop
    for x in range(step.begin, stop):
        doc, q = order[x], x - step.first
        prefetch(offsets, order[min(x + 2 * DOCUMENTS_AHEAD, stop - 1)])
        prefetch(weights, order[min(x + DOCUMENTS_AHEAD, stop - 1)])
        prefetch(documents.labels, offsets[order[min(x + DOCUMENTS_AHEAD, stop - 1)]])
        h, z = zero_vector(d), scratch.z[q]
        for s in range(step.shards):
            h = plus(h, load_row(scratch.partial[s], q, d))
        store_row(scratch.h, q, h)
        add_scores(h, tables.W, tables.bias, d, z)
        l0, l1 = offsets[doc], offsets[doc + 1]
        if multilabel and documents.class_weights.shape[1]:
            loss = weighted_sigmoid_error(z, documents.labels[l0:l1], documents.class_weights)
        elif multilabel:
            loss = sigmoid_error(z, documents.labels[l0:l1])
        else:
            loss = softmax_error(z, documents.labels[l0])
        batches.losses[x] = loss * weights[doc]
        for c in range(len(z)):
            z[c] *= weights[doc]
        store_row(scratch.g, q, errors_to_gradient(z, tables.W, d))
        scratch.learned[q] = largest_error(z) < job.margin


@njit(inline="always")
def sum_gradients(shard, step, scratch, d):
    """vectors[u] = sum of the gradients of the documents that hold the distinct token u.

    Learned documents do not count. Returns the number of `movers`, the tokens that some other
    document holds.
    """
    s, low, runs, used = shard.number, shard.low, step.runs, scratch.distinct[shard.number]
    places, vectors, moved, movers = shard.places, shard.vectors, shard.moved, shard.movers
    for u in range(used):
        moved[u] = 0
        store_row(vectors, u, zero_vector(d))
    for q in range(len(runs) - 1):
        if scratch.learned[q]:
            continue
        g = load_row(scratch.g, q, d)
        for x in range(runs[q, s] - low, runs[q + 1, s] - low):
            u = places[x]
            moved[u] = 1
            store_row(vectors, u, plus(load_row(vectors, u, d), g))
    count = 0
    for u in range(used):
        movers[count] = u
        count += moved[u]
    return count


@njit(inline="always")
def update_records(count, shard, tables, d, k, rate, epsilon):
    """Update rows of P, which only this shard holds; slots sum the gradients of each row first."""
    E, records, slots = tables.E, tables.records, tables.slots
    movers, rows, buckets, vectors = shard.movers, shard.rows, shard.buckets, shard.vectors
    owners, sums = shard.owners, shard.P_sums
    for x in range(count):
        later = movers[x + AHEAD] if x + AHEAD < count else movers[0]
        prefetch(records, rows[later])
        for i in range(k):
            prefetch(E, buckets[i, later])
        u = movers[x]
        row, own = rows[u], load_row(vectors, u, d)
        slot = np.int64(slots[row, k + 1])  # left by an earlier shard, unless the owner is this row
        if slot < x and owners[slot] == row:
            owners[x] = NOBODYS
        else:
            slot = x
            owners[x] = row
            slots[row, k + 1] = x
            for i in range(k):
                sums[x, i] = ZERO
        for i in range(k):
            sums[slot, i] += dot(own, load_row(E, buckets[i, u], d))
    for x in range(count):
        if owners[x] == NOBODYS:
            continue
        record = records[owners[x]]
        square = ZERO
        for i in range(k):
            square += sums[x, i] * sums[x, i]
        factor = adagrad_factor(record, k, square * np.float32(1 / k), rate, epsilon)
        for i in range(k):
            record[i] -= factor * sums[x, i]


@njit(inline="always")
def sort_pairs(count, shard, scratch, cursor, k, importance):
    """Move each token's k buckets to their bins, with its importance weights."""
    movers, low, buckets, weights = shard.movers, shard.low, shard.buckets, shard.weights
    begins = shard.bin_begins
    bits, bins = scratch.bin_bits, len(begins) - 1
    for r in range(bins):
        cursor[r] = 0
    for x in range(count):
        for i in range(k):
            cursor[np.uint64(buckets[i, movers[x]] >> bits)] += 1
    at = low * k
    for r in range(bins):
        begins[r] = at
        at += cursor[r]
        cursor[r] = begins[r]
    begins[bins] = at
    for x in range(count):
        u = movers[x]
        for i in range(k):
            bucket = buckets[i, u]
            r = np.uint64(bucket >> bits)
            to = np.uint64(cursor[r])
            cursor[r] += 1
            scratch.pair_bucket[to] = bucket
            scratch.pair_place[to] = low + u
            if importance:
                scratch.pair_weight[to] = weights[u, i]


@njit(inline="always")
def teach_shard(number, step, job, d, k, importance):
    """Gradients of the distinct tokens of a shard; update of its rows of P."""
    scratch = job.scratch
    shard = shard_views(number, step, scratch)
    count = sum_gradients(shard, step, scratch, d)
    sort_pairs(count, shard, scratch, scratch.cursors[step.worker], k, importance)
    if importance:
        update_records(count, shard, job.tables, d, k, step.rate, job.epsilon)


@njit(inline="always")
def update_bin(r, step, job, d, importance):
    """Update the rows of E in bin r, after their gradients are summed over the shards."""
    tables, scratch, worker = job.tables, job.scratch, step.worker
    E, vectors = tables.E, scratch.vectors
    first = r << scratch.bin_bits
    sums, touched = scratch.E_sums[worker], scratch.touched[worker]
    touched_rows = scratch.touched_rows[worker]
    used = 0
    for s in range(step.shards):
        for x in range(scratch.bin_begins[s, r], scratch.bin_begins[s, r + 1]):
            later = scratch.pair_bucket[x + AHEAD]
            prefetch(vectors, scratch.pair_place[x + AHEAD])
            prefetch(E, later)
            prefetch(tables.E_square, later)
            at = np.uint64(scratch.pair_bucket[x] - first)
            touched_rows[used] = at
            used += 1 - touched[at]
            touched[at] = 1
            p = scratch.pair_weight[x] if importance else ONE
            v = load_row(vectors, scratch.pair_place[x], d)
            store_row(sums, at, plus_scaled(load_row(sums, at, d), p, v))
    for x in range(used):
        at = touched_rows[x]
        row, v = first + at, load_row(sums, at, d)
        touched[at] = 0
        store_row(sums, at, zero_vector(d))
        square = dot(v, v) * np.float32(1 / d)
        factor = adagrad_factor(tables.E_square, row, square, step.rate, job.epsilon)
        store_row(E, row, plus_scaled(load_row(E, row, d), -factor, v))


@njit(inline="always")
def update_output(low, high, step, job, d):
    """Update the classes low..high-1 of W and of the bias."""
    tables, scratch, rate, epsilon = job.tables, job.scratch, step.rate, job.epsilon
    size = step.last - step.first
    W, sums, h, z = tables.W, scratch.W_sums, scratch.h, scratch.z
    for c in range(low, high):
        store_row(sums, c, zero_vector(d))
    pairs = size // 2 * 2
    for q in range(0, pairs, 2):
        one, two = load_row(h, q, d), load_row(h, q + 1, d)
        for c in range(low, high):
            total = plus_scaled(load_row(sums, c, d), z[q, c], one)
            store_row(sums, c, plus_scaled(total, z[q + 1, c], two))
    for q in range(pairs, size):
        for c in range(low, high):
            total = plus_scaled(load_row(sums, c, d), z[q, c], load_row(h, q, d))
            store_row(sums, c, total)
    for c in range(low, high):
        total = ZERO
        for q in range(size):
            total += z[q, c]
        for j in range(d):
            v = sums[c, j]
            W[c, j] -= adagrad_factor(tables.W_square[c], j, v * v, rate, epsilon) * v
        factor = adagrad_factor(tables.bias_square, c, total * total, rate, epsilon)
        tables.bias[c] -= factor * total
