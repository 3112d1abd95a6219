"""The hash of `hashing/spec.py` inside Triton kernels: 32-bit unsigned arithmetic on tiles."""

import triton
import triton.language as tl

from hashembed.hashing import locate
from hashembed.hashing.spec import ID_ROUNDS

INDEPENDENT = tl.constexpr(locate.INDEPENDENT)
IDENTITY = tl.constexpr(locate.IDENTITY)  # from here on the key is the row
DIRECT = tl.constexpr(locate.DIRECT)
ROUND_0 = tl.constexpr(ID_ROUNDS[0])
ROUND_1 = tl.constexpr(ID_ROUNDS[1])
ROUND_2 = tl.constexpr(ID_ROUNDS[2])
ROUND_3 = tl.constexpr(ID_ROUNDS[3])


@triton.jit
def fmix32(x):
    """MurmurHash3's finalizer."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def reduce_range(lane, n):
    """Lanes -> [0, n): floor(lane * n / 2^32)."""
    return ((lane.to(tl.uint64) * n.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def lanes(keys, MIX: tl.constexpr):
    """Keys, or with MIX integer ids -> their two lanes."""
    a, b = keys.to(tl.uint32), (keys >> 32).to(tl.uint32)
    if MIX:
        a ^= fmix32(b + ROUND_0)
        b ^= fmix32(a + ROUND_1)
        a ^= fmix32(b + ROUND_2)
        b ^= fmix32(a + ROUND_3)
    return a, b


@triton.jit
def row_of(keys, a, seeds, K, INDEXING: tl.constexpr):
    """The importance rows of keys."""
    if INDEXING >= IDENTITY:
        return keys
    else:  # noqa: RET505
        return reduce_range(fmix32(a ^ tl.load(seeds).to(tl.uint32)), K)


@triton.jit
def bucket_of(i, row, a, b, seeds, B, INDEXING: tl.constexpr):
    """The buckets of keys under function i."""
    seed = tl.load(seeds + 1 + i).to(tl.uint32)
    if INDEXING != INDEPENDENT:
        a, b = row.to(tl.uint32), tl.zeros_like(b)
    bucket = reduce_range(fmix32(fmix32(a ^ seed) + (b ^ seed)), B)
    if INDEXING == DIRECT:
        bucket = tl.where(i == 0, row, bucket)
    return bucket
