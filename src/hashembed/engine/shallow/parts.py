"""Pieces of the kernels. They are inlined, so that d and k are compile-time constants."""

import numpy as np

from hashembed.core.intrinsics import prefetch
from hashembed.core.njit import njit
from hashembed.engine.shallow.vectors import dot, load_row, plus, plus_scaled, zero_vector
from hashembed.hashing.locate import bucket_of, row_of

ZERO, ONE = np.float32(0), np.float32(1)


@njit(inline="always")
def hash_keys(keys, E, records, seeds, K, B, k, importance, indexing, rows, buckets):
    """Rows and buckets of a document's keys; prefetches what they hold.

    Loops over tokens are innermost and write one array each: that is what LLVM vectorises.
    """
    length = len(keys)
    own_rows = rows[:length]
    seed = seeds[0]
    for x in range(length):
        own_rows[x] = np.uint32(row_of(keys[x], seed, K, indexing))
    for i in range(k):
        own_buckets = buckets[i, :length]
        seed = seeds[i + 1]
        for x in range(length):
            own_buckets[x] = np.uint32(bucket_of(i, keys[x], own_rows[x], seed, B, indexing))
    for t in range(length):
        if importance:
            prefetch(records, rows[t])
        for i in range(k):
            prefetch(E, buckets[i, t])


@njit(inline="always")
def hash_vector(E, records, row, buckets, t, d, k, importance):
    """A token's hash vector; `buckets` (k, tokens)."""
    v = zero_vector(d)
    for i in range(k):
        p = records[row, i] if importance else ONE
        v = plus_scaled(v, p, load_row(E, buckets[i, t], d))
    return v


@njit(inline="always")
def add_scores(h, W, bias, d, z):
    """z = W h + bias."""
    for c in range(len(bias)):
        z[c] = bias[c] + dot(h, load_row(W, c, d))


@njit(inline="always")
def errors_to_gradient(errors, W, d):
    """dloss / dh = W^T errors, as two independent sums that the processor overlaps."""
    classes = len(errors)
    even, odd = zero_vector(d), zero_vector(d)
    for c in range(0, classes - 1, 2):
        even = plus_scaled(even, errors[c], load_row(W, c, d))
        odd = plus_scaled(odd, errors[c + 1], load_row(W, c + 1, d))
    if classes % 2:
        even = plus_scaled(even, errors[classes - 1], load_row(W, classes - 1, d))
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
def softmax_error(z, label):
    """Replace logits z by probabilities minus truth -> the cross entropy."""
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
    """The same for several labels: any number of classes may be true."""
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
def softplus(z):
    """log(1 + exp(z))"""
    return np.log(ONE + exp_of_negative(-abs(z))) + max(z, ZERO)


@njit(inline="always")
def weighted_sigmoid_error(z, labels, weights):
    """The same with weights (2, C) of true and of false classes."""
    loss = ZERO
    for c in range(len(z)):
        loss += weights[1, c] * softplus(z[c])
    for x in range(len(labels)):
        c = labels[x]
        loss += weights[0, c] * softplus(-z[c]) - weights[1, c] * softplus(z[c])
    sigmoid_error(z, labels)
    for c in range(len(z)):  # the error of a true class is negative
        z[c] *= weights[0, c] if z[c] < ZERO else weights[1, c]
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
    """Add a row's mean square to its accumulator -> the factor for its gradient."""
    total = squares[index] + square
    squares[index] = total
    return rate / (np.sqrt(total) + epsilon)
