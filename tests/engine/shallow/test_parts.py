"""Pieces of the fused kernel on their own: vectors in registers, shards, distinct tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from hashembed.engine.shallow import arrays
from hashembed.engine.shallow.forward import find_distinct
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.parts import dot_rows, log, row_sum
from hashembed.engine.shallow.vectors import (
    larger,
    largest_of,
    load,
    only_first,
    plus,
    scaled,
    size_of,
    store,
    times,
    zero_vector,
)
from hashembed.hashing.scalars import SPREAD
from hashembed.hashing.spec import HashSpec


def operations(width: int):
    @njit
    def compute(table, number):
        columns = table.shape[1]
        for c in range(0, columns, width):
            one, two = load(table, 0, c, width), load(table, 1, c, width)
            store(table, 2, c, plus(one, two))
            store(table, 3, c, plus(one, scaled(number, two)))
            store(table, 4, c, zero_vector(width))
            store(table, 5, c, times(one, two))
            store(table, 6, c, larger(one, size_of(two)))
            store(table, 7, c, only_first(one, 3 - c // width, number))
        return dot_rows(table, 0, table, 1, columns, width), largest_of(load(table, 0, 0, width))

    return compute


@pytest.mark.parametrize("d", [1, 3, 16, 17, 40, 100])
@pytest.mark.parametrize("width", [16, 32])
def test_vectors(d, width):
    blocks = -(-d // width)
    table = np.zeros((9, blocks * width), np.float32)
    table[:, :d] = np.random.default_rng(0).standard_normal((9, d))
    a, b, *_, after = table.copy()
    number = np.float32(2.5)
    product, largest = operations(width)(table, number)
    np.testing.assert_allclose(product, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    assert largest == a[:width].max()
    first = np.where(np.arange(width) < 3 - np.arange(blocks)[:, None], a.reshape(-1, width), 2.5)
    products = [a + b, a + number * b, np.zeros_like(a), a * b]
    want = [a, b, *products, np.maximum(a, abs(b)), first.ravel(), after]
    assert np.array_equal(table, want)


def in_pairs(numbers: np.ndarray) -> np.float32:
    """The sum of a row in the order that the kernels add in."""
    blocks = numbers.reshape(-1, 16)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    while len(total) > 1:
        total = total[: len(total) // 2] + total[len(total) // 2 :]
    return total[0]


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_every_machine_adds_in_this_order(blocks):
    a, b = np.random.default_rng(1).standard_normal((2, 16 * blocks)).astype(np.float32)
    table = np.stack([a, b])
    dot = njit(lambda table: dot_rows(table, 0, table, 1, table.shape[1], 16))
    assert dot(table) == in_pairs(a * b)
    assert njit(lambda table: row_sum(table, 1))(table) == in_pairs(b)
    if blocks == 2:  # however wide the vectors are
        assert njit(lambda table: dot_rows(table, 0, table, 1, 32, 32))(table) == in_pairs(a * b)


def test_logarithm():
    compute = njit(lambda x: log(x))
    bits = np.arange(1, 0x7F800000, 9973, dtype=np.uint32)  # all magnitudes, denormal ones too
    values = np.concatenate([bits.view(np.float32), np.linspace(0.5, 2, 100_001, dtype=np.float32)])
    found = np.array([compute(x) for x in values], np.float64)
    want = np.log(values.astype(np.float64))
    assert (abs(found - want) <= 1e-7 * abs(want)).all()
    assert compute(np.float32(np.inf)) == np.inf
    assert np.isnan(compute(np.float32(np.nan)))


@njit("int64(int64[::1], uint32[::1], uint32[::1], uint64)")
def distinct(marks, places, table, salt):
    return find_distinct(marks, places, table, salt)


def check_distinct(keys: np.ndarray, salt: int = 0) -> None:
    marks, places = keys.copy(), np.empty(len(keys), np.uint32)
    table = np.zeros(2 << max(len(keys), 1).bit_length(), np.uint32)
    count = distinct(marks, places, table, np.uint64(salt))
    _, firsts = np.unique(keys, return_index=True)
    assert np.array_equal(marks[:count], keys[np.sort(firsts)])
    assert np.array_equal(marks[:count][places], keys)


@given(
    st.lists(st.integers(-5, 40) | st.integers(-(2**63), 2**63 - 1), max_size=200),
    st.integers(0, 2**64 - 1),
)
def test_distinct_marks_in_order_of_appearance(keys, salt):
    check_distinct(np.array(keys, np.int64), salt)


def test_distinct_marks_that_all_want_the_last_entry():
    inverse = pow(int(SPREAD), -1, 2**64)
    wanted = np.array([(2**64 - 1 - i) * inverse % 2**64 for i in range(50)], np.uint64)
    check_distinct(np.tile(wanted.view(np.int64), 3))


def test_shards_grow_with_the_batch():
    shards = arrays.shards_for(np.arange(2_000_000))
    assert (np.diff(shards) >= 0).all()
    assert shards[0] == shards[1024] == 1
    assert shards[-1] == arrays.MAX_SHARDS


@pytest.mark.parametrize("rows", [1, 64, 65, 8192, 8193, 150_000, 10_000_000])
def test_bins(rows):
    bins = -(-rows // (1 << arrays.bin_bits_for(rows)))
    assert 1 <= bins <= arrays.MAX_BINS
    assert bins > arrays.MAX_BINS // 2 or rows <= 8192


def test_too_large_a_batch():
    tables = ShallowModel(HashSpec(40, 11, 2), 16, 3).tables
    with pytest.raises(ValueError, match=r"at most 1,073,741,823 n-grams, found 2,000,000,000"):
        arrays.make_scratch(tables, 1, 2_000_000_000, 1, 1)
