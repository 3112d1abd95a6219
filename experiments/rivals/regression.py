"""Multinomial logistic regression on sparse rows, fast enough for 108 classes of 500,000 n-grams.

It minimises ||W||^2 / 2 + C * (the sum of cross entropies), as scikit-learn does, by stochastic
dual coordinate ascent (Shalev-Shwartz and Zhang 2013): row i has dual probabilities p_i, and
W = C * sum_i x_i (y_i - p_i)^T. At the optimum p_i is the softmax of x_i W. A step moves one row's
p_i towards that softmax, as far as makes the dual largest, so no learning rate is needed.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

TINY = np.float32(1e-30)


@njit(nogil=True, cache=True, fastmath=True)
def _logits(values, columns, W, z):
    z[:] = 0
    for j in range(len(values)):
        w, value = W[columns[j]], values[j]
        for c in range(len(z)):
            z[c] += value * w[c]


@njit(nogil=True, cache=True)
def _softmax(z):
    """z -> softmax(z) in place."""
    z[:] = np.exp(z - z.max())
    z /= z.sum()


@njit(nogil=True, cache=True)
def _step(p, u, stiffness):
    """How far to go from p to u: about where the dual's slope on that line is 0.

    The slope at s is sum_c delta_c (log u_c - log(p_c + s delta_c)) - stiffness s ||delta||^2:
    positive at 0, negative at 1.
    """
    low, high = 0.0, 1.0
    s = 1 / (1 + stiffness / 2)
    for _ in range(2):
        slope, curvature = 0.0, 0.0
        for c in range(len(p)):
            delta = u[c] - p[c]
            at = max(p[c] + s * delta, TINY)
            slope += delta * (np.log(max(u[c], TINY) / at) - stiffness * s * delta)
            curvature += delta * delta * (1 / at + stiffness)
        if slope > 0:
            low = s
        else:
            high = s
        s += slope / max(curvature, TINY)
        if not low < s < high:
            s = (low + high) / 2
    return s


@njit(nogil=True, cache=True, fastmath=True)
def _move(values, columns, delta, W):
    for j in range(len(values)):
        w, value = W[columns[j]], values[j]
        for c in range(len(delta)):
            w[c] -= value * delta[c]


@njit(nogil=True, cache=True)
def _one_pass(values, columns, starts, order, norms, C, P, W):
    """One step for each row; P and W are updated."""
    u = np.empty(W.shape[1], np.float32)
    for i in order:
        mine, where = values[starts[i] : starts[i + 1]], columns[starts[i] : starts[i + 1]]
        _logits(mine, where, W, u)
        _softmax(u)
        p = P[i]
        s = np.float32(_step(p, u, C * norms[i]))
        for c in range(len(u)):
            u[c] = s * (u[c] - p[c])
            p[c] = max(p[c] + u[c], TINY)
            u[c] *= C
        _move(mine, where, u, W)


@dataclass
class MultinomialRegression:
    """C: the strength of the data against the penalty. passes: how often each row takes a step.

    The intercept is one more column of ones, penalised like any other (as in LIBLINEAR).
    """

    C: float = 1.0
    passes: int = 30
    seed: int = 0

    def fit(self, X, y) -> "MultinomialRegression":
        """X: a CSR matrix of float32. y: class numbers from 0."""
        X, classes = _with_intercept(X), int(y.max()) + 1
        Y = np.zeros((len(y), classes), np.float32)
        Y[np.arange(len(y)), y] = 1
        P, C = np.maximum(Y, TINY), np.float32(self.C)
        self.W = np.zeros((X.shape[1], classes), np.float32)
        norms = np.asarray(X.multiply(X).sum(axis=1), np.float32).ravel()
        generator = np.random.default_rng(self.seed)
        for _ in range(self.passes):
            order = generator.permutation(len(y))
            _one_pass(X.data, X.indices, X.indptr, order, norms, C, P, self.W)
        self.W = C * (X.T @ (Y - P))  # exact: the steps have rounded it many times
        self.gap = self._gap(X, Y, P)
        return self

    def _gap(self, X, Y, P) -> float:
        """The most that the loss can still fall, as a share of it."""
        penalty = np.square(self.W, dtype=np.float64).sum() / 2
        z = X @ self.W
        z -= z.max(axis=1, keepdims=True)
        losses = np.log(np.exp(z).sum(axis=1)) - (Y * z).sum(axis=1)
        primal = penalty + self.C * losses.sum(dtype=np.float64)
        entropy = -(P * np.log(np.maximum(P, TINY))).sum(dtype=np.float64)
        dual = self.C * entropy - penalty
        return float((primal - dual) / primal)

    def predict(self, X) -> np.ndarray:
        return np.asarray(_with_intercept(X) @ self.W).argmax(axis=1)

    def score(self, X, y) -> float:
        return float((self.predict(X) == y).mean())


def _with_intercept(X):
    from scipy.sparse import csr_matrix, hstack

    ones = csr_matrix(np.ones((X.shape[0], 1), np.float32))
    return csr_matrix(hstack([X, ones]), dtype=np.float32)
