"""The shallow model, fused: bag -> linear -> softmax, gradients and row updates in one kernel.

A naive kernel mostly waits for memory, because the rows of large tables are in no cache. But of the
n-grams of a batch (its *tokens*) only a third to a half are distinct. So this kernel does the work
once for each distinct token, in pieces that fit into a core's own cache:

    phase          owned by    what it does
    count_tokens   documents   the row of P of each token; how many tokens each shard (a set of
                               rows of P) has
    sort_tokens    documents   sort tokens into shards; in a shard they keep the documents' order
    embed_shard    shards      find the distinct tokens, hash them, gather their hash vectors once,
                               and sum them for each document: partial[shard, document]
    errors_of      documents   h = sum of partial; logits, softmax, loss, g = dloss / dh
    teach_shard    shards      v = sum of g for each distinct token; from v the gradient of its row
                               of P, which only this shard holds: update it. Sort (bucket, weight,
                               token) into bins, which are ranges of rows of E
    update_bin     bins        gradients of rows of E: the sums of weight * v; update them
    update_output  classes     update the output layer

In each phase the workers own different documents, shards, bins or classes; between phases they wait
for each other. The division of a batch into shards and bins depends only on its size. So the order
of every sum, and the result, is the same for any number of workers.

The optimizer is Adagrad with one accumulator for each row (the mean square of the row's gradient).
It needs one square root for each row instead of d, and little state. Rare tokens get full steps, so
one or two passes are enough.

The kernels of a usual model have its width and its hash as compile-time constants; other models
have a kernel that takes them as numbers. All give the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F32_2D, I64, U32
from hashembed.core.checks import whole_number
from hashembed.core.intrinsics import prefetch
from hashembed.core.njit import njit
from hashembed.core.threads import wait_for_all
from hashembed.engine.shallow.arrays import LANES, Job
from hashembed.engine.shallow.backward import errors_of, teach_shard, update_bin, update_output
from hashembed.engine.shallow.forward import count_tokens, embed_shard, make_step, sort_tokens
from hashembed.engine.shallow.parts import add_scores, hash_keys, hash_vector
from hashembed.engine.shallow.vectors import plus, store, zero_vector
from hashembed.hashing.locate import INDEPENDENT, indexing_code
from hashembed.hashing.spec import HashSpec

MAX_DIM = 16_384  # the width of vectors; a batch has one for each token


class Kernels(NamedTuple):
    """The compiled functions for some models; see the functions of these names below."""

    train: Callable[..., Any]
    scores: Callable[..., Any]


def kernels_for(spec: HashSpec, d: int, importance: bool) -> Kernels:
    """The kernels for this hash and width; without compiled ones they are compiled on first use."""
    whole_number("embedding_dim", d, 1, MAX_DIM)
    usual = spec.num_hashes == 2 and importance and indexing_code(spec) == INDEPENDENT
    if usual and d <= LANES:
        return FOR_16
    return FOR_32 if usual and d <= 2 * LANES else FOR_ANY


@njit(inline="always")
def share(count, worker, workers):
    """The part of `count` things that a worker owns: from where to where."""
    return count * worker // workers, count * (worker + 1) // workers


@njit(inline="always")
def add_tokens(count, E, records, rows, buckets, column, width, k, importance):
    """The sum of a part of the hash vectors of a document's tokens."""
    total = zero_vector(width)
    for t in range(count):
        v = hash_vector(E, records, rows[t], buckets, t, column, width, k, importance)
        total = plus(total, v)
    return total


@njit(inline="always")
def score_document(
    keys, E, records, W, bias, seeds, K, B, columns, width, wide, k, importance, indexing,
    rows, buckets, h, z,
):  # fmt: skip
    """z (C,) = the logits of a document; rows (tokens,), buckets (k, tokens), h (1, columns) are
    scratch.
    """
    count = len(keys)
    hash_keys(keys, seeds, K, B, k, indexing, rows, buckets)
    for t in range(count):
        if importance:
            prefetch(records, rows[t])
        for i in range(k):
            prefetch(E, buckets[i, t])
    for c in range(0, columns - wide + 1, wide):
        store(h, 0, c, add_tokens(count, E, records, rows, buckets, c, wide, k, importance))
    for c in range(columns // wide * wide, columns, width):
        store(h, 0, c, add_tokens(count, E, records, rows, buckets, c, width, k, importance))
    add_scores(h, 0, W, bias, columns, width, z)


def _train(name: str, width: int, wide: int, usual: bool) -> Any:
    """The kernel `train`.

    Args:
        name: of the kernel in the library.
        width: of the pieces that rows are taken in.
        wide: the same for those phases that take larger pieces first, as far as they go.
        usual: whether rows have `wide` columns, k is 2, and the hash is the default one.

    These are compile-time constants: loops unroll, branches vanish. They are separate arguments of
    the phases too: a field of a tuple would not be a constant.
    """

    @njit(native=name, nogil=True, error_model="numpy")
    def train(worker: int, workers: int, barrier: I64, job: Job) -> int:
        """All of `job.batches`, by all workers together -> the number of batches done.

        That is fewer than all when a loss is not finite: training stops before that update.
        """
        columns = wide if usual else job.tables.E.shape[1]
        k = 2 if usual else len(job.tables.seeds) - 1
        importance = True if usual else job.importance
        indexing = INDEPENDENT if usual else job.indexing
        bins, classes = job.scratch.bin_begins.shape[1] - 1, len(job.tables.bias)
        batches, losses = len(job.batches.rates), job.batches.losses
        for number in range(batches):
            step = make_step(number, worker, workers, job)
            low, high = share(step.shards, worker, workers)
            count_tokens(step, job, indexing)
            wait_for_all(barrier, workers)
            sort_tokens(step, job, indexing)
            wait_for_all(barrier, workers)
            for s in range(low, high):
                embed_shard(s, step, job, columns, width, wide, k, importance, indexing)
            wait_for_all(barrier, workers)
            errors_of(step, job, columns, width)
            wait_for_all(barrier, workers)
            for q in range(step.first, step.last):
                if not np.isfinite(losses[q]):
                    return number
            for s in range(high - 1, low - 1, -1):  # the last one is still in the cache
                teach_shard(s, step, job, columns, width, wide, k, importance)
            wait_for_all(barrier, workers)
            low, high = share(bins, worker, workers)
            for r in range(low, high):
                update_bin(r, step, job, columns, width, wide, importance)
            low, high = share(classes, worker, workers)
            update_output(low, high, step, job, columns, width)
            wait_for_all(barrier, workers)
        return batches

    return train


def _scores(name: str, width: int, wide: int, usual: bool) -> Any:
    """The kernel `scores`; the arguments are those of `_train`."""

    @njit(native=name, nogil=True, error_model="numpy")
    def scores(
        worker: int,
        workers: int,
        barrier: I64,
        E: F32_2D,
        records: F32_2D,
        W: F32_2D,
        bias: F32,
        seeds: U32,
        keys: I64,
        offsets: I64,
        K: int,
        B: int,
        with_importance: bool,
        indexing_code: int,
        out: F32_2D,
    ) -> None:
        """out (n, C) = the logits of each document.

        The arguments are plain arrays, not tuples: it takes longer to unpack all arrays of a model
        than to score a short text.
        """
        columns = wide if usual else E.shape[1]
        k = 2 if usual else len(seeds) - 1
        importance = True if usual else with_importance
        indexing = INDEPENDENT if usual else indexing_code
        first, last = share(len(offsets) - 1, worker, workers)
        most = 0
        for q in range(first, last):
            most = max(most, offsets[q + 1] - offsets[q])
        rows = np.empty(most, np.uint32)
        buckets = np.empty((k, most), np.uint32)
        h = np.empty((1, columns), np.float32)
        for q in range(first, last):
            own = keys[offsets[q] : offsets[q + 1]]
            score_document(
                own, E, records, W, bias, seeds, K, B, columns, width, wide, k, importance,
                indexing, rows, buckets, h, out[q],
            )  # fmt: skip

    return scores


FOR_16 = Kernels(
    _train("train_16", LANES, LANES, True),
    _scores("scores_16", LANES, LANES, True),
)
FOR_32 = Kernels(
    _train("train_32", 2 * LANES, 2 * LANES, True),
    _scores("scores_32", 2 * LANES, 2 * LANES, True),
)
FOR_ANY = Kernels(
    _train("train_any", LANES, 4 * LANES, False),
    _scores("scores_any", LANES, 4 * LANES, False),
)
