"""The hash functions that kernels call, against those of NumPy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hashembed.hashing import scalars as hashing_numba
from hashembed.hashing.spec import (
    MAX_SIZE,
    HashSpec,
    derive_seeds,
    fmix32,
    id_keys,
    murmur3_32,
    reduce_range,
    row_hash,
    unpack,
)

patient = settings(deadline=None)  # Numba compiles inside the first example

u32 = st.integers(0, 2**32 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(1, MAX_SIZE) | st.sampled_from([1, 2, 1000, 2**31, MAX_SIZE - 1, MAX_SIZE])
# B and k, with k <= B
bucket_sizes = sizes.flatmap(lambda B: st.tuples(st.just(B), st.integers(1, min(4, B))))


@njit
def numba_murmur(data, seed):
    h = np.uint32(seed)
    body = len(data) - len(data) % 4
    for i in range(0, body, 4):
        block = np.uint32(0)
        for j in range(4):
            block |= np.uint32(data[i + j]) << np.uint32(8 * j)
        h = hashing_numba.murmur_absorb(h, hashing_numba.murmur_scramble(np.uint32(block)))
    if body < len(data):
        block = np.uint32(0)
        for j in range(len(data) - body):
            block |= np.uint32(data[body + j]) << np.uint32(8 * j)
        h = np.uint32(h ^ hashing_numba.murmur_scramble(np.uint32(block)))
    return hashing_numba.fmix32(np.uint32(h ^ np.uint32(len(data))))


@njit
def numba_lanes(keys):
    a, b = np.empty(len(keys), np.uint32), np.empty(len(keys), np.uint32)
    packed = np.empty_like(keys)
    for j in range(len(keys)):
        a[j], b[j] = hashing_numba.lane_a(keys[j]), hashing_numba.lane_b(keys[j])
        packed[j] = hashing_numba.pack(a[j], b[j])
    return a, b, packed


@njit
def numba_id_keys(ids, column):
    keys = np.empty_like(ids)
    for j in range(len(ids)):
        keys[j] = hashing_numba.id_key(ids[j], column)
    return keys


@njit
def numba_fmix32(x):
    y = np.empty_like(x)
    for j in range(len(x)):
        y[j] = hashing_numba.fmix32(x[j])
    return y


@njit
def numba_rows(a, seed, K):
    rows = np.empty(len(a), np.int64)
    for j in range(len(a)):
        rows[j] = hashing_numba.reduce_range(hashing_numba.row_hash(a[j], seed), K)
    return rows


@njit
def numba_buckets(a, b, seeds, B):
    buckets = np.empty((len(a), len(seeds)), np.int64)
    for j in range(len(a)):
        for i in range(len(seeds)):
            h = hashing_numba.bucket_hash(a[j], b[j], seeds[i])
            buckets[j, i] = hashing_numba.reduce_range(h, B)
    return buckets


@patient
@given(st.binary(max_size=40), u32)
def test_numba_murmur(data, seed):
    assert numba_murmur(np.frombuffer(data, np.uint8), seed) == murmur3_32(data, seed)


@patient
@given(st.lists(i64, min_size=1))
def test_numba_keys(ids):
    ids = np.array(ids, np.int64)
    a, b, packed = numba_lanes(ids)
    for mine, reference in zip((a, b), unpack(ids), strict=True):
        np.testing.assert_array_equal(mine, reference, strict=True)
    np.testing.assert_array_equal(packed, ids, strict=True)
    for column in (0, 1, 65535):
        want = id_keys(ids, column)
        np.testing.assert_array_equal(numba_id_keys(ids, column), want, strict=True)
    np.testing.assert_array_equal(numba_fmix32(a), fmix32(a), strict=True)


@patient
@given(st.lists(i64, min_size=1), sizes, bucket_sizes, i64)
def test_numba_rows_and_buckets(keys, K, B_k, seed):
    B, k = B_k
    keys = np.array(keys, np.int64)
    a, b, _ = numba_lanes(keys)
    seeds = derive_seeds(seed, k)
    rows = numba_rows(a, seeds[0], K)
    np.testing.assert_array_equal(rows, reduce_range(row_hash(a, seeds[0]), K), strict=True)

    ids, zero = rows.astype(np.uint32), np.zeros_like(b)
    for indexing, lanes in (("independent", (a, b)), ("shared", (ids, zero))):
        expected_rows, expected = HashSpec(K, B, k, indexing, seed)(keys)
        np.testing.assert_array_equal(rows, expected_rows, strict=True)
        found = numba_buckets(*lanes, seeds[1:], B)
        np.testing.assert_array_equal(found, expected, strict=True)
