"""Updates of single rows of a table, for the optimizers of `nn/optim.py`.

`rows` (m,) are distinct and `values` (m, width) their gradients; a worker owns a part of them.
Tables may be of any precision (`storage.py`); state and arithmetic are float32 or float64.

A *record* of Adam is all that belongs to a row of a table, side by side: m, v and the step that
they are of, an integer in the place of a float (`stamps` is the same memory, seen as integers).
"""

import math

import numpy as np

from hashembed.compiling import njit
from hashembed.intrinsics import prefetch
from hashembed.storage import load, store

AHEAD = 16  # how many rows before its turn a row is asked for
LINE = 16  # floats in a cache line


@njit(inline="always")
def ask_for(flat, width, row):
    """Prefetch a row of a table that is given as one long array."""
    for j in range(0, width, LINE):
        prefetch(flat, row * width + j)
    prefetch(flat, row * width + width - 1)


@njit(nogil=True, cache=True, error_model="numpy")
def sgd(worker, workers, barrier, table, rows, values, rate):
    """p -= rate * g; `rate` (1,) has the type to compute in."""
    m, width = values.shape
    flat = table.reshape(-1)
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ask_for(flat, width, rows[min(x + AHEAD, m - 1)])
        row = rows[x]
        for j in range(width):
            store(table, row, j, load(table, row, j) - rate[0] * load(values, x, j))


@njit(nogil=True, cache=True, error_model="numpy")
def adagrad(worker, workers, barrier, table, sums, rows, values, rate, epsilon):
    """s += g^2, p -= rate * g / (sqrt(s) + epsilon); with one s a row it adds the mean square."""
    m, width = values.shape
    kind = sums.dtype.type
    rate, epsilon = kind(rate), kind(epsilon)
    flat, flat_sums = table.reshape(-1), sums.reshape(-1)
    rowwise = sums.shape[1] < width
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        ask_for(flat, width, ahead)
        ask_for(flat_sums, sums.shape[1], ahead)
        row = rows[x]
        if rowwise:
            square = kind(0)
            for j in range(width):
                g = load(values, x, j)
                square += g * g
            sums[row, 0] += square / kind(width)
        for j in range(width):
            g = load(values, x, j)
            if not rowwise:
                sums[row, j] += g * g
            s = sums[row, 0 if rowwise else j]
            store(table, row, j, load(table, row, j) - rate * g / (np.sqrt(s) + epsilon))


def record_width(width: int) -> int:
    """Numbers in a record of Adam: 2 width + 1, rounded up to whole or even parts of 16.

    So that a record lies in as few cache lines as it can.
    """
    used = 2 * width + 1
    return 1 << (used - 1).bit_length() if used <= 16 else -(-used // 16) * 16


@njit(inline="always")
def catch_up(table, records, stamps, tails, powers, row, now, betas):
    """Bring a row to step `now`: what Adam does to it while its gradient is zero."""
    kind = records.dtype.type
    width = table.shape[1]
    then = np.int64(stamps[row, 2 * width])
    if then == now:
        return
    stamps[row, 2 * width] = now
    if then == 0:  # never touched: nothing moves
        return
    skipped = now - then
    if skipped < powers.shape[1]:
        decay1, decay2 = powers[0, skipped], powers[1, skipped]
    else:
        decay1, decay2 = betas[0] ** skipped, betas[1] ** skipped
    decay1, decay2 = kind(decay1), kind(decay2)
    tail, epsilon = kind(tails[0, then]), kind(tails[1, then])
    for j in range(width):
        m, v = records[row, j], records[row, width + j]
        store(table, row, j, load(table, row, j) - tail * m / (np.sqrt(v) + epsilon))
        records[row, j] = decay1 * m
        records[row, width + j] = decay2 * v


@njit(nogil=True, cache=True, error_model="numpy")
def adam_catch_up(
    worker, workers, barrier, table, records, stamps, tails, powers, rows, begin, end, now, betas
):
    """Rows (m,), here with repeats, to step `now`; a worker owns a part of begin..end."""
    low = begin + (end - begin) * worker // workers
    high = begin + (end - begin) * (worker + 1) // workers
    width, record = table.shape[1], records.shape[1]
    flat, flat_records = table.reshape(-1), records.reshape(-1)
    m, place = len(rows), 2 * width
    for x in range(m):
        ahead = rows[min(x + 2 * AHEAD, m - 1)]
        if low <= ahead < high:
            prefetch(flat_records, ahead * record + place)
        ahead = rows[min(x + AHEAD, m - 1)]
        if low <= ahead < high and stamps[ahead, place] != now:
            ask_for(flat, width, ahead)
            ask_for(flat_records, record, ahead)
        row = rows[x]
        if low <= row < high:
            catch_up(table, records, stamps, tails, powers, row, now, betas)


@njit(nogil=True, cache=True, error_model="numpy")
def adam(
    worker,
    workers,
    barrier,
    table,
    records,
    stamps,
    tails,
    powers,
    rows,
    values,
    step,
    rate,
    betas,
    epsilon,
):
    """Step number `step` of Adam, from 1 on, for rows that may have missed steps before."""
    kind = records.dtype.type
    beta1, beta2 = kind(betas[0]), kind(betas[1])
    rest1, rest2 = kind(1 - betas[0]), kind(1 - betas[1])
    size = kind(rate / (1 - betas[0] ** step))
    root = kind(1 / math.sqrt(1 - betas[1] ** step))
    small = kind(epsilon)
    m, width = values.shape
    record = records.shape[1]
    flat, flat_records = table.reshape(-1), records.reshape(-1)
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        ask_for(flat, width, ahead)
        ask_for(flat_records, record, ahead)
        row = rows[x]
        catch_up(table, records, stamps, tails, powers, row, step - 1, betas)
        stamps[row, 2 * width] = step
        for j in range(width):
            g = load(values, x, j)
            mean = beta1 * records[row, j] + rest1 * g
            square = beta2 * records[row, width + j] + rest2 * g * g
            records[row, j], records[row, width + j] = mean, square
            change = size * mean / (np.sqrt(square) * root + small)
            store(table, row, j, load(table, row, j) - change)
