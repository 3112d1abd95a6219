"""The shallow model, fused: bag -> linear -> softmax, gradients and row updates in one kernel.

Most of the time would go into waiting for rows that are nowhere near the processor. But of the
n-grams of a batch, its *tokens*, only a third to a half are distinct. So the work is done once for
each distinct token, and in pieces that fit into a core's own cache:

    documents   each token's row of P; count how many tokens belong to which shard, a set of rows
    documents   sort tokens into shards; in a shard they stay in the order of the documents
    shards      find the distinct tokens, hash them, gather their hash vectors once, and add those
                up for each document: partial[shard, document]
    documents   h = sum of partial; logits, softmax, loss, g = dloss / dh
    shards      add up g for each distinct token: v; from v the gradients of its row of P, which
                is this shard's alone: update it. Sort (bucket, weight, token) into bins, ranges of
                rows of E
    bins        gradients of rows of E, sum of weight * v, shard after shard; update them
    classes     update the output layer

Each line is a phase. Its workers own different documents, shards, bins or classes, and between
phases they wait for each other. How a batch is cut into shards and bins follows from its size
alone, so every sum is taken in an order that does not depend on the number of workers, and the
result is the same to the bit.

The optimizer is Adagrad with one accumulator a row (the mean square of the row's gradient): one
square root a row instead of d, little state, and rare tokens take full steps, which is what makes
one or two passes enough.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hashembed.core.checks import whole_number
from hashembed.core.njit import FAST, njit
from hashembed.core.threads import wait_for_all
from hashembed.engine.shallow.backward import errors_of, teach_shard, update_bin, update_output
from hashembed.engine.shallow.forward import count_tokens, embed_shard, sort_tokens
from hashembed.engine.shallow.parts import add_scores, hash_keys, hash_vector
from hashembed.engine.shallow.vectors import plus, zero_vector
from hashembed.hashing.locate import indexing_code
from hashembed.hashing.spec import HashSpec

# Vectors are as wide as rows: LLVM takes 20 s to compile for 4,096 numbers, six minutes for 32,768,
# and gives up, with the process, at 65,536.
MAX_DIM = 16_384


class Kernels(NamedTuple):
    """The compiled functions for one shape of model; see the functions of these names below."""

    train: Callable[..., Any]
    scores: Callable[..., Any]


def kernels_for(spec: HashSpec, d: int, importance: bool) -> Kernels:
    """The kernels for this hash and width; compiled on first use and cached on disk."""
    whole_number("embedding_dim", d, 1, MAX_DIM)
    return _build(d, spec.num_hashes, importance, indexing_code(spec))


@cache
def _build(d: int, k: int, importance: bool, indexing: int) -> Kernels:
    """The arguments are constants for the compiler: loops unroll, branches vanish."""

    @njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
    def train(
        worker,
        workers,
        barrier,
        tables,
        documents,
        batches,
        scratch,
        K,
        B,
        multilabel,
        margin,
        epsilon,
    ):
        """All of `batches`, by all workers together -> the number of batches done.

        Documents whose errors are all below `margin` move the output layer only. Fewer batches
        than all were done when a loss is not finite: training stops before that update.
        """
        order, begins, rates = batches.order, batches.begins, batches.rates
        batch_size = batches.batch_size
        for step in range(len(rates)):
            first = step * batch_size
            last = min(first + batch_size, len(order))
            base, end = begins[first], begins[last]
            # A worker takes the documents that begin in its share of the tokens.
            low = base + (end - base) * worker // workers
            high = base + (end - base) * (worker + 1) // workers
            begin = first
            while begin < last and begins[begin] < low:
                begin += 1
            stop = begin
            while stop < last and (begins[stop] < high or worker + 1 == workers):
                stop += 1
            size, shards = last - first, batches.shards[step]
            scale = np.uint64((shards << 32) // K)
            counts = scratch.counts[: size * shards].reshape((size, shards))
            runs = scratch.runs[: (size + 1) * shards].reshape((size + 1, shards))
            low, high = shards * worker // workers, shards * (worker + 1) // workers
            count_tokens(
                begin,
                stop,
                first,
                base,
                tables,
                documents,
                batches,
                scratch,
                counts,
                scale,
                K,
                indexing,
            )
            wait_for_all(barrier, workers)
            sort_tokens(
                begin,
                stop,
                first,
                base,
                documents,
                batches,
                scratch,
                counts,
                runs,
                scratch.cursors[worker],
                scale,
                indexing,
            )
            wait_for_all(barrier, workers)
            for s in range(low, high):
                embed_shard(
                    s,
                    runs,
                    tables,
                    scratch,
                    scratch.found[worker],
                    K,
                    B,
                    d,
                    k,
                    importance,
                    indexing,
                )
            wait_for_all(barrier, workers)
            errors_of(
                begin,
                stop,
                first,
                shards,
                tables,
                documents,
                batches,
                scratch,
                d,
                multilabel,
                margin,
            )
            wait_for_all(barrier, workers)

            for q in range(first, last):
                if not np.isfinite(batches.losses[q]):
                    return step

            rate = rates[step]
            for s in range(high - 1, low - 1, -1):  # the last one is still in the cache
                teach_shard(
                    s,
                    runs,
                    tables,
                    scratch,
                    scratch.cursors[worker],
                    d,
                    k,
                    importance,
                    rate,
                    epsilon,
                )
            wait_for_all(barrier, workers)
            bins = scratch.bin_begins.shape[1] - 1
            for r in range(bins * worker // workers, bins * (worker + 1) // workers):
                update_bin(r, shards, tables, scratch, worker, d, importance, rate, epsilon)
            classes = len(tables.bias)
            low, high = classes * worker // workers, classes * (worker + 1) // workers
            update_output(low, high, d, size, tables, scratch, rate, epsilon)
            wait_for_all(barrier, workers)
        return len(rates)

    @njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
    def scores(worker, workers, barrier, E, records, W, bias, seeds, keys, offsets, K, B, out):
        """out (n, C) = the logits of each document.

        Plain arrays, not tuples of them: unpacking all of a model takes longer than a short text.
        """
        n = len(offsets) - 1
        first, last = n * worker // workers, n * (worker + 1) // workers
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
