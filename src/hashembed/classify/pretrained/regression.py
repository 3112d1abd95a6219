"""Logistic regression with an L2 penalty, for dense features and few texts.

Minimises sum_i weight_i loss_i + penalty / 2 |W|^2 by L-BFGS. The bias is not penalised.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hashembed.classify.pretrained.regression_kernels import (
    fill_gradient,
    fill_logits,
    fill_residuals,
)
from hashembed.core.arrays import F32, F64
from hashembed.core.threads import cpu_count, run_workers

MOST_STEPS = 200
TOLERANCE = 1e-4  # of the gradient's largest number, relative to the weight of all texts
MEMORY = 10  # steps that L-BFGS remembers
BIAS_PENALTY = 1e-6  # keeps the bias of a class finite if all texts have it
SHRINK, MOST_HALVINGS, ENOUGH = 0.5, 30, 1e-4  # of the line search
NUMBERS_FOR_ONE_THREAD = 100_000


@dataclass(frozen=True)
class Linear:
    """Logits = W x + bias."""

    W: F64  # (C, d)
    bias: F64  # (C,)

    def __call__(self, X: F32, threads: int | None = None) -> F32:
        """Logits (n, C) of features (n, d)."""
        out = np.empty((len(X), len(self.bias)), np.float32)
        features = np.ascontiguousarray(X, np.float32)
        run_workers(fill_logits, _workers(X.size, threads), features, self.W, self.bias, out)
        return out


@dataclass(frozen=True)
class Problem:
    """Texts to learn from: features (d, n), truth (C, n), weights (n,).

    offsets (C, n): logits from elsewhere, to which those of the layer are added. None is 0.
    """

    X: F32
    Y: F32
    weights: F32
    multilabel: bool
    threads: int | None = None
    offsets: F64 | None = None

    @classmethod
    def of(
        cls, X: F32, truth: "np.ndarray", weights: F32 | None, multilabel: bool,
        threads: int | None = None,
    ) -> "Problem":  # fmt: skip
        """The problem of features (n, d) and classes (n, C)."""
        weights = np.ones(len(X), np.float32) if weights is None else weights
        return cls(
            np.ascontiguousarray(X.T, np.float32),
            np.ascontiguousarray(truth.T, np.float32),
            np.ascontiguousarray(weights, np.float32),
            multilabel,
            threads,
        )

    def value(self, parameters: F64, penalty: float) -> tuple[float, F64]:
        """The objective and its gradient (C, d + 1) at parameters of this shape."""
        W, bias = np.ascontiguousarray(parameters[:, :-1]), np.ascontiguousarray(parameters[:, -1])
        R = np.zeros(self.Y.shape) if self.offsets is None else self.offsets.copy()
        losses = np.empty(self.Y.shape[1])
        workers = _workers(self.X.size, self.threads)
        run_workers(
            fill_residuals, workers, self.X, self.Y, self.weights, W, bias, self.multilabel, R,
            losses,
        )  # fmt: skip
        gradient = np.empty(parameters.shape)
        run_workers(fill_gradient, workers, self.X, R, gradient)
        scales = np.full(parameters.shape[1], penalty)
        scales[-1] = BIAS_PENALTY * penalty
        gradient += parameters * scales
        return float(losses.sum() + 0.5 * (scales * parameters**2).sum()), gradient


def move_logistic(problem: Problem, penalty: float, start: Linear) -> Linear:
    """Learn from more texts: the best weights, with a penalty for their distance from `start`."""
    center = np.column_stack([start.W, start.bias])

    def function(moved: F64) -> tuple[float, F64]:
        value, gradient = problem.value(center + moved, 0.0)
        return value + 0.5 * penalty * _dot(moved, moved), gradient + penalty * moved

    enough = TOLERANCE * max(float(problem.weights.sum(dtype=np.float64)), 1e-30)
    found = center + minimise(function, np.zeros_like(center), enough)
    return Linear(np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, -1]))


def fit_logistic(problem: Problem, penalty: float, start: Linear | None = None) -> Linear:
    """The best weights for a penalty. start: weights to begin with."""
    parameters = np.zeros((len(problem.Y), len(problem.X) + 1))
    if start is not None:
        parameters[:, :-1], parameters[:, -1] = start.W, start.bias
    enough = TOLERANCE * max(float(problem.weights.sum(dtype=np.float64)), 1e-30)
    found = minimise(lambda at: problem.value(at, penalty), parameters, enough)
    return Linear(np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, -1]))


def minimise(function: Callable[[F64], tuple[float, F64]], start: F64, enough: float) -> F64:
    """L-BFGS with a halving line search, until no gradient is larger than `enough`."""
    at = start
    value, gradient = function(at)
    history: deque[tuple[F64, F64]] = deque(maxlen=MEMORY)
    for _ in range(MOST_STEPS):
        if np.abs(gradient).max(initial=0) <= enough:
            break
        direction = -_inverse_hessian(gradient, history)
        slope = _dot(direction, gradient)
        if slope >= 0:  # rounding errors: begin again with the gradient
            history.clear()
            direction, slope = -gradient, -_dot(gradient, gradient)
        step = 1.0 if history else 1.0 / max(float(np.abs(gradient).max()), 1.0)
        for _ in range(MOST_HALVINGS):
            moved = at + step * direction
            new_value, new_gradient = function(moved)
            if new_value <= value + ENOUGH * step * slope:
                break
            step *= SHRINK
        else:
            break
        change, turned = moved - at, new_gradient - gradient
        if _dot(change, turned) > 1e-12 * _dot(turned, turned):
            history.append((change, turned))
        at, value, gradient = moved, new_value, new_gradient
    return at


def _inverse_hessian(gradient: F64, history: "deque[tuple[F64, F64]]") -> F64:
    """The product of L-BFGS's estimate with the gradient: the two loops of Nocedal (1980)."""
    q, factors = gradient.copy(), []
    for change, turned in reversed(history):
        factor = _dot(change, q) / _dot(change, turned)
        q -= factor * turned
        factors.append(factor)
    if history:
        change, turned = history[-1]
        q *= _dot(change, turned) / _dot(turned, turned)
    for (change, turned), factor in zip(history, reversed(factors), strict=True):
        q += (factor - _dot(turned, q) / _dot(change, turned)) * change
    return q


def _dot(one: F64, other: F64) -> float:
    """Without BLAS, whose sums depend on the number of threads."""
    return float((one * other).sum())


def _workers(numbers: int, threads: int | None) -> int:
    return (threads or cpu_count()) if numbers > NUMBERS_FOR_ONE_THREAD else 1
