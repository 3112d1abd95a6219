"""The arrays that the kernels of the shallow model work on, and their call objects.

Letters are the paper's: E (B, d) components, P (K, k) importance weights, C classes. A *record*
keeps all data of a row of P in one cache line: its k weights, the row's accumulator, and its
*slot*, the place where its gradient is summed in the batch that last touched it.

Rows of d or C numbers are padded with zeros to D or Z, the next multiple of LANES: a kernel works
on blocks of that many numbers, whatever d is.

    Job      what all workers share for one call: Tables, Documents, Batches, Scratch, settings
    Step     one batch, as one worker sees it
    Shard    the part of the scratch arrays that belongs to one shard
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F32_2D, F32_3D, I32, I32_2D, I64, U8, U8_2D, U32, U32_2D
from hashembed.core.intrinsics import AHEAD
from hashembed.hashing.scalars import SALT

CACHE_LINE = 64  # bytes
LANES = 16  # numbers of a block: one cache line
MAX_TOKENS = 2**31 - 1  # of a batch: places are 32-bit integers

# The data of one shard or bin should fit into a core's own cache: tokens of a shard, rows of a bin.
# The number of shards depends only on the batch, and so does the order of every sum.
MIN_SHARD_TOKENS = 1024
SHARD_TOKENS = 8192
FIRST_SHARDS = 8  # small ones, so that this many workers have something to do
MAX_SHARDS = 64
MAX_BINS = 128
MIN_BIN_BITS = 6

DOCUMENTS_AHEAD = 8  # how many documents before its use a document's data are prefetched


class Tables(NamedTuple):
    """Everything that training changes, and the hash seeds."""

    E: F32_2D  # (B, D)
    E_square: F32  # (B,)
    records: F32_2D  # (K, record_width(k)); one row without importance weights
    slots: U32_2D  # the same memory, seen as integers
    W: F32_2D  # (C, D)
    W_square: F32_2D  # (C, D)
    bias: F32  # (C,)
    bias_square: F32  # (C,)
    seeds: U32  # (1 + k,)


class Documents(NamedTuple):
    """Bags with labels and weights; a document is keys[start : start + length]."""

    keys: I64
    starts: I64  # (n,)
    lengths: I64  # (n,)
    labels: I64  # labels of all documents, one after the other
    label_offsets: I64  # (n + 1,)
    weights: F32  # (n,)
    class_weights: F32_2D  # (2, C) as in `Labels`; (2, 0) where all are 1


class Batches(NamedTuple):
    """A pass, or a part of one: which documents in which order, and at what rates."""

    order: I64  # (m,)
    begins: I64  # (m + 1,), tokens before each document of `order`; then the number of all tokens
    rates: F32  # (batches,)
    shards: I64  # (batches,), how many shards a batch has
    losses: F32  # (m,), out
    batch_size: int


class Scratch(NamedTuple):
    """Buffers for one batch, shared by all workers."""

    # of tokens in the order of the documents
    rows: U32  # (tokens,)
    # of tokens, sorted by shard, and in a shard by document
    marks: I64  # (tokens,), what tells tokens apart; then the marks of the distinct tokens
    places: U32  # (tokens,), which of the distinct tokens of its shard
    counts: I32_2D  # (batch, shards), tokens of a document in a shard
    runs: I32_2D  # (batch + 1, shards), where they begin
    # of distinct tokens; those of a shard begin where its tokens begin
    distinct: I64  # (shards,), how many
    found: U32_2D  # (workers, entries), hash table of a shard: mark -> place
    distinct_rows: U32  # (tokens,)
    buckets: U32_2D  # (k, tokens)
    weights: F32_2D  # (tokens, k), P before the update
    vectors: F32_2D  # (tokens, D), hash vectors; then dloss / d(hash vector)
    moved: U8  # (tokens,), whether there is such a gradient
    movers: U32  # (tokens,), places of those
    owners: U32  # (tokens,), row of P whose gradient is in a slot
    P_sums: F32_2D  # (tokens, k)
    # of documents
    partial: F32_2D  # (shards * batch, D), sums of hash vectors over the tokens of a shard
    h: F32_2D  # (batch, D), over all tokens
    g: F32_2D  # (batch, D), dloss / dh
    z: F32_2D  # (batch, Z), logits, then dloss / dlogits
    terms: F32_2D  # (workers, Z), of the loss of a document
    learned: U8  # (batch,)
    # of pairs (distinct token, bucket), sorted by shard, and in a shard by bin
    bin_begins: I32_2D  # (shards, bins + 1)
    pair_bucket: U32  # (tokens * k,)
    pair_place: U32  # (tokens * k,)
    pair_weight: F32  # (tokens * k,)
    E_sums: F32_3D  # (workers, rows of a bin, D), zero between two bins
    touched: U8_2D  # (workers, rows of a bin)
    touched_rows: U32_2D  # (workers, rows of a bin + 1)
    # of classes
    W_sums: F32_2D  # (C, D)
    bias_sums: F32  # (C,)
    # how the work is divided
    cursors: I32_2D  # (workers, shards or bins)
    bin_bits: int
    salt: np.uint64  # of hash tables


class Job(NamedTuple):
    """All that the workers of one call of `train` share."""

    tables: Tables
    documents: Documents
    batches: Batches
    scratch: Scratch
    num_rows: int  # K
    num_buckets: int  # B
    dim: int  # d
    importance: bool
    indexing: int  # a code of `hashing/locate.py`
    multilabel: bool
    margin: np.float32  # documents whose errors are all smaller only update the output layer
    epsilon: np.float32  # in Adagrad's denominator


class Step(NamedTuple):
    """One batch, as one worker sees it. Documents are counted along `Batches.order`."""

    worker: int
    first: int  # the batch: documents first..last-1
    last: int
    begin: int  # this worker's documents: begin..stop-1
    stop: int
    base: int  # tokens before the batch
    shards: int
    scale: np.uint64  # from a row of P to its shard
    rate: np.float32
    counts: I32_2D  # (documents, shards) of `Scratch.counts`
    runs: I32_2D  # (documents + 1, shards) of `Scratch.runs`


class Shard(NamedTuple):
    """The tokens low..high-1 of one shard: views of `Scratch`."""

    number: int
    low: int
    marks: I64
    places: U32
    rows: U32  # `distinct_rows`; AHEAD entries longer, so that loops can prefetch
    buckets: U32_2D  # (k, tokens), AHEAD entries longer
    weights: F32_2D
    vectors: F32_2D
    moved: U8
    movers: U32
    owners: U32
    P_sums: F32_2D
    bin_begins: I32  # (bins + 1,)


def aligned(*shape: int, make: Callable[..., U8] = np.empty) -> F32:
    """An array that starts at a cache line boundary: uninitialised, or zero with `np.zeros`.

    With d = 16 a row is then exactly one line; otherwise it would span two.
    """
    size = 4 * math.prod(shape)
    raw = make(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(np.float32).reshape(shape)


def padded(count: int) -> int:
    """The next multiple of LANES."""
    return -(-count // LANES) * LANES


def padded_rows(rows: int, count: int) -> F32:
    """A table (rows, padded(count)) whose padding is zero; its first columns are not set."""
    table = aligned(rows, padded(count))
    table[:, count:] = 0
    return table


def record_width(k: int) -> int:
    """Floats in a record: k + 2, rounded up to a power of two."""
    return 1 << (k + 1).bit_length()


def shards_for(tokens: I64) -> I64:
    """The number of shards of batches with this many tokens."""
    small = np.minimum(tokens // MIN_SHARD_TOKENS, FIRST_SHARDS)
    return np.clip(np.maximum(small, tokens // SHARD_TOKENS), 1, MAX_SHARDS)


def bin_bits_for(num_buckets: int) -> int:
    """The logarithm to base 2 of the number of rows of E in a bin."""
    return max(MIN_BIN_BITS, (-(-num_buckets // MAX_BINS) - 1).bit_length())


def make_batches(lengths: I64, order: I64, rates: F32, batch_size: int) -> tuple[Batches, int]:
    """Batches of the documents of `order` -> also the most tokens that one has."""
    begins = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths[order], out=begins[1:])
    tokens = np.diff(begins[np.append(np.arange(0, len(order), batch_size), len(order))])
    batches = Batches(
        order=np.ascontiguousarray(order, np.int64),
        begins=begins,
        rates=np.ascontiguousarray(rates, np.float32),
        shards=shards_for(tokens),
        losses=np.zeros(len(order), np.float32),
        batch_size=batch_size,
    )
    return batches, int(tokens.max(initial=0))


def make_scratch(tables: Tables, batch: int, tokens: int, shards: int, workers: int) -> Scratch:
    """Buffers for batches of up to this many documents, tokens and shards."""
    classes, D, k = len(tables.W), padded(tables.W.shape[1]), len(tables.seeds) - 1
    if tokens * k > MAX_TOKENS:
        raise ValueError(
            f"a batch must have at most {MAX_TOKENS // k:,} n-grams, found {tokens:,}: "
            "make the batches smaller or cut long documents"
        )
    bits = bin_bits_for(len(tables.E))
    bins, width = -(-len(tables.E) // (1 << bits)), 1 << bits
    sums = aligned(workers, width, D)
    sums.fill(0)
    return Scratch(
        rows=np.empty(tokens, np.uint32),
        marks=np.empty(tokens, np.int64),
        places=np.empty(tokens, np.uint32),
        counts=np.empty((batch, shards), np.int32),
        runs=np.empty((batch + 1, shards), np.int32),
        distinct=np.empty(shards, np.int64),
        found=np.empty((workers, 2 << max(tokens, 1).bit_length()), np.uint32),
        distinct_rows=np.empty(tokens + AHEAD, np.uint32),
        buckets=np.empty((k, tokens + AHEAD), np.uint32),
        weights=np.empty((tokens, k), np.float32),
        vectors=aligned(tokens, D),
        moved=np.empty(tokens, np.uint8),
        movers=np.empty(tokens + AHEAD, np.uint32),
        owners=np.empty(tokens, np.uint32),
        P_sums=np.empty((tokens, k), np.float32),
        partial=aligned(shards * batch, D),
        h=aligned(batch, D),
        g=aligned(batch, D),
        z=np.zeros((batch, padded(classes)), np.float32),
        terms=np.zeros((workers, padded(classes)), np.float32),
        learned=np.empty(batch, np.uint8),
        bin_begins=np.empty((shards, bins + 1), np.int32),
        pair_bucket=np.empty(tokens * k + AHEAD, np.uint32),
        pair_place=np.empty(tokens * k + AHEAD, np.uint32),
        pair_weight=np.empty(tokens * k, np.float32),
        E_sums=sums,
        touched=np.zeros((workers, width), np.uint8),
        touched_rows=np.empty((workers, width + 1), np.uint32),
        W_sums=aligned(classes, D),
        bias_sums=np.empty(classes, np.float32),
        cursors=np.empty((workers, max(shards, bins)), np.int32),
        bin_bits=bits,
        salt=SALT,
    )
