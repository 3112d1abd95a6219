"""How large the tables should be: from the distinct n-grams of a text to K and B."""

from math import ceil, log2

import numpy as np

MAX_ROWS = 2_000_000  # 8 MB of importance weights in half precision
MAX_BUCKETS = 200_000
MIN_ROWS = 1_000
MIN_BUCKETS = 1_000


def default_num_buckets(num_embeddings: int, num_hashes: int) -> int:
    """The largest B with K > 10 B, the paper's rule, but at least k."""
    return max(num_hashes, (num_embeddings - 1) // 10)


def choose_sizes(
    distinct: int, num_embeddings: int | None = None, num_buckets: int | None = None
) -> tuple[int, int]:
    """K and B for a text with this many distinct n-grams, unless they are given."""
    K = num_embeddings or int(np.clip(distinct, MIN_ROWS, MAX_ROWS))
    B = num_buckets or int(np.clip(default_num_buckets(K, 2), MIN_BUCKETS, MAX_BUCKETS))
    return K, B


def choose_dim(classes: int) -> int:
    """d: 16, and 8 more whenever the classes double beyond 32."""
    return 8 * max(2, ceil(log2(max(classes, 2))) - 3)
