"""Kernels that count keys, look them up, and code sorted strings.

    add_to_sketch    cells that are never below the count of a key   a worker owns cells
    count_chosen     exact counts of keys in frequent cells          a worker owns keys
    look_up          keys -> ranks                                   a worker owns tokens
    front_code       sorted strings -> what each adds to the last    one worker

Keys are hashes already, so their bits are used directly: the high lane chooses a cell of the sketch
and the round in which a key is counted, the low lane chooses its owner. A slot depends on both
lanes and on a secret number (see `SALT`).
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I32, I64, I64_2D, U8, U16, U32, Bools
from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.core.threads import wait_for_all
from hashembed.hashing.scalars import lane_a, lane_b, spread_key, u32, u64

FULL = np.uint16(0xFFFF)  # a cell that counts no further
POSITIONS = 1 << 32  # values of the high lane
LOAD = 0.7  # the load above which a table drops half of its range

_entry = njit(native=True, nogil=True, error_model="numpy")


class Sketch(NamedTuple):
    """Counts that are never too low: a key adds to the cell of its high lane's first bits."""

    cells: U16  # (a power of two,)
    shift: np.uint32  # 32 minus the number of those bits


class Passed(NamedTuple):
    """A buffer for the keys that pass the sketch."""

    keys: I64  # (number of keys + 1,), each worker's from where its share of the keys begins
    found: I64  # (workers,), how many passed


class CountTables(NamedTuple):
    """Open hash tables of keys and their counts, one for each worker."""

    keys: I64_2D  # (workers, slots)
    counts: I64_2D  # (workers, slots); 0 marks an empty slot
    rounds: I64_2D  # (workers, 3): the range of high lanes counted in this round, and how many keys
    salt: np.uint64


# --- counting ---------------------------------------------------------------------------------


@njit(inline="always")
def _cell(key, shift):
    return np.int64(lane_b(key) >> shift)


@_entry
def add_to_sketch(worker: int, workers: int, barrier: I64, keys: I64, sketch: Sketch) -> None:
    """Add one to the cell of every key."""
    cells, shift = sketch
    low = len(cells) * worker // workers
    high = len(cells) * (worker + 1) // workers
    last = len(keys) - 1
    for x in range(len(keys)):
        prefetch(cells, _cell(keys[min(x + AHEAD, last)], shift))
        cell = _cell(keys[x], shift)
        if low <= cell < high and cells[cell] != FULL:
            cells[cell] += np.uint16(1)


@_entry
def count_cells(cells: U16, histogram: I64) -> None:
    """histogram[v] += the number of cells that hold v."""
    for cell in range(len(cells)):
        histogram[cells[cell]] += 1


@njit(inline="always")
def _first_slot(key, salt, mask):
    """Where the search for a key begins in an open table of mask + 1 slots, a power of two."""
    return u32(spread_key(key, salt) >> u64(32)) & mask


@njit(inline="always")
def _add(keys, counts, key, count, salt):
    """Add to a key's count in an open table -> 1 for a new key, else 0."""
    mask = u32(len(keys) - 1)
    slot = _first_slot(key, salt, mask)
    while counts[slot] and keys[slot] != key:
        slot = (slot + u32(1)) & mask
    fresh = counts[slot] == 0
    keys[slot] = key
    counts[slot] += count
    return np.int64(fresh)


@njit
def _halve(keys, counts, low, high, salt):
    """Keep only the keys of the lower half of the range -> the new end, and their number."""
    middle = low + (high - low) // 2
    kept = 0
    for slot in range(len(keys)):
        if counts[slot] and np.int64(lane_b(keys[slot])) < middle:
            kept += 1
    old_keys, old_counts = np.empty(kept, np.int64), np.empty(kept, np.int64)
    x = 0
    for slot in range(len(keys)):
        if counts[slot] and np.int64(lane_b(keys[slot])) < middle:
            old_keys[x], old_counts[x] = keys[slot], counts[slot]
            x += 1
    counts[:] = 0
    for x in range(kept):
        _add(keys, counts, old_keys[x], old_counts[x], salt)
    return middle, kept


@_entry
def count_chosen(
    worker: int,
    workers: int,
    barrier: I64,
    keys: I64,
    sketch: Sketch,
    threshold: int,
    passed: Passed,
    tables: CountTables,
) -> None:
    """Count the keys whose cells hold at least `threshold`, each worker those that it owns.

    A table that gets too full gives up the upper half of its range.
    """
    cells, shift = sketch
    chosen, found = passed
    n = len(keys)
    first, last = n * worker // workers, n * (worker + 1) // workers
    at = first
    for x in range(first, last):
        prefetch(cells, _cell(keys[min(x + AHEAD, last - 1)], shift))
        chosen[at] = keys[x]
        at += cells[_cell(keys[x], shift)] >= threshold
    found[worker] = at - first
    wait_for_all(barrier, workers)

    table, count, salt = tables.keys[worker], tables.counts[worker], tables.salt
    low, high, used = tables.rounds[worker]
    most = np.int64(LOAD * len(table))
    for other in range(workers):
        begin = n * other // workers
        for x in range(begin, begin + found[other]):
            if used == len(table):  # the range cannot shrink further: the caller stops
                break
            key = chosen[x]
            position = np.int64(lane_b(key))
            mine = np.int64((u64(lane_a(key)) * u64(workers)) >> u64(32)) == worker
            if mine and low <= position < high:
                used += _add(table, count, key, 1, salt)
                while used > most and high - low > 1:
                    high, used = _halve(table, count, low, high, salt)
    tables.rounds[worker, 1], tables.rounds[worker, 2] = high, used


# --- look-up ----------------------------------------------------------------------------------


@_entry
def build_index(keys: I64, slots: I32, salt: np.uint64) -> None:
    """Slots (a power of two) of an open table: rank + 1 of the key there, or 0."""
    mask = u32(len(slots) - 1)
    for rank in range(len(keys)):
        slot = _first_slot(keys[rank], salt, mask)
        while slots[slot]:
            slot = (slot + u32(1)) & mask
        slots[slot] = rank + 1


@njit(inline="always")
def _rank(key, known, slots, salt):
    mask = u32(len(slots) - 1)
    slot = _first_slot(key, salt, mask)
    while slots[slot] and known[slots[slot] - 1] != key:
        slot = (slot + u32(1)) & mask
    return np.int64(slots[slot]) - 1


@_entry
def look_up(
    worker: int,
    workers: int,
    barrier: I64,
    keys: I64,
    known: I64,
    slots: I32,
    salt: np.uint64,
    ranks: I64,
) -> None:
    """ranks (N,) of keys (N,); -1 for an unknown key."""
    n = len(keys)
    mask = u32(len(slots) - 1)
    last = n * (worker + 1) // workers
    for x in range(n * worker // workers, last):
        later = keys[min(x + AHEAD, last - 1)]
        prefetch(slots, np.int64(_first_slot(later, salt, mask)))
        ranks[x] = _rank(keys[x], known, slots, salt)


@_entry
def first_places(ranks: I64, places: I64, seen: Bools) -> int:
    """Write to `places` where ranks not `seen` before occur first, and mark them -> how many."""
    count = 0
    for x in range(len(ranks)):
        rank = ranks[x]
        if rank >= 0 and not seen[rank]:
            seen[rank] = True
            places[count] = x
            count += 1
    return count


# --- strings ----------------------------------------------------------------------------------


@_entry
def front_code(data: U8, offsets: I64, order: U32, shared: U8, tails: U32, out: U8) -> int:
    """Strings in `order`: how many bytes each shares with the one before, and how many it adds.

    The added bytes go to `out` -> their number.
    """
    o, before, before_size = 0, 0, 0
    for x in range(len(order)):
        begin = offsets[order[x]]
        size = offsets[order[x] + 1] - begin
        same = 0
        while same < min(size, before_size, 255) and data[begin + same] == data[before + same]:
            same += 1
        shared[x], tails[x] = same, size - same
        for i in range(begin + same, begin + size):
            out[o] = data[i]
            o += 1
        before, before_size = begin, size
    return o


@_entry
def front_decode(rest: U8, shared: U8, tails: U32, order: U32, offsets: I64, out: U8) -> None:
    """The inverse: string x goes to out[offsets[order[x]]] and on."""
    i, before = 0, 0
    for x in range(len(order)):
        o = offsets[order[x]]
        for j in range(shared[x]):
            out[o + j] = out[before + j]
        for j in range(shared[x], shared[x] + tails[x]):
            out[o + j] = rest[i]
            i += 1
        before = o
