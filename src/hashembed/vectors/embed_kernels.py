"""The vectors of words, from the entries that hold their keys."""

from hashembed.core.arrays import F32, F32_2D, I64, U32
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import LANES
from hashembed.engine.shallow.vectors import store
from hashembed.vectors.step_kernels import WIDE, fetch_row, weighted_sum


@njit(native=True, nogil=True, error_model="numpy")
def embed_bags(
    worker: int, workers: int, barrier: I64, E: F32_2D, buckets: U32, weights: F32, offsets: I64,
    out: F32_2D,
) -> None:  # fmt: skip
    """out[w] = the sum of weights[x] * E[buckets[x]] for x from offsets[w] to offsets[w + 1]."""
    columns, words = E.shape[1], len(offsets) - 1
    for w in range(words * worker // workers, words * (worker + 1) // workers):
        first, count = offsets[w], offsets[w + 1] - offsets[w]
        if w + 1 < words:
            for x in range(offsets[w + 1], offsets[w + 2]):
                fetch_row(E, buckets[x])
        for c in range(0, columns - WIDE + 1, WIDE):
            store(out, w, c, weighted_sum(E, buckets, weights, first, count, c, WIDE))
        for c in range(columns // WIDE * WIDE, columns, LANES):
            store(out, w, c, weighted_sum(E, buckets, weights, first, count, c, LANES))
