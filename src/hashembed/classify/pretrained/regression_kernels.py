"""The loss of logistic regression and its gradient: the same bits for any number of threads."""

import numpy as np

from hashembed.core.arrays import F32, F32_2D, F64, F64_2D, I64
from hashembed.core.elementary import exp64, log64
from hashembed.core.njit import njit

_BLOCK = 256  # texts at a time: their logits stay in the cache
_LANES = 16  # partial sums, so that LLVM can use vectors


@njit(native=True, nogil=True, error_model="numpy")
def fill_residuals(
    worker: int, workers: int, barrier: I64, X: F32_2D, Y: F32_2D, weights: F32, W: F64_2D,
    bias: F64, multilabel: bool, R: F64_2D, losses: F64,
) -> None:  # fmt: skip
    """R (C, n) = weight * (probability - truth), and the losses (n,) of texts.

    X (d, n): the features; Y (C, n): 1 for the classes of a text. What R holds before is added to
    the logits. Each worker owns some blocks.
    """
    classes, n = Y.shape
    top, total = np.empty(_BLOCK), np.empty(_BLOCK)
    blocks = -(-n // _BLOCK)
    for block in range(blocks * worker // workers, blocks * (worker + 1) // workers):
        first = block * _BLOCK
        size = min(_BLOCK, n - first)
        for c in range(classes):
            z = R[c, first : first + size]
            for i in range(size):
                z[i] += bias[c]
            for j in range(X.shape[0]):
                factor, column = W[c, j], X[j, first : first + size]
                for i in range(size):
                    z[i] += factor * column[i]
        if multilabel:
            _sigmoids(R, Y, losses, first, size)
        else:
            _softmax(R, Y, losses, first, size, top, total)
        for i in range(size):
            losses[first + i] *= weights[first + i]
        for c in range(classes):
            for i in range(size):
                R[c, first + i] *= weights[first + i]


@njit(error_model="numpy")
def _sigmoids(R, Y, losses, first, size):
    """Logits -> sigmoids minus the truth, and losses."""
    losses[first : first + size] = 0.0
    for c in range(R.shape[0]):
        for i in range(first, first + size):
            z, y = R[c, i], np.float64(Y[c, i])
            e = exp64(-abs(z))
            losses[i] += max(z, 0.0) - z * y + log64(1.0 + e)
            R[c, i] = (1.0 if z >= 0 else e) / (1.0 + e) - y


@njit(error_model="numpy")
def _softmax(R, Y, losses, first, size, top, total):
    """Logits -> softmax minus the truth, and losses."""
    top[:size], total[:size] = -np.inf, 0.0
    for c in range(R.shape[0]):
        for i in range(size):
            top[i] = max(top[i], R[c, first + i])
    for i in range(size):
        losses[first + i] = top[i]
    for c in range(R.shape[0]):
        for i in range(size):
            z = R[c, first + i]
            losses[first + i] -= z * Y[c, first + i]
            e = exp64(z - top[i])
            total[i] += e
            R[c, first + i] = e
    for i in range(size):
        losses[first + i] += log64(total[i])
    for c in range(R.shape[0]):
        for i in range(size):
            R[c, first + i] = R[c, first + i] / total[i] - Y[c, first + i]


@njit(native=True, nogil=True, error_model="numpy")
def fill_gradient(
    worker: int, workers: int, barrier: I64, X: F32_2D, R: F64_2D, out: F64_2D
) -> None:  # fmt: skip
    """out (C, d + 1) = the sums over texts of R[c] * X[j]; the last column is that of R alone.

    Each worker owns some columns.
    """
    features, n = X.shape
    whole = n // _LANES * _LANES
    sums = np.empty(_LANES)
    for j in range((features + 1) * worker // workers, (features + 1) * (worker + 1) // workers):
        for c in range(R.shape[0]):
            sums[:] = 0.0
            r, total = R[c], 0.0
            if j < features:
                x = X[j]
                for i in range(0, whole, _LANES):
                    for lane in range(_LANES):
                        sums[lane] += r[i + lane] * x[i + lane]
                for i in range(whole, n):
                    total += r[i] * x[i]
            else:
                for i in range(n):
                    total += r[i]
            for lane in range(_LANES):
                total += sums[lane]
            out[c, j] = total


@njit(native=True, nogil=True, error_model="numpy")
def fill_logits(
    worker: int, workers: int, barrier: I64, X: F32_2D, W: F64_2D, bias: F64, out: F32_2D
) -> None:  # fmt: skip
    """out (n, C) = W X + bias, for features X (n, d). Each worker owns some texts."""
    n, features = X.shape
    for i in range(n * worker // workers, n * (worker + 1) // workers):
        for c in range(len(bias)):
            total = bias[c]
            for j in range(features):
                total += W[c, j] * X[i, j]
            out[i, c] = total
