"""Fits component vectors to given vectors of words, by conjugate gradients.

    minimise  sum over words w of  c_w | V_w - sum_x a_wx E[bucket_wx] |^2  +  ridge |E|^2

The weights a come from P and the hash, so the problem is linear in E. Rows of E that few words
share are held near 0 by the ridge, which keeps the vectors of unseen words small.
"""

from dataclasses import dataclass

import numpy as np

from hashembed.core.arrays import F32, F64, I64, U32
from hashembed.core.threads import cpu_count, run_workers
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.vectors.embed_kernels import embed_bags

STEPS = 25
RIDGE = 0.03  # of the mean of the diagonal


@dataclass(frozen=True)
class Bags:
    """out[w] = the sum of weights[x] * table[places[x]] for x from offsets[w] to offsets[w + 1]."""

    places: U32
    weights: F32
    offsets: I64

    def apply(self, table: F32, threads: int | None) -> F32:
        """The sums (bags, width) of rows of a table."""
        out = np.zeros((len(self.offsets) - 1, table.shape[1]), np.float32)
        arguments = table, self.places, self.weights, self.offsets, out
        run_workers(embed_bags, threads or cpu_count(), *arguments)
        return out

    def transposed(self, rows: int) -> "Bags":
        """The same matrix with columns as bags: `rows` is the number of rows of the table."""
        order = np.argsort(self.places, kind="stable")
        owners = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(self.places, minlength=rows), out=offsets[1:])
        return Bags(owners[order].astype(np.uint32), self.weights[order], offsets)


def fit_rows(
    bags: Bags, rows: int, targets: F32, importance: F64, threads: int | None, ridge: float = RIDGE
) -> F32:
    """The table (rows, d), padded, whose sums over bags are near the targets (bags, d).

    importance (bags,): c, of which only the proportions matter. The result is the same for any
    number of threads.
    """
    dim = targets.shape[1]
    scales = np.sqrt(importance / importance.mean()).astype(np.float32)
    matrix = Bags(
        bags.places, bags.weights * np.repeat(scales, np.diff(bags.offsets)), bags.offsets
    )
    back = matrix.transposed(rows)
    wanted = padded_rows(len(targets), dim)
    wanted[:, :dim] = targets * scales[:, None]
    owners = np.repeat(np.arange(rows), np.diff(back.offsets))
    diagonal = np.bincount(owners, back.weights.astype(np.float64) ** 2, rows)
    diagonal += ridge * diagonal.mean() + 1e-30
    extra = np.float32(ridge * diagonal.mean())
    inverse = (1 / diagonal).astype(np.float32)[:, None]

    found = padded_rows(rows, dim)
    found[:] = 0
    residual = back.apply(wanted, threads)
    direction: F32 = residual * inverse
    product = _products(residual, direction)
    for _ in range(STEPS):
        image = matrix.apply(direction, threads)
        curvature = _products(image, image) + float(extra) * _products(direction, direction)
        length = _ratio(product, curvature)
        found += length * direction
        residual -= length * (back.apply(image, threads) + extra * direction)
        step = residual * inverse
        last, product = product, _products(residual, step)
        direction = step + _ratio(product, last) * direction
    return found


def _products(one: F32, other: F32) -> F64:
    """The dot product of each pair of columns."""
    total = np.zeros(one.shape[1], np.float64)
    for first in range(0, len(one), 1 << 14):
        part = slice(first, first + (1 << 14))
        total += (one[part] * other[part]).sum(axis=0, dtype=np.float64)
    return total


def _ratio(one: F64, other: F64) -> F32:
    return np.asarray(one / np.maximum(other, 1e-30), np.float32)
