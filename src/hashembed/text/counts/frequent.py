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

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.threads import cpu_count, run_workers
from hashembed.hashing.scalars import SALT
from hashembed.text.counts.distinct import DistinctCounter
from hashembed.text.counts.frequent_kernels import (
    FLOOR,
    KEY,
    LOAD,
    MISSED,
    PARTS,
    SEEN,
    USED,
    Summary,
    count_keys,
)

SLOT_BYTES = 24
_LEAST_SLOTS = 8  # in a part


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
        return PARTS * int(self._summary.tables.shape[1] * LOAD)

    @property
    def floor(self) -> int:
        """Every key with a larger true count is in the table; 0 when nothing was forgotten."""
        return int(self._summary.state[:, FLOOR].max())

    def floor_above(self, min_count: int) -> int:
        """How much more often than `min_count` a key must occur to be in the table for certain."""
        return self.floor

    def update(self, keys: I64) -> I64:
        """Count some keys -> where, in rising order, a key reached `threshold` occurrences.

        A key that was forgotten is counted from zero again, and so may be reported again.
        """
        marks = np.zeros(len(keys), np.bool_)
        run_workers(
            count_keys,
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
