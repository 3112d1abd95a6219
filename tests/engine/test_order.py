"""The order of a pass: every document once, by the seed, in blocks where asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed.engine import order
from hashembed.engine.order import block_shuffle, pass_order
from hashembed.hashing.bags import Bags


def bags_of(count):
    return Bags(np.empty(0, np.int64), np.zeros(count + 1, np.int64))


@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 9), st.integers(0, 99))
def test_every_document_once(count, rows, blocks, seed):
    found = block_shuffle(np.random.default_rng(seed), count, rows, blocks)
    assert found.dtype == np.int64
    assert np.array_equal(np.sort(found), np.arange(count))


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9))
def test_only_few_blocks_are_read_at_a_time(count, rows, blocks):
    found = block_shuffle(np.random.default_rng(0), count, rows, blocks) // rows
    first = {block: int(np.flatnonzero(found == block)[0]) for block in set(found.tolist())}
    last = {block: int(np.flatnonzero(found == block)[-1]) for block in first}
    for place in range(0, len(found), max(1, len(found) // 7)):
        active = [block for block in first if first[block] <= place <= last[block]]
        assert len(active) <= blocks


def test_a_sorted_file_is_mixed():
    labels = np.repeat(np.arange(10), 1000)
    mixed = labels[block_shuffle(np.random.default_rng(0), 10_000, 100, 25)]
    for start in range(0, 10_000, 500):
        counts = np.bincount(mixed[start : start + 500], minlength=10)
        assert np.count_nonzero(counts) >= 7


@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_seed_and_pass_decide(shuffle):
    bags = bags_of(20_000)
    found = pass_order(bags, 1, 0, shuffle)
    assert np.array_equal(found, pass_order(bags, 1, 0, shuffle))
    for seed, number in ((1, 1), (2, 0), (-1, 0)):
        assert not np.array_equal(found, pass_order(bags, seed, number, shuffle))


def test_many_ngrams_are_read_in_blocks(monkeypatch):
    bags = Bags(np.zeros(30, np.int64), np.arange(31))
    assert np.array_equal(pass_order(bags, 0, 0, None), pass_order(bags, 0, 0, "full"))
    monkeypatch.setattr(order, "FULL_SHUFFLE", 29)
    monkeypatch.setattr(order, "BLOCK_ROWS", 3)
    assert np.array_equal(pass_order(bags, 0, 0, None), pass_order(bags, 0, 0, "blocks"))
    assert not np.array_equal(pass_order(bags, 0, 0, None), pass_order(bags, 0, 0, "full"))
