"""How large the tables should be: from the distinct n-grams of a text to K and B."""

from math import log

import numpy as np
import numpy.typing as npt
from numba import njit

from hashembed.hashing import default_num_buckets

MAX_ROWS = 2_000_000  # 8 MB of importance weights in half precision
MAX_BUCKETS = 200_000
MIN_ROWS = 1_000
MIN_BUCKETS = 1_000

_BITS = 1 << 24


@njit(nogil=True, cache=True)
def _mark(keys, bitmap):
    """Set one of 2^24 bits for each key; returns how many are set."""
    for x in range(len(keys)):
        bit = np.uint64(keys[x]) >> np.uint64(40)
        bitmap[bit >> np.uint64(3)] |= np.uint8(1 << (bit & np.uint64(7)))
    ones = 0
    for x in range(len(bitmap)):
        byte = bitmap[x]
        while byte:
            ones += byte & 1
            byte >>= 1
    return ones


def count_distinct(keys: npt.NDArray[np.int64]) -> int:
    """About how many distinct keys there are: linear counting, good to 1% up to 50 million."""
    zeros = _BITS - int(_mark(keys, np.zeros(_BITS // 8, np.uint8)))
    return round(-_BITS * log(max(zeros, 1) / _BITS))


def choose_sizes(
    distinct: int, num_embeddings: int | None = None, num_buckets: int | None = None
) -> tuple[int, int]:
    """K and B for a text with so many distinct n-grams, unless they are given."""
    K = num_embeddings or int(np.clip(distinct, MIN_ROWS, MAX_ROWS))
    B = num_buckets or int(np.clip(default_num_buckets(K, 2), MIN_BUCKETS, MAX_BUCKETS))
    return K, B
