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
    dot_rows,
    errors_to_gradient,
    largest_error,
    sigmoid_error,
    softmax_error,
    weighted_sigmoid_error,
)
from hashembed.engine.shallow.vectors import load, plus, scaled, store, zero_vector

NOBODYS = np.uint32(0xFFFFFFFF)  # no row of P


@njit(inline="always")
def errors_of(step, job, columns, width):
    """The losses of this worker's documents, and the gradients of their vectors."""
    tables, documents, batches, scratch = job.tables, job.documents, job.batches, job.scratch
    order, offsets, weights = batches.order, documents.label_offsets, documents.weights
    labels, class_weights, losses = documents.labels, documents.class_weights, batches.losses
    W, bias, multilabel, margin = tables.W, tables.bias, job.multilabel, job.margin
    h, g, z, terms, learned = scratch.h, scratch.g, scratch.z, scratch.terms, scratch.learned
    partial, batch, classes, stop = scratch.partial, batches.batch_size, len(bias), step.stop
    for x in range(step.begin, stop):
        doc, q = order[x], x - step.first
        prefetch(offsets, order[min(x + 2 * DOCUMENTS_AHEAD, stop - 1)])
        prefetch(weights, order[min(x + DOCUMENTS_AHEAD, stop - 1)])
        prefetch(labels, offsets[order[min(x + DOCUMENTS_AHEAD, stop - 1)]])
        for c in range(0, columns, width):
            total = zero_vector(width)
            for s in range(step.shards):
                total = plus(total, load(partial, s * batch + q, c, width))
            store(h, q, c, total)
        own = z[q]
        add_scores(h, q, W, bias, columns, width, own)
        l0, l1 = offsets[doc], offsets[doc + 1]
        if multilabel and class_weights.shape[1]:
            loss = weighted_sigmoid_error(
                own, classes, labels[l0:l1], class_weights, terms, step.worker
            )
        elif multilabel:
            loss = sigmoid_error(own, classes, labels[l0:l1], terms, step.worker)
        else:
            loss = softmax_error(z, q, classes, labels[l0])
        losses[x] = loss * weights[doc]
        for c in range(classes):
            own[c] *= weights[doc]
        for c in range(0, columns, width):
            store(g, q, c, errors_to_gradient(own, classes, W, c, width))
        learned[q] = largest_error(z, q) < margin


@njit(inline="always")
def add_gradient(gradients, q, begin, end, places, moved, vectors, column, width):
    """Add a part of document q's gradient to the sums of its tokens begin..end-1."""
    g = load(gradients, q, column, width)
    for x in range(begin, end):
        u = places[x]
        moved[u] = 1
        store(vectors, u, column, plus(load(vectors, u, column, width), g))


@njit(inline="always")
def sum_gradients(shard, step, scratch, columns, width, wide):
    """vectors[u] = sum of the gradients of the documents that hold the distinct token u.

    Learned documents do not count. Returns the number of `movers`, the tokens that some other
    document holds.
    """
    s, low, runs, used = shard.number, shard.low, step.runs, scratch.distinct[shard.number]
    places, vectors, moved, movers = shard.places, shard.vectors, shard.moved, shard.movers
    learned, gradients = scratch.learned, scratch.g
    for u in range(used):
        moved[u] = 0
        for c in range(0, columns, width):
            store(vectors, u, c, zero_vector(width))
    for q in range(len(runs) - 1):
        if learned[q]:
            continue
        begin, end = runs[q, s] - low, runs[q + 1, s] - low
        for c in range(0, columns - wide + 1, wide):
            add_gradient(gradients, q, begin, end, places, moved, vectors, c, wide)
        for c in range(columns // wide * wide, columns, width):
            add_gradient(gradients, q, begin, end, places, moved, vectors, c, width)
    count = 0
    for u in range(used):
        movers[count] = u
        count += moved[u]
    return count


@njit(inline="always")
def update_records(count, shard, tables, columns, width, k, rate, epsilon):
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
        row = rows[u]
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
            sums[slot, i] += dot_rows(vectors, u, E, buckets[i, u], columns, width)
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
def teach_shard(number, step, job, columns, width, wide, k, importance):
    """Gradients of the distinct tokens of a shard; update of its rows of P."""
    scratch = job.scratch
    shard = shard_views(number, step, scratch)
    count = sum_gradients(shard, step, scratch, columns, width, wide)
    sort_pairs(count, shard, scratch, scratch.cursors[step.worker], k, importance)
    if importance:
        update_records(count, shard, job.tables, columns, width, k, step.rate, job.epsilon)


@njit(inline="always")
def update_bin(r, step, job, columns, width, wide, importance):
    """Update the rows of E in bin r, after their gradients are summed over the shards."""
    tables, scratch, worker = job.tables, job.scratch, step.worker
    E, E_square, vectors = tables.E, tables.E_square, scratch.vectors
    pair_bucket, pair_place = scratch.pair_bucket, scratch.pair_place
    pair_weight, begins = scratch.pair_weight, scratch.bin_begins
    first = r << scratch.bin_bits
    sums, touched = scratch.E_sums[worker], scratch.touched[worker]
    touched_rows = scratch.touched_rows[worker]
    used = 0
    for s in range(step.shards):
        for x in range(begins[s, r], begins[s, r + 1]):
            later = pair_bucket[x + AHEAD]
            prefetch(vectors, pair_place[x + AHEAD])
            prefetch(E, later)
            prefetch(E_square, later)
            at = np.uint64(pair_bucket[x] - first)
            touched_rows[used] = at
            used += 1 - touched[at]
            touched[at] = 1
            p, place = pair_weight[x] if importance else ONE, pair_place[x]
            for c in range(0, columns - wide + 1, wide):
                more = scaled(p, load(vectors, place, c, wide))
                store(sums, at, c, plus(load(sums, at, c, wide), more))
            for c in range(columns // wide * wide, columns, width):
                some = scaled(p, load(vectors, place, c, width))
                store(sums, at, c, plus(load(sums, at, c, width), some))
    part, rate, epsilon = np.float32(1 / job.dim), step.rate, job.epsilon
    for x in range(used):
        at = touched_rows[x]
        row = first + at
        touched[at] = 0
        square = dot_rows(sums, at, sums, at, columns, width) * part
        factor = adagrad_factor(E_square, row, square, rate, epsilon)
        for c in range(0, columns, width):
            v = load(sums, at, c, width)
            store(sums, at, c, zero_vector(width))
            store(E, row, c, plus(load(E, row, c, width), scaled(-factor, v)))


@njit(inline="always")
def update_output(low, high, step, job, columns, width):
    """Update the classes low..high-1 of W and of the bias."""
    tables, scratch, rate, epsilon = job.tables, job.scratch, step.rate, job.epsilon
    size = step.last - step.first
    W, W_square, bias, bias_square = tables.W, tables.W_square, tables.bias, tables.bias_square
    sums, h, z, totals = scratch.W_sums, scratch.h, scratch.z, scratch.bias_sums
    pairs = size // 2 * 2
    for j in range(0, columns, width):
        for c in range(low, high):
            store(sums, c, j, zero_vector(width))
        for q in range(0, pairs, 2):
            one, two = load(h, q, j, width), load(h, q + 1, j, width)
            for c in range(low, high):
                total = plus(load(sums, c, j, width), scaled(z[q, c], one))
                store(sums, c, j, plus(total, scaled(z[q + 1, c], two)))
        for q in range(pairs, size):
            for c in range(low, high):
                total = plus(load(sums, c, j, width), scaled(z[q, c], load(h, q, j, width)))
                store(sums, c, j, total)
    for c in range(low, high):
        totals[c] = ZERO
    for q in range(size):
        for c in range(low, high):
            totals[c] += z[q, c]
    for c in range(low, high):
        for j in range(columns):
            v = sums[c, j]
            W[c, j] -= adagrad_factor(W_square[c], j, v * v, rate, epsilon) * v
        factor = adagrad_factor(bias_square, c, totals[c] * totals[c], rate, epsilon)
        bias[c] -= factor * totals[c]
