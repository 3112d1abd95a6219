"""From a key to its row and buckets inside kernels: `HashSpec.__call__` for one token.

Every CPU kernel locates tokens with these functions. They are inlined. If `indexing` is a
compile-time constant, the compiler removes its branches and vectorises a loop over tokens.
"""

import numpy as np

from hashembed.core.njit import njit
from hashembed.hashing.scalars import bucket_hash, lane_a, lane_b, reduce_range, row_hash
from hashembed.hashing.spec import INDEXINGS, HashSpec

# What kernels call the indexing: its place in INDEXINGS, and a fourth code for `HashSpec.direct`.
# From IDENTITY on the key is the row.
INDEPENDENT, SHARED, IDENTITY, DIRECT = range(4)


def indexing_code(spec: HashSpec) -> int:
    """The code of a specification's indexing."""
    return DIRECT if spec.direct else INDEXINGS.index(spec.indexing)


@njit(inline="always")
def row_of(key, seed, K, indexing):
    """The row of a key; `seed` is the first of the seeds."""
    if indexing >= IDENTITY:
        return np.int64(key)
    return reduce_range(row_hash(lane_a(key), seed), K)


@njit(inline="always")
def bucket_of(i, key, row, seed, B, indexing):
    """The bucket of a key under hash function i; `seed` is seed i + 1."""
    if indexing == DIRECT and i == 0:
        return np.int64(row)
    if indexing == INDEPENDENT:
        return reduce_range(bucket_hash(lane_a(key), lane_b(key), seed), B)
    return reduce_range(bucket_hash(np.uint32(row), np.uint32(0), seed), B)
