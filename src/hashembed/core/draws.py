"""Draws initial values of large tables in parallel, the same for any number of threads."""

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.threads import run_workers

PART = 1 << 18  # numbers that one generator draws


def fill_normal(table: F32, std: float, seed: tuple[int, ...], threads: int) -> None:
    """table (rows, width) ~ N(0, std^2); the table may be a view.

    Rows are drawn in parts, each by a generator seeded with `seed` and the part's number.
    """
    rows, width = table.shape
    stride = max(1, PART // max(width, 1))
    parts = -(-rows // stride)

    def draw(worker: int, workers: int, barrier: I64) -> None:
        drawn = np.empty((min(stride, rows), width), np.float32)
        for part in range(worker, parts, workers):
            block = table[part * stride : (part + 1) * stride]
            values = drawn[: len(block)]
            rng = np.random.Generator(np.random.SFC64([*seed, part]))
            rng.standard_normal(dtype=np.float32, out=values)
            np.multiply(values, np.float32(std), out=values)
            _copy_rows(block, values)

    run_workers(draw, max(1, min(threads, parts)))


def _copy_rows(target: F32, source: F32) -> None:
    """target = source. Where rows of the target are apart, copying whole rows is much faster."""
    if target.shape[1] and target.strides[1] == target.itemsize:
        row = f"V{target.shape[1] * target.itemsize}"
        target, source = target.view(row), source.view(row)
    np.copyto(target, source)
