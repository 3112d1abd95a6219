"""The kernel that counts frequent keys in fixed memory: see `text/counts/frequent.py`."""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, I64_2D, I64_3D, U8_2D, Bools
from hashembed.core.intrinsics import prefetch
from hashembed.core.njit import njit
from hashembed.hashing.scalars import lane_b, reduce_range, spread_key
from hashembed.text.counts.distinct_kernels import add_to_registers

PARTS = 16
LOAD = 0.7  # of a part's slots in use when it forgets
_AHEAD = 64  # keys whose slots are prefetched at a time

KEY, SEEN, MISSED = range(3)  # the columns of a slot; one that was never seen is empty
FLOOR, USED = range(2)  # the columns of a part's state: the floor, and slots in use


class Summary(NamedTuple):
    """All that counting changes."""

    tables: I64_3D  # (PARTS, slots, 3)
    salt: np.uint64  # of the slots
    state: I64_2D  # (PARTS, 2)
    registers: U8_2D  # (threads, registers of a `DistinctCounter`)
    precision: int  # of that counter


@njit(error_model="numpy")
def _first_slot(table, key, salt):
    """Where the search for a key begins."""
    return reduce_range(spread_key(key, salt) >> np.uint64(32), len(table))


@njit(error_model="numpy")
def _slot(table, key, salt):
    """Where the key is, or the empty slot where it belongs."""
    i = _first_slot(table, key, salt)
    while table[i, SEEN] and table[i, KEY] != key:
        i += 1
        if i == len(table):
            i = 0
    return i


@njit(error_model="numpy")
def _median(values):
    """The value in the middle when they are sorted, by bisection of their range."""
    low = high = values[0]
    for x in range(len(values)):
        low, high = min(low, values[x]), max(high, values[x])
    while low < high:
        middle = low + (high - low) // 2
        count = 0
        for x in range(len(values)):
            count += values[x] <= middle
        if count > len(values) // 2:
            high = middle
        else:
            low = middle + 1
    return low


@njit(error_model="numpy")
def _forget(table, salt):
    """Drop all keys up to the median of seen + missed -> the median, and how many keys stay."""
    most, n = np.empty(len(table), np.int64), 0
    for i in range(len(table)):
        if table[i, SEEN]:
            most[n] = table[i, SEEN] + table[i, MISSED]
            n += 1
    floor = _median(most[:n])
    kept, used = np.empty((n // 2 + 1, 3), np.int64), 0
    for i in range(len(table)):
        if table[i, SEEN] and table[i, SEEN] + table[i, MISSED] > floor:
            for column in range(3):
                kept[used, column] = table[i, column]
            used += 1
    for i in range(len(table)):
        for column in range(3):
            table[i, column] = 0
    for x in range(used):
        i = _slot(table, kept[x, KEY], salt)
        for column in range(3):
            table[i, column] = kept[x, column]
    return floor, used


@njit(native=True, nogil=True, error_model="numpy")
def count_keys(
    worker: int,
    workers: int,
    barrier: I64,
    keys: I64,
    summary: Summary,
    threshold: int,
    marks: Bools,
) -> None:
    """Count the keys of this worker's parts; mark those whose certain count reaches `threshold`."""
    tables, salt, state = summary.tables, summary.salt, summary.state
    registers, precision = summary.registers[worker], summary.precision
    limit = np.int64(tables.shape[1] * LOAD)
    waiting, m, x = np.empty(_AHEAD, np.int64), 0, 0
    while x < len(keys) or m:
        while x < len(keys) and m < _AHEAD:
            part = reduce_range(lane_b(keys[x]), PARTS)
            waiting[m] = x
            if part % workers == worker:
                prefetch(tables[part], _first_slot(tables[part], keys[x], salt))
                m += 1
            x += 1
        for j in range(m):
            key = keys[waiting[j]]
            part = reduce_range(lane_b(key), PARTS)
            table = tables[part]
            i = _slot(table, key, salt)
            if table[i, SEEN] == 0:
                add_to_registers(key, registers, precision)
                if state[part, USED] >= limit:
                    state[part, FLOOR], state[part, USED] = _forget(table, salt)
                    i = _slot(table, key, salt)
                table[i, KEY], table[i, MISSED] = key, state[part, FLOOR]
                state[part, USED] += 1
            table[i, SEEN] += 1
            if table[i, SEEN] == threshold:
                marks[waiting[j]] = True
        m = 0
