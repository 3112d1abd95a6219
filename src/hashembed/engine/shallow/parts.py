"""Pieces of the kernels. Most are inlined, so that what is constant there is constant here.

Numba inlines slowly what is inlined into something inlined. So the others are functions that LLVM
may inline.

The `columns` of a row are a multiple of `width`, a compile-time constant.
"""

import numpy as np

from hashembed.core.elementary import log64
from hashembed.core.intrinsics import sqrt32
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import LANES
from hashembed.engine.shallow.vectors import (
    larger,
    largest_of,
    load,
    only_first,
    plus,
    scaled,
    size_of,
    store,
    sum_of,
    times,
    zero_vector,
)
from hashembed.hashing.locate import DIRECT, IDENTITY, INDEPENDENT, SHARED, bucket_of, row_of

ZERO, ONE = np.float32(0), np.float32(1)
_LOWEST = np.float32(-np.inf)


@njit(inline="always")
def dot_rows(a, i, b, j, columns, width):
    """The inner product of a[i] and b[j]."""
    products = times(load(a, i, 0, width), load(b, j, 0, width))
    for c in range(width, columns, width):
        products = plus(products, times(load(a, i, c, width), load(b, j, c, width)))
    return sum_of(products)


@njit(inline="always")
def hash_rows(keys, seed, K, indexing, rows):
    """Rows of keys."""
    if indexing >= IDENTITY:
        for x in range(len(keys)):
            rows[x] = np.uint32(keys[x])
    else:
        for x in range(len(keys)):
            rows[x] = np.uint32(row_of(keys[x], seed, K, INDEPENDENT))


@njit(inline="always")
def hash_buckets(keys, seeds, B, k, indexing, rows, buckets):
    """Buckets of keys; `indexing` is a compile-time constant.

    Loops over tokens are innermost and write one array each: that is what LLVM vectorises.
    """
    for i in range(k):
        own, seed = buckets[i], seeds[i + 1]
        for x in range(len(keys)):
            own[x] = np.uint32(bucket_of(i, keys[x], rows[x], seed, B, indexing))


@njit(error_model="numpy")
def hash_keys(keys, seeds, K, B, k, indexing, rows, buckets):
    """Rows and buckets of keys, by a loop of its own for each indexing."""
    hash_rows(keys, seeds[0], K, indexing, rows)
    if indexing == INDEPENDENT:
        hash_buckets(keys, seeds, B, k, INDEPENDENT, rows, buckets)
    elif indexing == DIRECT:
        hash_buckets(keys, seeds, B, k, DIRECT, rows, buckets)
    else:
        hash_buckets(keys, seeds, B, k, SHARED, rows, buckets)


@njit(inline="always")
def hash_vector(E, records, row, buckets, t, column, width, k, importance):
    """A part of a token's hash vector; `buckets` (k, tokens)."""
    p = records[row, 0] if importance else ONE
    v = scaled(p, load(E, buckets[0, t], column, width))
    for i in range(1, k):
        p = records[row, i] if importance else ONE
        v = plus(v, scaled(p, load(E, buckets[i, t], column, width)))
    return v


@njit(inline="always")
def add_scores(h, q, W, bias, columns, width, z):
    """z = W h[q] + bias."""
    for c in range(len(bias)):
        z[c] = bias[c] + dot_rows(h, q, W, c, columns, width)


@njit(inline="always")
def errors_to_gradient(errors, classes, W, column, width):
    """A part of dloss / dh = W^T errors, as two independent sums that the processor overlaps."""
    even, odd = zero_vector(width), zero_vector(width)
    for c in range(0, classes - 1, 2):
        even = plus(even, scaled(errors[c], load(W, c, column, width)))
        odd = plus(odd, scaled(errors[c + 1], load(W, c + 1, column, width)))
    if classes % 2:
        even = plus(even, scaled(errors[classes - 1], load(W, classes - 1, column, width)))
    return plus(even, odd)


@njit(inline="always")
def exp_of_negative(x):
    """exp(x) for x <= 0, to about 1e-5 and never below exp(-30): a series in x / 256, then squares.

    It has no branches, so LLVM vectorises it. The floor keeps gradients from becoming denormal
    numbers, which are slow.
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
def log(x):
    """The logarithm of a float32."""
    return np.float32(log64(np.float64(x)))


@njit(inline="always")
def row_sum(table, row):
    """The sum of a row."""
    total = load(table, row, 0, LANES)
    for c in range(LANES, table.shape[1], LANES):
        total = plus(total, load(table, row, c, LANES))
    return sum_of(total)


@njit(inline="always")
def softmax_error(table, row, classes, label):
    """Replace the logits of a row by probabilities minus truth -> the cross entropy."""
    z = table[row]
    most = only_first(load(table, row, 0, LANES), classes, _LOWEST)
    for c in range(LANES, len(z), LANES):
        more = only_first(load(table, row, c, LANES), classes - c, _LOWEST)
        most = larger(most, more)
    top = largest_of(most)
    loss = top - z[label]
    for c in range(len(z)):
        z[c] = exp_of_negative(z[c] - top)
    last = len(z) - LANES
    store(table, row, last, only_first(load(table, row, last, LANES), classes - last, ZERO))
    total = row_sum(table, row)
    scale = ONE / total
    for c in range(len(z)):
        z[c] *= scale
    z[label] -= ONE
    return loss + log(total)


@njit(inline="always")
def softplus(z):
    """log(1 + exp(z))"""
    return log(ONE + exp_of_negative(-abs(z))) + max(z, ZERO)


@njit(inline="always")
def sigmoids(z, classes, labels):
    """Replace logits by probabilities minus truth; any number of classes may be true."""
    own = z[:classes]
    for c in range(classes):
        e = exp_of_negative(-abs(own[c]))
        own[c] = (ONE if own[c] >= ZERO else e) / (ONE + e)
    for x in range(len(labels)):
        own[labels[x]] -= ONE


@njit(error_model="numpy")
def sigmoid_error(z, classes, labels, terms, worker):
    """Like `softmax_error`, for several labels; `terms` (workers, Z) is scratch memory."""
    own = terms[worker, :classes]
    for c in range(classes):
        own[c] = softplus(z[c])
    loss = row_sum(terms, worker)
    for x in range(len(labels)):
        loss -= z[labels[x]]
    sigmoids(z, classes, labels)
    return loss


@njit(error_model="numpy")
def weighted_sigmoid_error(z, classes, labels, weights, terms, worker):
    """The same with weights (2, C) of true and of false classes."""
    own = terms[worker, :classes]
    for c in range(classes):
        own[c] = weights[1, c] * softplus(z[c])
    loss = row_sum(terms, worker)
    for x in range(len(labels)):
        c = labels[x]
        loss += weights[0, c] * softplus(-z[c]) - weights[1, c] * softplus(z[c])
    sigmoids(z, classes, labels)
    for c in range(classes):  # the error of a true class is negative
        z[c] *= weights[0, c] if z[c] < ZERO else weights[1, c]
    return loss


@njit(inline="always")
def largest_error(errors, row):
    """The largest absolute value of a row."""
    largest = size_of(load(errors, row, 0, LANES))
    for c in range(LANES, errors.shape[1], LANES):
        largest = larger(largest, size_of(load(errors, row, c, LANES)))
    return largest_of(largest)


@njit(inline="always")
def adagrad_factor(squares, index, square, rate, epsilon):
    """Add a row's mean square to its accumulator -> the factor for its gradient."""
    total = squares[index] + square
    squares[index] = total
    return rate / (sqrt32(total) + epsilon)
