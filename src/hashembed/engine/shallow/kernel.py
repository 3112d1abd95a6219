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
TWICE = 2 * LANES


class Kernels(NamedTuple):
    """The compiled functions for some models; see `train_batches` and `score_documents` below."""

    train: Callable[..., Any]
    scores: Callable[..., Any]


def kernels_for(spec: HashSpec, d: int, importance: bool) -> Kernels:
    """The kernels for this hash and width; without compiled ones they are compiled on first use."""
    whole_number("embedding_dim", d, 1, MAX_DIM)
    usual = spec.num_hashes == 2 and importance and indexing_code(spec) == INDEPENDENT
    if usual and d <= LANES:
        return NARROW
    return WIDE if usual and d <= TWICE else ANY


@njit(inline="always")
def share(count, worker, workers):
    """The part of `count` things that a worker owns: from where to where."""
    return count * worker // workers, count * (worker + 1) // workers


@njit(inline="always")
def train_batches(worker, workers, barrier, job, width, blocks, k, importance, indexing):
    """All of `job.batches`, by all workers together -> the number of batches done.

    That is fewer than all when a loss is not finite: training stops before that update.

    The last five arguments may be compile-time constants: then loops unroll and branches vanish.
    They are separate arguments of the phases too: a field of a tuple would not be a constant.
    """
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
            embed_shard(s, step, job, width, blocks, k, importance, indexing)
        wait_for_all(barrier, workers)
        errors_of(step, job, width, blocks)
        wait_for_all(barrier, workers)
        for q in range(step.first, step.last):
            if not np.isfinite(losses[q]):
                return number
        for s in range(high - 1, low - 1, -1):  # the last one is still in the cache
            teach_shard(s, step, job, width, blocks, k, importance)
        wait_for_all(barrier, workers)
        low, high = share(bins, worker, workers)
        for r in range(low, high):
            update_bin(r, step, job, width, blocks, importance)
        low, high = share(classes, worker, workers)
        update_output(low, high, step, job, width, blocks)
        wait_for_all(barrier, workers)
    return batches


@njit(inline="always")
def score_documents(
    first,
    last,
    E,
    records,
    W,
    bias,
    seeds,
    keys,
    offsets,
    K,
    B,
    out,
    width,
    blocks,
    k,
    importance,
    indexing,
):
    """out[first:last] (n, C) = the logits of documents."""
    most = 0
    for q in range(first, last):
        most = max(most, offsets[q + 1] - offsets[q])
    rows = np.empty(most, np.uint32)
    buckets = np.empty((k, most), np.uint32)
    h = np.empty((1, width * blocks), np.float32)
    for q in range(first, last):
        own = keys[offsets[q] : offsets[q + 1]]
        hash_keys(own, E, records, seeds, K, B, k, importance, indexing, rows, buckets)
        for b in range(blocks):
            total = zero_vector(width)
            for t in range(len(own)):
                v = hash_vector(E, records, rows[t], buckets, t, b, width, k, importance)
                total = plus(total, v)
            store(h, 0, b, total)
        add_scores(h, 0, W, bias, width, blocks, out[q])


@njit(native=True, nogil=True, error_model="numpy")
def train_narrow(worker: int, workers: int, barrier: I64, job: Job) -> int:
    """`train_batches` for d <= 16 and the default hash."""
    return train_batches(worker, workers, barrier, job, LANES, 1, 2, True, INDEPENDENT)


@njit(native=True, nogil=True, error_model="numpy")
def train_wide(worker: int, workers: int, barrier: I64, job: Job) -> int:
    """`train_batches` for 16 < d <= 32 and the default hash."""
    return train_batches(worker, workers, barrier, job, TWICE, 1, 2, True, INDEPENDENT)


@njit(native=True, nogil=True, error_model="numpy")
def train_any(worker: int, workers: int, barrier: I64, job: Job) -> int:
    """`train_batches` for every model."""
    blocks, k = job.tables.E.shape[1] // LANES, len(job.tables.seeds) - 1
    return train_batches(
        worker, workers, barrier, job, LANES, blocks, k, job.importance, job.indexing
    )


@njit(native=True, nogil=True, error_model="numpy")
def scores_narrow(
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
    importance: bool,
    indexing: int,
    out: F32_2D,
) -> None:
    """`score_documents` for d <= 16 and the default hash."""
    first, last = share(len(offsets) - 1, worker, workers)
    score_documents(
        first,
        last,
        E,
        records,
        W,
        bias,
        seeds,
        keys,
        offsets,
        K,
        B,
        out,
        LANES,
        1,
        2,
        True,
        INDEPENDENT,
    )


@njit(native=True, nogil=True, error_model="numpy")
def scores_wide(
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
    importance: bool,
    indexing: int,
    out: F32_2D,
) -> None:
    """`score_documents` for 16 < d <= 32 and the default hash."""
    first, last = share(len(offsets) - 1, worker, workers)
    score_documents(
        first,
        last,
        E,
        records,
        W,
        bias,
        seeds,
        keys,
        offsets,
        K,
        B,
        out,
        TWICE,
        1,
        2,
        True,
        INDEPENDENT,
    )


@njit(native=True, nogil=True, error_model="numpy")
def scores_any(
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
    importance: bool,
    indexing: int,
    out: F32_2D,
) -> None:
    """`score_documents` for every model."""
    first, last = share(len(offsets) - 1, worker, workers)
    blocks, k = E.shape[1] // LANES, len(seeds) - 1
    score_documents(
        first,
        last,
        E,
        records,
        W,
        bias,
        seeds,
        keys,
        offsets,
        K,
        B,
        out,
        LANES,
        blocks,
        k,
        importance,
        indexing,
    )


NARROW, WIDE = Kernels(train_narrow, scores_narrow), Kernels(train_wide, scores_wide)
ANY = Kernels(train_any, scores_any)
