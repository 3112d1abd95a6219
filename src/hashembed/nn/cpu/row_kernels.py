"""Updates of single rows of a table, for the optimizers of `nn/optim/optimizers.py`.

`rows` (m,) are distinct and `values` (m, width) their gradients; a worker owns a part of them.
Tables may have any precision (`nn/cpu/precision.py`); state and arithmetic are float32 or float64.

Under Adam and momentum a row moves in every step, with or without a gradient. Here it moves only
when it is needed, and then makes up for the steps that it missed (`catch_up`). That takes

- a *record* for each row: the moments m, and v under Adam, and then a stamp, the step that they
  are of, an integer in the place of a float;
- a *history* (5, ring), float64: for each past step, at its number modulo `ring`, how far a row
  last updated then has moved since, in units of m (`TAIL`) or of m / (sqrt(v) + `EPS`); and by
  how much all steps up to then have shrunk m, v and the weights, as logarithms to the base 2.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F32_2D, F64_2D, I32_2D, I64
from hashembed.core.intrinsics import AHEAD
from hashembed.core.njit import njit
from hashembed.nn.cpu.powers import power_of_two
from hashembed.nn.cpu.precision import load, prefetch_number, prefetch_row, store

TAIL, EPS, LOG_M, LOG_V, LOG_KEPT = range(5)  # rows of a history


class LazyTable(NamedTuple):
    """A table whose rows may have pending updates."""

    table: F32_2D  # (n, width)
    records: F32_2D  # (n, record_width)
    stamps: I32_2D  # (n, record_width): the memory of the records as integers
    history: F64_2D  # (5, ring)
    factors: F64_2D  # (3, m): by which m, v and the weights shrink in the last 0, 1, 2, ... steps


@njit(native=True, nogil=True, error_model="numpy")
def sgd(
    worker: int, workers: int, barrier: I64, table: F32_2D, rows: I64, values: F32_2D, rate: F32
) -> None:
    """p -= rate * g; `rate` (1,) has the type to compute in."""
    m, width = values.shape
    step = rate[0]
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        prefetch_row(table, rows[min(x + AHEAD, m - 1)])
        row = rows[x]
        for j in range(width):
            store(table, row, j, load(table, row, j) - step * load(values, x, j))


@njit(native=True, nogil=True, error_model="numpy")
def adagrad(
    worker: int,
    workers: int,
    barrier: I64,
    table: F32_2D,
    sums: F32_2D,
    rows: I64,
    values: F32_2D,
    rate: float,
    epsilon: float,
) -> None:
    """s += g^2, p -= rate * g / (sqrt(s) + epsilon).

    If `sums` has one column, a row has one s, and the mean square is added to it.
    """
    m, width = values.shape
    kind = sums.dtype.type
    step, added, zero = kind(rate), kind(epsilon), kind(0)
    rowwise = sums.shape[1] < width
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        prefetch_row(table, ahead)
        prefetch_row(sums, ahead)
        row = rows[x]
        if rowwise:
            square = zero
            for j in range(width):
                g = load(values, x, j)
                square += g * g
            sums[row, 0] += square / kind(width)
            root = np.sqrt(sums[row, 0]) + added
            for j in range(width):
                change = step * load(values, x, j) / root
                store(table, row, j, load(table, row, j) - change)
        else:
            for j in range(width):
                g = load(values, x, j)
                s = load(sums, row, j) + g * g
                store(sums, row, j, s)
                change = step * g / (np.sqrt(s) + added)
                store(table, row, j, load(table, row, j) - change)


def record_width(width: int, moments: int = 2) -> int:
    """Numbers in a record: the moments and a stamp, rounded up to a power of two or to whole 16s.

    So a record lies in as few cache lines as possible.
    """
    used = moments * width + 1
    return 1 << (used - 1).bit_length() if used <= 16 else -(-used // 16) * 16


@njit(forceinline=True)
def catch_up(table, records, stamps, history, factors, row, now, moments, move):
    """Bring a row to step `now`: apply what happens to it while its gradient is zero.

    Without `move` somebody wrote to the row meanwhile: it stays, and only its moments decay. The
    first five are the fields of the lazy state. Reading a field of a tuple counts a reference,
    which is an atomic operation, so kernels do it once and not for each row.
    """
    kind = records.dtype.type
    width, ring = table.shape[1], history.shape[1]
    then = np.int64(stamps[row, moments * width])
    if then == now:
        return
    stamps[row, moments * width] = now
    here, there, skipped = now % ring, then % ring, now - then
    if then == 0:  # never touched: it has no momentum
        if move and history[LOG_KEPT, here] != 0:
            kept = kind(power_of_two(history[LOG_KEPT, here]))
            for j in range(width):
                store(table, row, j, kept * load(table, row, j))
        return
    if skipped < factors.shape[1]:
        decay1, decay2, kept = factors[0, skipped], factors[1, skipped], factors[2, skipped]
    else:
        decay1 = power_of_two(history[LOG_M, here] - history[LOG_M, there])
        decay2 = power_of_two(history[LOG_V, here] - history[LOG_V, there])
        kept = power_of_two(history[LOG_KEPT, here] - history[LOG_KEPT, there])
    decay1, decay2, kept = kind(decay1), kind(decay2), kind(kept)
    tail, epsilon = kind(history[TAIL, there]), kind(history[EPS, there])
    for j in range(width):
        m = records[row, j]
        change = tail * m
        records[row, j] = decay1 * m
        if moments == 2:
            v = records[row, width + j]
            change = change / (np.sqrt(v) + epsilon)
            records[row, width + j] = decay2 * v
        if move:
            store(table, row, j, kept * (load(table, row, j) - change))


@njit(native=True, nogil=True, error_model="numpy")
def catch_up_rows(
    worker: int,
    workers: int,
    barrier: I64,
    lazy: LazyTable,
    rows: I64,
    begin: int,
    end: int,
    now: int,
    moments: int,
    move: bool,
) -> None:
    """Bring rows (m,), here with repeats, to step `now`; a worker owns a part of begin..end."""
    low = begin + (end - begin) * worker // workers
    high = begin + (end - begin) * (worker + 1) // workers
    table, records, stamps = lazy.table, lazy.records, lazy.stamps
    history, factors = lazy.history, lazy.factors
    m, place = len(rows), moments * table.shape[1]
    for x in range(m):
        ahead = rows[min(x + 2 * AHEAD, m - 1)]
        if low <= ahead < high:
            prefetch_number(records, ahead, place)
        ahead = rows[min(x + AHEAD, m - 1)]
        if low <= ahead < high and stamps[ahead, place] != now:
            prefetch_row(table, ahead)
            prefetch_row(records, ahead)
        row = rows[x]
        if low <= row < high:
            catch_up(table, records, stamps, history, factors, row, now, moments, move)


class AdamStep(NamedTuple):
    """The numbers of one step of Adam."""

    step: int  # from 1 on
    beta1: float
    rest1: float  # 1 - beta1
    beta2: float
    rest2: float  # 1 - beta2
    size: float  # the rate over 1 - beta1^step
    root: float  # 1 over the root of 1 - beta2^step
    epsilon: float
    kept: float  # by which weight decay multiplies a weight


@njit(native=True, nogil=True, error_model="numpy")
def adam(
    worker: int,
    workers: int,
    barrier: I64,
    lazy: LazyTable,
    rows: I64,
    values: F32_2D,
    numbers: AdamStep,
) -> None:
    """A step of Adam for rows that may have missed steps before."""
    table, records, stamps, step = lazy.table, lazy.records, lazy.stamps, numbers.step
    history, factors = lazy.history, lazy.factors
    kind = records.dtype.type
    beta1, rest1 = kind(numbers.beta1), kind(numbers.rest1)
    beta2, rest2 = kind(numbers.beta2), kind(numbers.rest2)
    size, root = kind(numbers.size), kind(numbers.root)
    epsilon, kept = kind(numbers.epsilon), kind(numbers.kept)
    m, width = values.shape
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        prefetch_row(table, ahead)
        prefetch_row(records, ahead)
        row = rows[x]
        catch_up(table, records, stamps, history, factors, row, step - 1, 2, True)
        stamps[row, 2 * width] = step
        for j in range(width):
            g = load(values, x, j)
            mean = beta1 * records[row, j] + rest1 * g
            square = beta2 * records[row, width + j] + rest2 * g * g
            records[row, j], records[row, width + j] = mean, square
            change = size * mean / (np.sqrt(square) * root + epsilon)
            store(table, row, j, kept * load(table, row, j) - change)


class MomentumStep(NamedTuple):
    """The numbers of one step with momentum: m = mu m + g, p -= of_m m + of_g g."""

    step: int  # from 1 on
    mu: float
    of_m: float
    of_g: float


@njit(native=True, nogil=True, error_model="numpy")
def momentum(
    worker: int,
    workers: int,
    barrier: I64,
    lazy: LazyTable,
    rows: I64,
    values: F32_2D,
    numbers: MomentumStep,
) -> None:
    """A step with momentum for rows that may have missed steps before."""
    table, records, stamps, step = lazy.table, lazy.records, lazy.stamps, numbers.step
    history, factors = lazy.history, lazy.factors
    kind = records.dtype.type
    mu, of_m, of_g = kind(numbers.mu), kind(numbers.of_m), kind(numbers.of_g)
    m, width = values.shape
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        prefetch_row(table, ahead)
        prefetch_row(records, ahead)
        row = rows[x]
        catch_up(table, records, stamps, history, factors, row, step - 1, 1, True)
        stamps[row, width] = step
        for j in range(width):
            g = load(values, x, j)
            moment = mu * records[row, j] + g
            records[row, j] = moment
            store(table, row, j, load(table, row, j) - of_m * moment - of_g * g)
