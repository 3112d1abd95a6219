"""The two phases of a training batch in four steps, inlined into the kernel of `kernels.py`."""

import numpy as np
from numba import njit

from hashembed.intrinsics import prefetch
from hashembed.kernel_parts import (
    ONE,
    ZERO,
    adagrad_factor,
    add_scores,
    add_tokens,
    errors_to_slope,
    hash_document,
    largest_error,
    sigmoid_error,
    softmax_error,
)

NOBODYS = np.uint32(0xFFFFFFFF)  # above every row that anybody owns
AHEAD = 16  # how many tokens before its turn a row is asked for


@njit(inline="always")
def errors_of(
    begin,
    stop,
    first,
    base,
    tables,
    documents,
    batches,
    scratch,
    K,
    B,
    d,
    k,
    importance,
    indexing,
    multilabel,
    margin,
):
    """Losses of documents begin..stop of the order, and what the updates need to know."""
    order, begins = batches.order, batches.begins
    E, records, W = tables.E, tables.records, tables.W
    rows, buckets = scratch.rows, scratch.buckets
    if begin < stop:
        at = begins[begin] - base
        hash_document(
            tables, documents, order[begin], K, B, k, importance, indexing, rows, buckets, at
        )
    for x in range(begin, stop):
        if x + 1 < stop:  # while we work on this document, the next one's rows are on their way
            at = begins[x + 1] - base
            hash_document(
                tables,
                documents,
                order[x + 1],
                K,
                B,
                k,
                importance,
                indexing,
                rows,
                buckets,
                at,
            )
        doc, q = order[x], x - first
        t0, t1 = begins[x] - base, begins[x + 1] - base
        h, g, z = scratch.h[q], scratch.g[q], scratch.z[q]
        add_tokens(E, records, rows, buckets, t0, t1, d, k, importance, h)
        add_scores(h, scratch.W_t, tables.bias, d, z)
        l0, l1 = documents.label_offsets[doc], documents.label_offsets[doc + 1]
        if multilabel:
            loss = sigmoid_error(z, documents.labels[l0:l1])
        else:
            loss = softmax_error(z, documents.labels[l0])
        weight = documents.weights[doc]
        batches.losses[x] = loss * weight
        for c in range(len(z)):
            z[c] *= weight
        errors_to_slope(z, W, d, g)
        if largest_error(z) < margin:  # learned: its rows are no worker's
            for t in range(t0, t1):
                rows[t] = NOBODYS
                for i in range(k):
                    buckets[i, t] = NOBODYS
            continue
        for t in range(t0, t1):
            scratch.document[t] = q
            if importance:
                for i in range(k):
                    bucket = buckets[i, t]
                    dot = ZERO
                    for j in range(d):
                        dot += g[j] * E[bucket, j]
                    scratch.slope[t, i] = dot
                    scratch.weight[t, i] = records[rows[t], i]


@njit(inline="always")
def update_records(low, high, k, tokens, tables, scratch, worker, rate, epsilon):
    """Rows low..high of P: gradients are summed in slots, one for each row of the batch."""
    records, rows, slope = tables.records, scratch.rows, scratch.slope
    mine, owners, sums = scratch.owned[worker], scratch.owners[worker], scratch.P_sums[worker]
    count = 0
    for t in range(tokens):
        mine[count] = t
        count += (rows[t] >= low) & (rows[t] < high)
    used = 0
    for x in range(count):
        prefetch(records, rows[mine[min(x + AHEAD, count - 1)]])
        t = mine[x]
        row = rows[t]
        slot = np.int64(
            records[row, k + 1]
        )  # of an earlier batch, unless the owner says it is ours
        if slot < used and owners[slot] == row:
            for i in range(k):
                sums[slot, i] += slope[t, i]
        else:
            records[row, k + 1] = np.float32(used)
            owners[used] = row
            for i in range(k):
                sums[used, i] = slope[t, i]
            used += 1
    for slot in range(used):
        record = records[owners[slot]]
        square = ZERO
        for i in range(k):
            square += sums[slot, i] * sums[slot, i]
        factor = adagrad_factor(record, k, square * np.float32(1 / k), rate, epsilon)
        for i in range(k):
            record[i] -= factor * sums[slot, i]


@njit(inline="always")
def update_components(low, high, d, k, importance, tokens, tables, scratch, worker, rate, epsilon):
    """Rows low..high of E, in the same way."""
    E, slots, g = tables.E, tables.E_slots, scratch.g
    mine, owners, sums = scratch.owned[worker], scratch.owners[worker], scratch.E_sums[worker]
    used = 0
    for i in range(k):
        buckets = scratch.buckets[i]
        count = 0
        for t in range(tokens):
            mine[count] = t
            count += (buckets[t] >= low) & (buckets[t] < high)
        for x in range(count):
            prefetch(slots, buckets[mine[min(x + 2 * AHEAD, count - 1)]])
            prefetch(sums, min(slots[buckets[mine[min(x + AHEAD, count - 1)]]], used))
            t = mine[x]
            p = scratch.weight[t, i] if importance else ONE
            bucket, q = buckets[t], scratch.document[t]
            slot = slots[bucket]
            if slot < used and owners[slot] == bucket:
                for j in range(d):
                    sums[slot, j] += p * g[q, j]
            else:
                slots[bucket] = used
                owners[used] = bucket
                for j in range(d):
                    sums[used, j] = p * g[q, j]
                used += 1
    for slot in range(used):
        prefetch(E, owners[min(slot + AHEAD, used - 1)])
        bucket = owners[slot]
        square = ZERO
        for j in range(d):
            square += sums[slot, j] * sums[slot, j]
        square *= np.float32(1 / d)
        factor = adagrad_factor(tables.E_square, bucket, square, rate, epsilon)
        for j in range(d):
            E[bucket, j] -= factor * sums[slot, j]


@njit(inline="always")
def update_output(low, high, d, size, tables, scratch, worker, rate, epsilon):
    """Classes low..high of W and of the bias."""
    W, sums = tables.W, scratch.W_sums[worker]
    for c in range(low, high):
        total = ZERO
        for j in range(d):
            sums[j] = ZERO
        for q in range(size):
            e = scratch.z[q, c]
            total += e
            for j in range(d):
                sums[j] += e * scratch.h[q, j]
        for j in range(d):
            v = sums[j]
            factor = adagrad_factor(tables.W_square[c], j, v * v, rate, epsilon)
            W[c, j] -= factor * v
            scratch.W_t[j, c] = W[c, j]
        factor = adagrad_factor(tables.bias_square, c, total * total, rate, epsilon)
        tables.bias[c] -= factor * total
