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
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hashembed.core.checks import whole_number
from hashembed.core.njit import FAST, njit
from hashembed.core.threads import wait_for_all
from hashembed.engine.shallow.backward import errors_of, teach_shard, update_bin, update_output
from hashembed.engine.shallow.forward import count_tokens, embed_shard, make_step, sort_tokens
from hashembed.engine.shallow.parts import add_scores, hash_keys, hash_vector
from hashembed.engine.shallow.vectors import plus, zero_vector
from hashembed.hashing.locate import indexing_code
from hashembed.hashing.spec import HashSpec

# Vectors are as wide as rows. LLVM compiles 20 s for 4,096 numbers and six minutes for 32,768; at
# 65,536 it aborts the process.
MAX_DIM = 16_384


class Kernels(NamedTuple):
    """The compiled functions for one shape of model; see the functions of these names below."""

    train: Callable[..., Any]
    scores: Callable[..., Any]


def kernels_for(spec: HashSpec, d: int, importance: bool) -> Kernels:
    """The kernels for this hash and width; compiled on first use and cached on disk."""
    whole_number("embedding_dim", d, 1, MAX_DIM)
    return _build(d, spec.num_hashes, importance, indexing_code(spec))


@njit(inline="always")
def share(count, worker, workers):
    """The part of `count` things that a worker owns: from where to where."""
    return count * worker // workers, count * (worker + 1) // workers


@cache
def _build(d: int, k: int, importance: bool, indexing: int) -> Kernels:
    """The arguments are compile-time constants: loops unroll, branches vanish.

    They are separate arguments of the phases too: a field of a tuple would not be a constant.
    """

    @njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
    def train(worker, workers, barrier, job):
        """All of `job.batches`, by all workers together -> the number of batches done.

        That is fewer than all when a loss is not finite: training stops before that update.
        """
        bins, classes = job.scratch.bin_begins.shape[1] - 1, len(job.tables.bias)
        batches = len(job.batches.rates)
        for number in range(batches):
            step = make_step(number, worker, workers, job)
            low, high = share(step.shards, worker, workers)
            count_tokens(step, job, indexing)
            wait_for_all(barrier, workers)
            sort_tokens(step, job, indexing)
            wait_for_all(barrier, workers)
            for s in range(low, high):
                embed_shard(s, step, job, d, k, importance, indexing)
            wait_for_all(barrier, workers)
            errors_of(step, job, d)
            wait_for_all(barrier, workers)
            for q in range(step.first, step.last):
                if not np.isfinite(job.batches.losses[q]):
                    return number
            for s in range(high - 1, low - 1, -1):  # the last one is still in the cache
                teach_shard(s, step, job, d, k, importance)
            wait_for_all(barrier, workers)
            low, high = share(bins, worker, workers)
            for r in range(low, high):
                update_bin(r, step, job, d, importance)
            low, high = share(classes, worker, workers)
            update_output(low, high, step, job, d)
            wait_for_all(barrier, workers)
        return batches

    @njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
    def scores(worker, workers, barrier, E, records, W, bias, seeds, keys, offsets, K, B, out):
        """out (n, C) = the logits of each document.

        The arguments are plain arrays, not tuples: Numba takes longer to unpack all arrays of a
        model than to score a short text.
        """
        first, last = share(len(offsets) - 1, worker, workers)
        most = 0
        for q in range(first, last):
            most = max(most, offsets[q + 1] - offsets[q])
        rows = np.empty(most, np.uint32)
        buckets = np.empty((k, most), np.uint32)
        for q in range(first, last):
            own = keys[offsets[q] : offsets[q + 1]]
            hash_keys(own, E, records, seeds, K, B, k, importance, indexing, rows, buckets)
            h = zero_vector(d)
            for t in range(len(own)):
                h = plus(h, hash_vector(E, records, rows[t], buckets, t, d, k, importance))
            add_scores(h, W, bias, d, out[q])

    return Kernels(train, scores)
