"""Updates of single rows of a table, for the optimizers of `nn/optim/optimizers.py`.

`rows` (m,) are distinct and `values` (m, width) their gradients; a worker owns a part of them.
Tables may be of any precision (`nn/cpu/precision.py`); state and arithmetic are float32 or float64.

Under Adam and momentum a row moves in every step, with or without a gradient. Here it moves only
when it is needed, and then makes up for the steps it missed (`catch_up`). For that there are

- a *record* for each row, side by side: the moments m, and v under Adam, and the step that they are
  of, an integer in the place of a float (`stamps` is the same memory, seen as integers);
- a *history* (5, ring), float64: for each past step, at its number modulo `ring`, how far a row
  last updated then has moved since, in units of m (`TAIL`) or of m / (sqrt(v) + `EPS`); and how
  much all steps up to then have shrunk m, v and the weights, as logarithms to the base 2.
"""

import numpy as np

from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.nn.cpu.precision import load, store

LINE = 16  # floats in a cache line
TAIL, EPS, LOG_M, LOG_V, LOG_KEPT = range(5)  # rows of a history


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


def record_width(width: int, moments: int = 2) -> int:
    """Numbers in a record: the moments and a stamp, rounded up to whole or even parts of 16.

    So that a record lies in as few cache lines as it can.
    """
    used = moments * width + 1
    return 1 << (used - 1).bit_length() if used <= 16 else -(-used // 16) * 16


@njit(inline="always")
def catch_up(table, records, stamps, history, powers, row, now, moments, move):
    """Bring a row to step `now`: what happens to it while its gradient is zero.

    `powers` (3, n) are the factors by which m, v and the weights shrink in the last n steps.
    Without `move` the row has been written meanwhile: it stays, and only its moments go on.
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
            kept = kind(2.0 ** history[LOG_KEPT, here])
            for j in range(width):
                store(table, row, j, kept * load(table, row, j))
        return
    if skipped < powers.shape[1]:
        decay1, decay2, kept = powers[0, skipped], powers[1, skipped], powers[2, skipped]
    else:
        decay1 = 2.0 ** (history[LOG_M, here] - history[LOG_M, there])
        decay2 = 2.0 ** (history[LOG_V, here] - history[LOG_V, there])
        kept = 2.0 ** (history[LOG_KEPT, here] - history[LOG_KEPT, there])
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


@njit(nogil=True, cache=True, error_model="numpy")
def catch_up_rows(
    worker,
    workers,
    barrier,
    table,
    records,
    stamps,
    history,
    powers,
    rows,
    begin,
    end,
    now,
    moments,
    move,
):
    """Rows (m,), here with repeats, to step `now`; a worker owns a part of begin..end."""
    low = begin + (end - begin) * worker // workers
    high = begin + (end - begin) * (worker + 1) // workers
    width, record = table.shape[1], records.shape[1]
    flat, flat_records = table.reshape(-1), records.reshape(-1)
    m, place = len(rows), moments * width
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
            catch_up(table, records, stamps, history, powers, row, now, moments, move)


@njit(nogil=True, cache=True, error_model="numpy")
def adam(
    worker, workers, barrier, table, records, stamps, history, powers, rows, values, step, numbers
):
    """Step number `step` of Adam, from 1 on, for rows that may have missed steps before.

    `numbers`: beta1, 1 - beta1, beta2, 1 - beta2, the rate over 1 - beta1^step, 1 over the root of
    1 - beta2^step, epsilon, and what weight decay leaves of a weight.
    """
    kind = records.dtype.type
    beta1, rest1, beta2, rest2 = (
        kind(numbers[0]),
        kind(numbers[1]),
        kind(numbers[2]),
        kind(numbers[3]),
    )
    size, root, small, kept = kind(numbers[4]), kind(numbers[5]), kind(numbers[6]), kind(numbers[7])
    m, width = values.shape
    record = records.shape[1]
    flat, flat_records = table.reshape(-1), records.reshape(-1)
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        ask_for(flat, width, ahead)
        ask_for(flat_records, record, ahead)
        row = rows[x]
        catch_up(table, records, stamps, history, powers, row, step - 1, 2, True)
        stamps[row, 2 * width] = step
        for j in range(width):
            g = load(values, x, j)
            mean = beta1 * records[row, j] + rest1 * g
            square = beta2 * records[row, width + j] + rest2 * g * g
            records[row, j], records[row, width + j] = mean, square
            change = size * mean / (np.sqrt(square) * root + small)
            store(table, row, j, kept * load(table, row, j) - change)


@njit(nogil=True, cache=True, error_model="numpy")
def momentum(
    worker, workers, barrier, table, records, stamps, history, powers, rows, values, step, numbers
):
    """m = mu m + g, p -= a m + c g, for rows that may have missed steps; numbers: mu, a, c."""
    kind = records.dtype.type
    mu, of_m, of_g = kind(numbers[0]), kind(numbers[1]), kind(numbers[2])
    m, width = values.shape
    record = records.shape[1]
    flat, flat_records = table.reshape(-1), records.reshape(-1)
    for x in range(m * worker // workers, m * (worker + 1) // workers):
        ahead = rows[min(x + AHEAD, m - 1)]
        ask_for(flat, width, ahead)
        ask_for(flat_records, record, ahead)
        row = rows[x]
        catch_up(table, records, stamps, history, powers, row, step - 1, 1, True)
        stamps[row, width] = step
        for j in range(width):
            g = load(values, x, j)
            moment = mu * records[row, j] + g
            records[row, j] = moment
            store(table, row, j, load(table, row, j) - of_m * moment - of_g * g)
