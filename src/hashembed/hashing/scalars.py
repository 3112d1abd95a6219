"""The hash of `hashing/spec.py` on scalars, inlined into kernels.

Numba widens every product of 32-bit integers to 64 bits. Each step casts back to uint32, which
costs nothing, so the arithmetic is that of the specification.
"""

import os

import numpy as np

from hashembed.core.njit import njit
from hashembed.hashing.spec import GOLDEN, ID_ROUNDS

u32 = np.uint32
u64 = np.uint64

_C1, _C2 = u32(0xCC9E2D51), u32(0x1B873593)
_F1, _F2 = u32(0x85EBCA6B), u32(0xC2B2AE35)
_BODY = u32(0xE6546B64)
# The slot of a key in a hash table depends on this number, which differs in every process. The hash
# of words is public, so an attacker could otherwise write texts whose words all fall into one slot.
# It changes running time only. Kernels take it as an argument; Numba would compile in a global.
SALT = u64(int.from_bytes(os.urandom(8), "little"))
SPREAD = u64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_R0, _R1, _R2, _R3 = (u32(r) for r in ID_ROUNDS)
_GOLDEN = u32(GOLDEN)


@njit(inline="always")
def fmix32(x):
    """Finalizer of MurmurHash3."""
    x = u32(x ^ (x >> u32(16)))
    x = u32(x * _F1)
    x = u32(x ^ (x >> u32(13)))
    x = u32(x * _F2)
    return u32(x ^ (x >> u32(16)))


@njit(inline="always")
def murmur_scramble(block):
    """A four-byte block, before it enters the state of MurmurHash3."""
    block = u32(block * _C1)
    block = u32((block << u32(15)) | (block >> u32(17)))
    return u32(block * _C2)


@njit(inline="always")
def murmur_absorb(h, scrambled):
    """The state of MurmurHash3 after one more scrambled block."""
    h = u32(h ^ scrambled)
    h = u32((h << u32(13)) | (h >> u32(19)))
    return u32(h * u32(5) + _BODY)


@njit(inline="always")
def reduce_range(lane, n):
    """A lane -> [0, n) by multiply-high."""
    return np.int64((u64(lane) * u64(n)) >> u64(32))


@njit(inline="always")
def spread_key(key, salt):
    """64 bits for a hash table to take a slot from, the highest ones first."""
    return (u64(key) ^ salt) * SPREAD


@njit(inline="always")
def pack(a, b):
    """Two lanes -> a key."""
    return np.int64((u64(b) << u64(32)) | u64(a))


@njit(inline="always")
def lane_a(key):
    """The low lane of a key."""
    return u32(u64(key) & u64(0xFFFFFFFF))


@njit(inline="always")
def lane_b(key):
    """The high lane of a key."""
    return u32(u64(key) >> u64(32))


@njit(inline="always")
def id_key(i, column):
    """Key of an integer id in a column."""
    a, b, salt = lane_a(i), lane_b(i), u32(u32(column) * _GOLDEN)
    a = u32(a ^ fmix32(u32(b + u32(_R0 + salt))))
    b = u32(b ^ fmix32(u32(a + u32(_R1 + salt))))
    a = u32(a ^ fmix32(u32(b + u32(_R2 + salt))))
    b = u32(b ^ fmix32(u32(a + u32(_R3 + salt))))
    return pack(a, b)


@njit(inline="always")
def row_hash(a, seed):
    """The hash behind an importance row."""
    return fmix32(u32(a ^ seed))


@njit(inline="always")
def bucket_hash(a, b, seed):
    """The hash behind a bucket."""
    return fmix32(u32(fmix32(u32(a ^ seed)) + u32(b ^ seed)))
