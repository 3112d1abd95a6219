"""The shallow model, fused: bag -> linear -> softmax, gradients and row updates in one kernel.

A training batch has two phases. In the first each worker owns documents: it hashes their keys,
sums hash vectors, takes the softmax and writes down, for every token, what its rows' gradients
will need. In the second each worker owns *rows*, adds up their gradients in token order, and
updates them. So every sum is taken in an order that does not depend on the number of workers, and
the result is the same to the bit.

The optimizer is Adagrad with one accumulator a row (the mean square of the row's gradient): one
square root a row instead of d, little state, and rare tokens take full steps, which is what makes
one or two passes enough.

Most of the time goes into waiting for rows that are nowhere near the processor, so every loop asks
for them well before their turn.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numba import njit

from hashembed.hashing import INDEXINGS, HashSpec
from hashembed.kernel_parts import DIRECT, add_scores, add_tokens, hash_document
from hashembed.kernel_steps import errors_of, update_components, update_output, update_records
from hashembed.threads import wait_for_all

# Sums may be reordered and contracted for SIMD, but NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}


class Kernels(NamedTuple):
    """The compiled functions for one shape of model; see the functions of these names below."""

    train: Callable[..., Any]
    scores: Callable[..., Any]


def kernels_for(spec: HashSpec, d: int, importance: bool) -> Kernels:
    """The kernels for this hash and width; compiled on first use and cached on disk."""
    indexing = DIRECT if spec.direct else INDEXINGS.index(spec.indexing)
    return _build(d, spec.num_hashes, importance, indexing)


def _sources() -> int:
    """A checksum of what is inlined here from other files.

    Numba's cache on disk looks at the file of the compiled function alone; but it also looks at
    the values that a function closes over, and so this one makes it notice.
    """
    parts = ("hashing_numba", "intrinsics", "kernel_parts", "kernel_steps", "threads")
    folder = Path(__file__).parent
    return crc32(b"".join((folder / f"{part}.py").read_bytes() for part in parts))


@cache
def _build(d: int, k: int, importance: bool, indexing: int) -> Kernels:
    """The arguments are constants for the compiler: loops unroll, branches vanish."""
    sources = _sources()

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
        assert sources >= 0  # closes over it
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
            errors_of(
                begin,
                stop,
                first,
                base,
                tables,
                documents,
                batches,
                scratch,
                K,
                B,
                d,
                k,
                importance,
                indexing,
                multilabel,
                margin,
            )
            wait_for_all(barrier, workers)

            for q in range(first, last):
                if not np.isfinite(batches.losses[q]):
                    return step

            tokens, rate = end - base, rates[step]
            if importance:
                low, high = K * worker // workers, K * (worker + 1) // workers
                update_records(low, high, k, tokens, tables, scratch, worker, rate, epsilon)
            low, high = B * worker // workers, B * (worker + 1) // workers
            update_components(
                low, high, d, k, importance, tokens, tables, scratch, worker, rate, epsilon
            )
            classes = len(tables.bias)
            low, high = classes * worker // workers, classes * (worker + 1) // workers
            update_output(low, high, d, last - first, tables, scratch, worker, rate, epsilon)
            wait_for_all(barrier, workers)
        return len(rates)

    @njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
    def scores(worker, workers, barrier, tables, documents, K, B, out):
        """out (n, C) = the logits of each document."""
        assert sources >= 0
        n = len(documents.starts)
        first, last = n * worker // workers, n * (worker + 1) // workers
        W_t = np.ascontiguousarray(tables.W.T)
        h = np.empty(d, np.float32)
        most = 0
        for q in range(first, last):
            most = max(most, documents.lengths[q])
        rows = np.empty(most, np.uint32)
        buckets = np.empty((k, most), np.uint32)
        for q in range(first, last):
            hash_document(tables, documents, q, K, B, k, importance, indexing, rows, buckets, 0)
            end = documents.lengths[q]
            add_tokens(tables.E, tables.records, rows, buckets, 0, end, d, k, importance, h)
            add_scores(h, W_t, tables.bias, d, out[q])

    return Kernels(train, scores)
