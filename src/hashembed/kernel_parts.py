"""Pieces of the kernels, inlined where they are used, so that d and k are constants there."""

import numpy as np
from numba import njit

from hashembed.hashing_numba import bucket_hash, lane_a, lane_b, reduce_range, row_hash
from hashembed.intrinsics import prefetch

INDEPENDENT, SHARED, IDENTITY, DIRECT = range(4)  # as hashing.INDEXINGS, and HashSpec.direct

ZERO, ONE = np.float32(0), np.float32(1)


@njit(inline="always")
def hash_document(tables, documents, doc, K, B, k, importance, indexing, rows, buckets, at):
    """Rows and buckets of a document's tokens, from position `at` on, asked for from memory.

    Loops over tokens are innermost and write one array each: that is what LLVM vectorises.
    """
    start, length = documents.starts[doc], documents.lengths[doc]
    # Views that begin at 0: of `keys[start + x]` Numba would have to ask whether it is negative.
    keys, own_rows = documents.keys[start : start + length], rows[at : at + length]
    seed = tables.seeds[0]
    for x in range(length):
        if indexing >= IDENTITY:
            own_rows[x] = np.uint32(keys[x])
        else:
            own_rows[x] = np.uint32(reduce_range(row_hash(lane_a(keys[x]), seed), K))
    for i in range(k):
        own_buckets = buckets[i, at : at + length]
        seed = tables.seeds[i + 1]
        for x in range(length):
            if indexing == INDEPENDENT:
                a, b = lane_a(keys[x]), lane_b(keys[x])
            else:
                a, b = own_rows[x], np.uint32(0)
            own_buckets[x] = np.uint32(reduce_range(bucket_hash(a, b, seed), B))
    if indexing == DIRECT:
        buckets[0, at : at + length] = own_rows
    for t in range(at, at + length):
        if importance:
            prefetch(tables.records, rows[t])
        for i in range(k):
            prefetch(tables.E, buckets[i, t])


@njit(inline="always")
def token_value(E, records, rows, buckets, t, j, k, importance):
    """Component j of a token's hash vector."""
    v = ZERO
    for i in range(k):
        if importance:
            v += records[rows[t], i] * E[buckets[i, t], j]
        else:
            v += E[buckets[i, t], j]
    return v


@njit(inline="always")
def add_tokens(E, records, rows, buckets, begin, end, d, k, importance, h):
    """h = sum of the hash vectors of tokens begin..end, four at a time: h goes through memory."""
    for j in range(d):
        h[j] = ZERO
    fours = begin + (end - begin) // 4 * 4
    for t in range(begin, fours, 4):
        for j in range(d):
            first = token_value(E, records, rows, buckets, t, j, k, importance)
            first += token_value(E, records, rows, buckets, t + 1, j, k, importance)
            second = token_value(E, records, rows, buckets, t + 2, j, k, importance)
            second += token_value(E, records, rows, buckets, t + 3, j, k, importance)
            h[j] += first + second
    for t in range(fours, end):
        for j in range(d):
            h[j] += token_value(E, records, rows, buckets, t, j, k, importance)


@njit(inline="always")
def add_scores(h, W_t, bias, d, z):
    """z = W h + bias; W_t is W transposed, so that the inner loop runs over classes."""
    classes = len(bias)
    for c in range(classes):
        z[c] = bias[c]
    for j in range(d):
        v = h[j]
        for c in range(classes):
            z[c] += v * W_t[j, c]


@njit(inline="always")
def errors_to_slope(errors, W, d, g):
    """g = dloss / dh = W^T errors, four classes at a time."""
    classes = len(errors)
    for j in range(d):
        g[j] = ZERO
    fours = classes // 4 * 4
    for c in range(0, fours, 4):
        e0, e1, e2, e3 = errors[c], errors[c + 1], errors[c + 2], errors[c + 3]
        for j in range(d):
            first = e0 * W[c, j] + e1 * W[c + 1, j]
            g[j] += first + (e2 * W[c + 2, j] + e3 * W[c + 3, j])
    for c in range(fours, classes):
        for j in range(d):
            g[j] += errors[c] * W[c, j]


@njit(inline="always")
def exp_of_negative(x):
    """exp(x) for x <= 0 to about 1e-5, and never below exp(-30): a series of x / 256, squared.

    Straight-line arithmetic, so LLVM vectorises it. The floor keeps gradients out of the range of
    denormal numbers, which are slow.
    """
    r = max(x, np.float32(-30.0)) * np.float32(1 / 256)
    y = np.float32(1 / 120) + r * np.float32(1 / 720)
    y = np.float32(1 / 24) + r * y
    y = np.float32(1 / 6) + r * y
    y = np.float32(0.5) + r * y
    y = ONE + r * y
    y = ONE + r * y
    for _ in range(8):
        y = y * y
    return y


@njit(inline="always")
def softmax_error(z, label):
    """z -> probabilities minus the truth, in place; returns the cross entropy."""
    classes = len(z)
    top = z[0]
    for c in range(1, classes):
        top = max(top, z[c])
    loss = top - z[label]
    total = ZERO
    for c in range(classes):
        z[c] = exp_of_negative(z[c] - top)
        total += z[c]
    scale = ONE / total
    for c in range(classes):
        z[c] *= scale
    z[label] -= ONE
    return loss + np.log(total)


@njit(inline="always")
def sigmoid_error(z, labels):
    """The same for classes that exclude nothing: any number of them may be true."""
    loss = ZERO
    for x in range(len(labels)):
        loss -= z[labels[x]]
    for c in range(len(z)):
        e = exp_of_negative(-abs(z[c]))
        loss += np.log(ONE + e) + max(z[c], ZERO)
        z[c] = (ONE if z[c] >= ZERO else e) / (ONE + e)
    for x in range(len(labels)):
        z[labels[x]] -= ONE
    return loss


@njit(inline="always")
def largest_error(errors):
    """The largest absolute value."""
    largest = ZERO
    for c in range(len(errors)):
        largest = max(largest, abs(errors[c]))
    return largest


@njit(inline="always")
def adagrad_factor(squares, index, square, rate, epsilon):
    """What to multiply a row's gradient by, after its mean square has been added up."""
    total = squares[index] + square
    squares[index] = total
    return rate / (np.sqrt(total) + epsilon)
