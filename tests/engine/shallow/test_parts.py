"""Pieces of the fused kernel on their own: vectors in registers, shards, distinct tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from hashembed.engine.shallow import arrays
from hashembed.engine.shallow.forward import find_distinct
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.vectors import (
    dot,
    load_row,
    plus,
    plus_scaled,
    store_row,
    zero_vector,
)
from hashembed.hashing.scalars import SPREAD
from hashembed.hashing.spec import HashSpec


def operations(d: int):
    @njit
    def compute(table, number):
        store_row(table, 2, plus(load_row(table, 0, d), load_row(table, 1, d)))
        store_row(table, 3, plus_scaled(load_row(table, 0, d), number, load_row(table, 1, d)))
        store_row(table, 4, zero_vector(d))
        return dot(load_row(table, 0, d), load_row(table, 1, d))

    return compute


@pytest.mark.parametrize("d", [1, 3, 16, 17, 40])
def test_vectors(d):
    table = np.random.default_rng(0).standard_normal((6, d)).astype(np.float32)
    a, b, *_, after = table.copy()
    product = operations(d)(table, np.float32(2.5))
    np.testing.assert_allclose(product, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    want = [a, b, a + b, a + np.float32(2.5) * b, np.zeros(d), after]
    np.testing.assert_allclose(table, want, rtol=1e-6, atol=1e-6)


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
