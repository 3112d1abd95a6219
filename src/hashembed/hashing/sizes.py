"""How large the tables should be: from the distinct n-grams of a text to K and B."""

from math import ceil, log2

import numpy as np

MAX_ROWS = 2_000_000
MAX_BUCKETS = 200_000  # where K alone decides
MIN_ROWS = 1_000
MIN_BUCKETS = 1_000
FAST_BUCKETS = 50_000  # that fit into a processor's cache
FILE_BYTES = 15_000_000  # of the tables of all members, with 8 bits for each number


def default_num_buckets(num_embeddings: int, num_hashes: int) -> int:
    """The largest B with K > 10 B, the paper's rule, but at least k."""
    return max(num_hashes, (num_embeddings - 1) // 10)


def choose_sizes(
    distinct: int,
    dim: int,
    members: int = 1,
    num_embeddings: int | None = None,
    num_buckets: int | None = None,
) -> tuple[int, int]:
    """K and B for a text with this many distinct n-grams, unless they are given.

    Shared component vectors cost accuracy, most of all on small data sets. So there are as many as
    rows, as long as the tables of all members fit into FILE_BYTES. If K is given, there are at
    least as many as the paper's rule asks for.
    """
    each = FILE_BYTES // members
    K = num_embeddings or int(np.clip(distinct, MIN_ROWS, min(MAX_ROWS, each // 4)))
    if num_buckets:
        return K, num_buckets
    least = stream_buckets(K) if num_embeddings else MIN_BUCKETS
    return K, int(np.clip((each - 2 * K) // dim, least, max(K, MIN_BUCKETS)))


def fast_sizes(
    distinct: int, num_embeddings: int | None = None, num_buckets: int | None = None
) -> tuple[int, int]:
    """K and B for the effort "fast": the paper's rule, but more buckets while they are few."""
    K = num_embeddings or int(np.clip(distinct, MIN_ROWS, MAX_ROWS))
    return K, num_buckets or max(stream_buckets(K), min(K, FAST_BUCKETS))


def stream_buckets(num_embeddings: int) -> int:
    """B where the text is not known in advance: the paper's rule, within limits."""
    return int(np.clip(default_num_buckets(num_embeddings, 2), MIN_BUCKETS, MAX_BUCKETS))


def choose_dim(classes: int) -> int:
    """d: 16, and 8 more whenever the classes double beyond 32."""
    return 8 * max(2, ceil(log2(max(classes, 2))) - 3)
