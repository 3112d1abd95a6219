"""Counting in fixed memory: the promised bounds, against exact counts."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed.hashing.spec import id_keys
from hashembed.text.counts.distinct import DistinctCounter
from hashembed.text.counts.frequent import SLOT_BYTES, HeavyHitters
from hashembed.text.counts.frequent_kernels import LOAD, PARTS

SMALL = PARTS * SLOT_BYTES * 20  # 20 slots in a table


def stream(seed: int, length: int, exponent: float = 1.3) -> np.ndarray:
    """Keys whose frequencies fall like those of words."""
    return id_keys(np.random.default_rng(seed).zipf(exponent, length) % 10**9)


def part_of(key: int) -> int:
    return (key >> 32 & 0xFFFFFFFF) * PARTS >> 32


def assert_promises(hitters: HeavyHitters, keys: np.ndarray) -> None:
    true = Counter(keys.tolist())
    found, seen, missed = (column.tolist() for column in hitters.items())
    assert len(set(found)) == len(found)
    for key, least, more in zip(found, seen, missed, strict=True):
        assert least <= true[key] <= least + more
    assert max((true[key] for key in true.keys() - set(found)), default=0) <= hitters.floor
    room = int(hitters._summary.tables.shape[1] * LOAD)
    came = Counter(part_of(key) for key in keys.tolist())
    for part in range(PARTS):
        assert hitters._summary.state[part, 0] <= 2 * came[part] / room
    counts = np.arange(1, 50)
    truth = np.array([sum(c >= n for c in true.values()) for n in counts])
    enough = hitters.at_least(counts)
    assert (enough[counts > hitters.floor] >= truth[counts > hitters.floor]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 20_000), st.sampled_from([1.05, 1.3, 2.0]))
def test_promises_hold_when_memory_is_scarce(seed, length, exponent):
    keys = stream(seed, length, exponent)
    hitters = HeavyHitters(SMALL, threads=1)
    hitters.update(keys)
    assert hitters.total == length
    assert_promises(hitters, keys)


def test_promises_hold_for_streams_made_to_hurt():
    once = id_keys(np.arange(30_000))
    for keys in (once, np.repeat(once[:3000], 7), np.tile(once[:3000], 7), np.tile(once[:1], 9999)):
        hitters = HeavyHitters(SMALL, threads=1)
        hitters.update(keys)
        assert_promises(hitters, keys)


def test_scarce_memory_is_scarce():
    """The tests above would prove nothing if nothing were forgotten."""
    keys = stream(0, 20_000)
    hitters = HeavyHitters(SMALL)
    hitters.update(keys)
    assert 0 < hitters.floor < 2 * 20_000 / hitters.capacity
    assert len(hitters.items()[0]) <= hitters.capacity < len(np.unique(keys))


def test_counts_are_exact_where_all_keys_fit():
    keys = stream(1, 50_000)
    hitters = HeavyHitters(8 << 20, threshold=3)
    places = hitters.update(keys)
    found, seen, missed = hitters.items()
    assert dict(zip(found.tolist(), seen.tolist(), strict=True)) == Counter(keys.tolist())
    assert not missed.any()
    assert hitters.floor == 0
    assert hitters.distinct() == len(np.unique(keys))
    counts: Counter[int] = Counter()
    thirds = []
    for place, key in enumerate(keys.tolist()):
        counts[key] += 1
        thirds += [place] if counts[key] == 3 else []
    assert places.tolist() == thirds
    assert (np.diff(seen) <= 0).all()
    assert (hitters.items(3)[1] >= 3).all()


@pytest.mark.parametrize("threads", [2, 3, 16, 99])
def test_neither_threads_nor_batches_matter(threads):
    keys = stream(2, 30_000)
    one = HeavyHitters(SMALL, threshold=4, threads=1)
    places = one.update(keys)
    other = HeavyHitters(SMALL, threshold=4, threads=threads)
    begins = [0, 0, 1, 777, 20_000, 30_000]
    found = [begin + other.update(keys[begin:end]) for begin, end in pairwise(begins)]
    np.testing.assert_array_equal(np.concatenate(found), places)
    for mine, its in zip(other.items(), one.items(), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert other.floor == one.floor
    assert other.distinct() == one.distinct()


def test_distinct_keys_are_estimated_like_the_counter_does():
    keys = stream(3, 50_000, 1.05)
    hitters = HeavyHitters(SMALL)
    hitters.update(keys)
    counter = DistinctCounter()
    counter.update(keys)
    assert hitters.distinct() == counter.estimate()
    counts = np.array([hitters.floor, hitters.floor + 1])
    assert hitters.at_least(counts)[0] == round(counter.estimate())


def test_nothing_at_all():
    hitters = HeavyHitters()
    assert len(hitters.update(np.empty(0, np.int64))) == 0
    assert [len(column) for column in hitters.items()] == [0, 0, 0]
    assert hitters.distinct() == hitters.floor == 0
