"""Coordinates in which evidence takes few numbers: the principal axes of weighted vectors.

No function of a linear algebra library is called: their last bits depend on processor and threads,
and the same model should compress to the same bytes everywhere.
"""

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, F64

SHARE = 0.999  # of the weighted squares that the axes keep
_ROWS = 20_000  # that the axes are computed from
_SWEEPS, _TINY = 30, 1e-12


def principal_axes(vectors: F32, weights: F64, most: int) -> F64:
    """Orthonormal axes (C, d) that keep SHARE of the weighted squares, the largest first."""
    importance = np.zeros(len(vectors))
    for column in vectors.T:
        importance += np.square(column, dtype=np.float64)
    chosen = np.sort(np.argsort(-importance * weights, kind="stable")[:_ROWS])
    values, axes = eigenvectors(weighted_products(vectors[chosen], weights[chosen]))
    total = np.cumsum(values)
    needed = int(np.count_nonzero(total < SHARE * total[-1])) + 1
    return np.ascontiguousarray(axes[:, : min(needed, most)])


def weighted_products(vectors: npt.NDArray[np.floating], weights: F64) -> F64:
    """The sum of w v v^T over rows (C, C), added row by row."""
    wide = vectors.astype(np.float64)
    weighted = wide * weights[:, None]
    return np.stack([(weighted[:, c : c + 1] * wide).sum(axis=0) for c in range(wide.shape[1])])


def eigenvectors(symmetric: F64) -> tuple[F64, F64]:
    """Eigenvalues, falling, and eigenvectors as columns, by Jacobi's rotations."""
    a, n = symmetric.copy(), len(symmetric)
    vectors = np.eye(n)
    limit = _TINY * max(float(np.abs(a).max(initial=0)), 1e-300)
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(a[p, q]) <= limit:
                    continue
                rotated = True
                theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
                t = (1.0 if theta >= 0 else -1.0) / (abs(theta) + np.sqrt(theta * theta + 1))
                c = 1 / np.sqrt(t * t + 1)
                _rotate(a, p, q, c, t * c)
                _rotate(a.T, p, q, c, t * c)
                _rotate(vectors.T, p, q, c, t * c)
        if not rotated:
            break
    values = np.diagonal(a)
    order = np.argsort(-values, kind="stable")
    signs = np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(n)] < 0, -1.0, 1.0)
    return values[order], (vectors * signs)[:, order]


def _rotate(rows: F64, p: int, q: int, c: float, s: float) -> None:
    first, second = rows[p].copy(), rows[q].copy()
    rows[p], rows[q] = c * first - s * second, s * first + c * second


def project(vectors: F32, axes: F64) -> F64:
    """vectors (n, C) times axes (C, d), added class by class."""
    out = np.zeros((len(vectors), axes.shape[1]))
    for column, axis in zip(vectors.T, axes, strict=True):
        out += column[:, None].astype(np.float64) * axis
    return out
