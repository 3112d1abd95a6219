"""The frequent keys of a stream and their counts, in fixed memory, in one pass.

A table counts keys until it is full. Then it forgets the half that was seen least, and remembers
the largest count that it forgot, the *floor*. A key that comes (again) later starts at zero; its
missed occurrences are at most the floor at that time:

    seen <= true count <= seen + missed        for every key in the table
    true count <= floor                        for every key that is not
    floor <= 2 N / n                           after N keys, with space for n

Proof of the last line: when the floor rises by s, the n / 2 larger of the n values
seen + missed - floor each fall by s, and each key of the stream raised one of these values by 1. If
all distinct keys fit, the floor stays 0 and every count is exact. This is Misra and Gries' summary
in the manner of Manku and Motwani's lossy counting: counters are never decremented, so the bounds
are tighter.

The bits of a key choose one of 16 tables, and each table belongs to one thread. So the result
depends only on the stream, not on threads or batches. All of the above holds for each table, with
N and n about a sixteenth of the whole.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64, U8
from hashembed.core.intrinsics import prefetch
from hashembed.core.njit import njit
from hashembed.core.threads import cpu_count, run_workers
from hashembed.hashing.scalars import SALT, lane_b, reduce_range, spread_key
from hashembed.text.counts.distinct import DistinctCounter, add_to_registers

PARTS = 16
SLOT_BYTES = 24
_LOAD = 0.7  # of a part's slots in use when it forgets
_LEAST_SLOTS = 8  # in a part
_AHEAD = 64  # keys whose slots are prefetched at a time

KEY, SEEN, MISSED = range(3)  # the columns of a slot; one that was never seen is empty
FLOOR, USED = range(2)  # the columns of a part's state: the floor, and slots in use


class Summary(NamedTuple):
    """All that counting changes."""

    tables: I64  # (PARTS, slots, 3)
    salt: np.uint64  # of the slots
    state: I64  # (PARTS, 2)
    registers: U8  # (threads, registers of a `DistinctCounter`)
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
def _forget(table, salt):
    """Drop all keys up to the median of seen + missed -> the median, and how many keys stay."""
    old = table[table[:, SEEN] > 0]
    most = old[:, SEEN] + old[:, MISSED]
    floor = np.partition(most, len(most) // 2)[len(most) // 2]
    table[:] = 0
    used = 0
    for x in range(len(old)):
        if most[x] > floor:
            table[_slot(table, old[x, KEY], salt)] = old[x]
            used += 1
    return floor, used


@njit(nogil=True, cache=True, error_model="numpy")
def _update(worker, workers, barrier, keys, summary, threshold, marks):
    """Count the keys of this worker's parts; mark those whose certain count reaches `threshold`."""
    tables, salt, state = summary.tables, summary.salt, summary.state
    registers, precision = summary.registers[worker], summary.precision
    limit = np.int64(tables.shape[1] * _LOAD)
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


class HeavyHitters:
    """Counts keys in a fixed amount of memory; rare keys may be forgotten.

    The keys must be hashes already, as those of `hashing/spec.py` are.

    Args:
        memory: bytes for the table.
        threshold: `update` reports keys when they have been seen this often.
        threads: None is all cores. The result does not depend on it.
    """

    def __init__(
        self, memory: int = 64 << 20, threshold: int = 1, threads: int | None = None
    ) -> None:
        slots = max(memory // (SLOT_BYTES * PARTS), _LEAST_SLOTS)
        self.threshold = threshold
        self.threads = min(threads or cpu_count(), PARTS)
        self.total = 0
        self._distinct = DistinctCounter()
        self._summary = Summary(
            tables=np.zeros((PARTS, slots, 3), np.int64),
            salt=SALT,
            state=np.zeros((PARTS, 2), np.int64),
            registers=np.zeros((self.threads, len(self._distinct.registers)), np.uint8),
            precision=self._distinct.precision,
        )

    @property
    def capacity(self) -> int:
        """How many keys fit, n above; a little less if hashes are uneven."""
        return PARTS * int(self._summary.tables.shape[1] * _LOAD)

    @property
    def floor(self) -> int:
        """Every key with a larger true count is in the table; 0 when nothing was forgotten."""
        return int(self._summary.state[:, FLOOR].max())

    def update(self, keys: I64) -> I64:
        """Count some keys -> where, in rising order, a key reached `threshold` occurrences.

        A key that was forgotten is counted from zero again, and so may be reported again.
        """
        marks = np.zeros(len(keys), np.bool_)
        run_workers(
            _update,
            self.threads,
            np.ascontiguousarray(keys, np.int64),
            self._summary,
            self.threshold,
            marks,
        )
        self.total += len(keys)
        return np.flatnonzero(marks).astype(np.int64)

    def items(self, least: int = 1) -> tuple[I64, I64, I64]:
        """All keys that were certainly seen `least` times: keys, seen, missed, frequent first.

        Equally frequent keys are in the order of the keys.
        """
        rows = self._summary.tables.reshape(-1, 3)
        rows = rows[rows[:, SEEN] >= max(least, 1)]
        rows = rows[np.lexsort((rows[:, KEY], -rows[:, SEEN]))]
        return rows[:, KEY].copy(), rows[:, SEEN].copy(), rows[:, MISSED].copy()

    def at_least(self, counts: I64) -> I64:
        """An upper bound on the number of keys that are as frequent as each of these counts.

        For counts up to the floor it is the number of all distinct keys.
        """
        rows = self._summary.tables.reshape(-1, 3)
        most = np.sort((rows[:, SEEN] + rows[:, MISSED])[rows[:, SEEN] > 0])
        known = len(most) - np.searchsorted(most, counts)
        return np.where(counts > self.floor, known, round(self.distinct())).astype(np.int64)

    def distinct(self) -> float:
        """The number of distinct keys: exact while nothing was forgotten, else an estimate."""
        if self.floor == 0:
            return float(self._summary.state[:, USED].sum())
        self._summary.registers.max(axis=0, out=self._distinct.registers)
        return self._distinct.estimate()
