"""The hash of `hashing/spec.py` inside Triton kernels: 32-bit unsigned arithmetic on tiles."""

import triton
import triton.language as tl

from hashembed.hashing import locate
from hashembed.hashing.spec import GOLDEN as _GOLDEN
from hashembed.hashing.spec import ID_ROUNDS

INDEPENDENT = tl.constexpr(locate.INDEPENDENT)
IDENTITY = tl.constexpr(locate.IDENTITY)  # from here on the key is the row
DIRECT = tl.constexpr(locate.DIRECT)
ROUND_0 = tl.constexpr(ID_ROUNDS[0])
ROUND_1 = tl.constexpr(ID_ROUNDS[1])
ROUND_2 = tl.constexpr(ID_ROUNDS[2])
ROUND_3 = tl.constexpr(ID_ROUNDS[3])
GOLDEN = tl.constexpr(_GOLDEN)


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
def mixed(ids, columns):
    """Integer ids and their columns -> the two lanes of their keys."""
    a, b = ids.to(tl.uint32), (ids >> 32).to(tl.uint32)
    salt = columns.to(tl.uint32) * GOLDEN
    a ^= fmix32(b + (salt + ROUND_0))
    b ^= fmix32(a + (salt + ROUND_1))
    a ^= fmix32(b + (salt + ROUND_2))
    b ^= fmix32(a + (salt + ROUND_3))
    return a, b


@triton.jit
def lanes(keys, t, MIX: tl.constexpr):
    """Keys -> their two lanes. With MIX they are the ids of tokens t, in MIX columns in turn."""
    if MIX:
        return mixed(keys, t % MIX)
    else:  # noqa: RET505
        return keys.to(tl.uint32), (keys >> 32).to(tl.uint32)


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
