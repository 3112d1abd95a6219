"""The arrays that the kernels of the shallow model work on.

Letters are the paper's: E (B, d) components, P (K, k) importance weights, C classes. A *record*
keeps all that belongs to a row of P in one cache line: its k weights, the row's accumulator, and
its *slot*, the place where its gradient is summed in the batch that last touched it.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]


CACHE_LINE = 64  # bytes
MAX_SLOTS = 2**24  # a record keeps its slot in a float32


class Tables(NamedTuple):
    """Everything that training changes, and the hash seeds."""

    E: F32  # (B, d)
    E_square: F32  # (B,)
    E_slots: npt.NDArray[np.int32]  # (B,)
    records: F32  # (K, record_width(k)); one row without importance weights
    W: F32  # (C, d)
    W_square: F32  # (C, d)
    bias: F32  # (C,)
    bias_square: F32  # (C,)
    seeds: U32  # (1 + k,)


class Documents(NamedTuple):
    """Bags and what is known of them; a document is keys[start : start + length]."""

    keys: I64
    starts: I64  # (n,)
    lengths: I64  # (n,)
    labels: I64  # labels of all documents, one after the other
    label_offsets: I64  # (n + 1,)
    weights: F32  # (n,)


class Batches(NamedTuple):
    """A pass, or a part of one: which documents in which order, and at what rates."""

    order: I64  # (m,)
    begins: I64  # (m + 1,), tokens before each document of `order`, and after the last
    rates: F32  # one a batch
    losses: F32  # (m,), out
    batch_size: int


class Scratch(NamedTuple):
    """Room for one batch, shared by all workers."""

    rows: U32  # (tokens,)
    buckets: U32  # (k, tokens)
    document: npt.NDArray[np.int32]  # (tokens,)
    weight: F32  # (tokens, k), P before the update
    slope: F32  # (tokens, k), dloss / dP
    h: F32  # (batch, d), sums of hash vectors
    g: F32  # (batch, d), dloss / dh
    z: F32  # (batch, C), logits, then dloss / dlogits
    W_t: F32  # (d, C), W transposed
    owned: I64  # (workers, tokens), places of the tokens whose rows a worker updates
    owners: U32  # (workers, tokens * k), the row of each slot
    P_sums: F32  # (workers, slots, k), gradients
    E_sums: F32  # (workers, slots, d)
    W_sums: F32  # (workers, d)


def aligned(*shape: int) -> F32:
    """An uninitialised array that begins with a cache line.

    With d = 16 a row is then exactly one line; anywhere else it would lie across two.
    """
    size = 4 * math.prod(shape)
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(np.float32).reshape(shape)


def record_width(k: int) -> int:
    """Floats in a record: k + 2, rounded up to a power of two."""
    return 1 << (k + 1).bit_length()


def make_scratch(tables: Tables, batch: int, tokens: int, workers: int) -> Scratch:
    """Room for batches of so many documents and tokens."""
    (classes, d), k = tables.W.shape, len(tables.seeds) - 1
    if min(tokens, len(tables.records)) > MAX_SLOTS:
        raise ValueError(
            f"a batch must have at most {MAX_SLOTS:,} n-grams, found {tokens:,}: "
            "make the batches smaller or cut long documents"
        )

    return Scratch(
        rows=np.empty(tokens, np.uint32),
        buckets=np.empty((k, tokens), np.uint32),
        document=np.empty(tokens, np.int32),
        weight=aligned(tokens, k),
        slope=aligned(tokens, k),
        h=aligned(batch, d),
        g=aligned(batch, d),
        z=aligned(batch, classes),
        W_t=np.ascontiguousarray(tables.W.T),
        owned=np.empty((workers, tokens), np.int64),
        owners=np.empty((workers, tokens * k), np.uint32),
        P_sums=aligned(workers, min(tokens, len(tables.records)), k),
        E_sums=aligned(workers, min(tokens * k, len(tables.E)), d),
        W_sums=aligned(workers, d),
    )
