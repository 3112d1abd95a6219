"""The most frequent keys of a dataset and their exact counts, on all nodes.

The algorithm is that of `text/counts/exact.py`. Every group of blocks has a sketch of its own, and
sketches add up, cell by cell. Then every group counts the keys of frequent cells exactly, and
counts add up, key by key. If there are too many keys, the counting goes through the range of keys
in several rounds. The result is exact, so it depends on the texts alone.
"""

from typing import Any, NamedTuple

import numpy as np

from hashembed.core.arrays import I64, U8, U16
from hashembed.core.threads import run_workers
from hashembed.distributed.columns import Columns, Skipped
from hashembed.distributed.groups import Group, add_up, fetch, run_groups
from hashembed.hashing.spec import unpack
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.distinct import DistinctCounter
from hashembed.text.counts.exact import (
    CHUNK,
    FrequentKeys,
    best_keys,
    count_exactly,
    new_sketch,
    new_tables,
)
from hashembed.text.counts.kernels import FULL, POSITIONS, Sketch, add_to_sketch
from hashembed.text.pipeline import text_to_bags

CELLS = 1 << 24  # of a sketch, 32 MiB
MOST_KEYS = 1 << 24  # with their counts 256 MiB, that are added up in a round


class Seen(NamedTuple):
    """A sketch of the keys of some texts, and what else one reading finds."""

    cells: U16
    registers: U8  # of a `DistinctCounter`
    total: int  # keys
    skipped: Skipped


class Counts(NamedTuple):
    """Keys of a range, in rising order, and how often each occurs."""

    keys: I64
    counts: I64
    end: int  # of the range: the first high lane that was not counted


class ClusterCounter(FrequentKeys):
    """Counts the keys of a dataset. `memory` bounds the tables of a task, in bytes."""

    def __init__(self, ds: Any, columns: Columns, config: TextConfig, memory: int) -> None:
        self.columns, self.config = columns, config
        self.ds = columns.select(ds)
        self.slots = 1 << max(memory // 2 // 16, 64).bit_length() - 1
        self.cells = min(CELLS, memory // 4)
        self.seen: Seen | None = None
        self._sketch: Any = None  # a reference

    @property
    def skipped(self) -> Skipped:
        """The rows that were left out."""
        return Skipped() if self.seen is None else self.seen.skipped

    def distinct(self) -> DistinctCounter:
        """The counter of distinct keys, after the sketch is filled."""
        counter = DistinctCounter()
        if self.seen is not None:
            counter.registers = np.array(self.seen.registers)
        return counter

    def fill_sketch(self) -> U16:
        """Count all keys in sketches, which are added up."""
        from hashembed.distributed.cluster import load_ray

        if self.seen is None:
            work = _sketch_group, self.columns, self.config, self.cells
            total = add_up(run_groups(self.ds, "sketch", *work), "sketch: sum", _add_seen)
            self.seen = _nothing_seen(self.cells) if total is None else fetch(total)
            self._sketch = load_ray().put(self.seen.cells)
        return self.seen.cells

    def count(self, threshold: int, number: int) -> tuple[I64, I64]:
        """The most frequent keys of cells that reach the threshold, with exact counts."""
        best = np.empty(0, np.int64), np.empty(0, np.int64)
        begin = 0
        while begin < POSITIONS:
            work = (
                _count_group,
                self.columns,
                self.config,
                self._sketch,
                threshold,
                begin,
                self.slots,
            )
            total = add_up(run_groups(self.ds, "count", *work), "count: sum", _add_counts)
            if total is None:
                break
            found: Counts = fetch(total)
            if found.end == begin:
                raise MemoryError("too many n-grams for the memory allowed: raise `memory`")
            keys = np.concatenate([best[0], found.keys])
            best = best_keys(keys, np.concatenate([best[1], found.counts]), number)
            begin = found.end
        return best


def _all_keys(group: Group, columns: Columns, config: TextConfig, skipped: Skipped) -> Any:
    """The keys of a group, a piece of text at a time."""
    for first, table in group.tables():
        texts = columns.read(first, table, skipped).texts
        for piece in pieces(to_arrow(texts), CHUNK):
            yield text_to_bags(piece, config, 1).keys


def _nothing_seen(cells: int) -> Seen:
    return Seen(new_sketch(cells).cells, DistinctCounter().registers, 0, Skipped())


def _sketch_group(group: Group, columns: Columns, config: TextConfig, cells: int) -> Seen:
    """The task: a sketch of the keys of a group."""
    sketch, counter, total, skipped = new_sketch(cells), DistinctCounter(), 0, Skipped()
    for keys in _all_keys(group, columns, config, skipped):
        run_workers(add_to_sketch, 1, keys, sketch)
        counter.update(keys)
        total += len(keys)
    return Seen(sketch.cells, counter.registers, total, skipped)


def _add_seen(one: Seen, two: Seen) -> Seen:
    """Cells add up until they are full."""
    room = FULL - one.cells
    return Seen(
        one.cells + np.minimum(two.cells, room),
        np.maximum(one.registers, two.registers),
        one.total + two.total,
        one.skipped + two.skipped,
    )


def _count_group(
    group: Group,
    columns: Columns,
    config: TextConfig,
    cells: U16,
    threshold: int,
    begin: int,
    slots: int,
) -> Counts:
    """The task: exact counts of the keys of a group, in the range from `begin`."""
    shift = 32 - (len(cells).bit_length() - 1)
    sketch, tables = Sketch(cells, np.uint32(shift)), new_tables(1, slots)
    tables.rounds[0, 0] = begin
    for keys in _all_keys(group, columns, config, Skipped()):
        count_exactly(keys, sketch, threshold, tables)
    _, end, used = tables.rounds[0].tolist()
    if used == slots:  # the range cannot shrink further
        return Counts(np.empty(0, np.int64), np.empty(0, np.int64), begin)
    taken = np.flatnonzero(tables.counts[0])
    slot = taken[np.argsort(tables.keys[0][taken])]
    return Counts(tables.keys[0][slot], tables.counts[0][slot], end)


def _add_counts(one: Counts, two: Counts) -> Counts:
    """Counts of the same key are added; the range is the one that both have counted."""
    end = min(one.end, two.end)
    parts = [_before(part, end) for part in (one, two)]
    keys, where = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, where, np.concatenate([part.counts for part in parts]))
    return _bounded(Counts(keys, counts, end), MOST_KEYS)


def _before(part: Counts, end: int) -> Counts:
    inside = unpack(part.keys)[1] < end
    return part if inside.all() else Counts(part.keys[inside], part.counts[inside], end)


def _bounded(part: Counts, most: int) -> Counts:
    """At most so many keys: the range ends before the others."""
    if len(part.keys) <= most:
        return part
    end = int(np.sort(unpack(part.keys)[1])[most])
    return _before(part, end)._replace(end=end)
