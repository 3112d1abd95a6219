"""How large the tables should be: from the distinct n-grams of a text to K and B."""

from math import ceil, log, log2

import numpy as np
import numpy.typing as npt

from hashembed.compiling import njit
from hashembed.hashing import default_num_buckets
from hashembed.threads import cpu_count, run_workers, wait_for_all

MAX_ROWS = 2_000_000  # 8 MB of importance weights in half precision
MAX_BUCKETS = 200_000
MIN_ROWS = 1_000
MIN_BUCKETS = 1_000

_BITS = 1 << 24


@njit(nogil=True, cache=True)
def _mark(worker, workers, barrier, keys, bitmaps):
    """Set one of 2^24 bits for each key, each worker in its own map -> how many are set in any."""
    own, words = bitmaps[worker], bitmaps.shape[1]
    for x in range(len(keys) * worker // workers, len(keys) * (worker + 1) // workers):
        bit = np.uint64(keys[x]) >> np.uint64(40)
        own[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    wait_for_all(barrier, workers)
    ones = 0
    for x in range(words * worker // workers, words * (worker + 1) // workers):
        word = np.uint64(0)
        for other in range(workers):
            word |= bitmaps[other, x]
        while word:  # LLVM knows this as one instruction
            word &= word - np.uint64(1)
            ones += 1
    return ones


def count_distinct(keys: npt.NDArray[np.int64], threads: int | None = None) -> int:
    """About how many distinct keys there are: linear counting, good to 1% up to 50 million."""
    workers = (threads or cpu_count()) if len(keys) > 1_000_000 else 1
    ones = run_workers(_mark, workers, keys, np.zeros((workers, _BITS // 64), np.uint64))
    return round(-_BITS * log(max(_BITS - sum(ones), 1) / _BITS))


def choose_sizes(
    distinct: int, num_embeddings: int | None = None, num_buckets: int | None = None
) -> tuple[int, int]:
    """K and B for a text with so many distinct n-grams, unless they are given."""
    K = num_embeddings or int(np.clip(distinct, MIN_ROWS, MAX_ROWS))
    B = num_buckets or int(np.clip(default_num_buckets(K, 2), MIN_BUCKETS, MAX_BUCKETS))
    return K, B


def choose_dim(classes: int) -> int:
    """d: 16, and 8 more whenever the classes double beyond 32."""
    return 8 * max(2, ceil(log2(max(classes, 2))) - 3)
