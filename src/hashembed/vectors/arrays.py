"""The arrays that the kernels of word vectors work on.

Letters are the paper's: E (B, d) components, P (K, k) importance weights. V is the number of words
of the vocabulary. Rows of d numbers are padded with zeros to D, the next multiple of LANES.

    example   what is predicted together: input words, whose mean vector predicts output words.
              Skip-gram: a word, and the words around it. CBOW: the other way round.
    entry     one key of one distinct word of a batch: the word itself, or one of its n-grams
    pair      an example and one of its output words
    run       the items of a batch that belong to one row of a table. A plan sorts the items, so a
              run is contiguous, and one worker sums its gradient and updates its row.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F32_2D, I32, I64, I64_2D, U32, U32_2D, U64_2D
from hashembed.engine.shallow.arrays import aligned

GROUP = 32  # consecutive examples that share negatives
NEGATIVES = 64  # of a group
PLANNED = 16  # batches whose plans are in memory at a time
RADIX = 2048
PARTS = 16  # of the distinct words of a batch: workers share them out

COUNTS = 7
EXAMPLES, INPUTS, PAIRS, WORDS, E_ROWS, P_ROWS, C_ROWS = range(COUNTS)


class Vocabulary(NamedTuple):
    """The words that are trained, and what they are made of."""

    offsets: I64  # (V + 1,): the entries of each word
    rows: U32  # (entries,): rows of P
    buckets: U32  # (entries * k,): rows of E
    limits: U32  # (V,): of the alias method, which draws negatives
    aliases: U32  # (V,)


class Tables(NamedTuple):
    """Everything that training changes."""

    E: F32_2D  # (B, D)
    E_square: F32  # (B,): running mean squares of the rows' gradients; 0 for an unused row
    P: F32_2D  # (K, k)
    P_square: F32  # (K,): sums of squares
    C: F32_2D  # (V, D): the output vectors
    C_square: F32  # (V,)


class Tokens(NamedTuple):
    """A piece of the corpus, after frequent words were thinned out."""

    words: I32  # (n,)
    texts: I32  # (n,): which text a word belongs to; windows end with it
    windows: I32  # (n,): words to either side
    rates: F32  # (batches,)


class Plan(NamedTuple):
    """What PLANNED batches do; each array has a row for each batch."""

    counts: I64_2D  # (PLANNED, COUNTS)
    input_begins: U32_2D  # (., examples + 1)
    input_places: U32_2D  # (., inputs): the place of an input among the distinct words
    words: U32_2D  # (., words): the distinct input words
    word_begins: U32_2D  # (., words + 1): runs of `word_examples`
    word_examples: U32_2D  # (., inputs)
    entry_begins: U32_2D  # (., words + 1)
    pair_begins: U32_2D  # (., examples + 1)
    pair_words: U32_2D  # (., pairs)
    pair_examples: U32_2D  # (., pairs)
    negatives: U32_2D  # (., groups * NEGATIVES)
    E_rows: U32_2D  # (., rows)
    E_begins: U32_2D  # (., rows + 1)
    E_items: U32_2D  # (., entries * k): entry * k + i
    E_places: U32_2D  # (., entries * k): the place of the entry's word
    part_places: I64_2D  # (., PARTS + 1): the words of each part
    mix_rows: U32_2D  # (., entries * k): the rows of E of a part, in order, and then of the next
    mix_items: U32_2D  # (., entries * k): as E_items
    mix_places: U32_2D  # (., entries * k)
    P_rows: U32_2D
    P_begins: U32_2D
    P_items: U32_2D  # (., entries)
    C_rows: U32_2D
    C_begins: U32_2D
    C_items: U32_2D  # (., pairs + groups * NEGATIVES): pairs, then negatives


class Scratch(NamedTuple):
    """Buffers for one batch, shared by all workers, or with a part for each."""

    sorted: U64_2D  # (2 * workers, items)
    counters: I64_2D  # (workers, RADIX)
    places: U32_2D  # (workers, entries * k)
    weights: F32  # (entries * k,): importance weights over the number of the word's entries
    dots: F32  # (entries * k,): gradients of the importance weights
    vectors: F32_2D  # (words, D)
    word_gradients: F32_2D  # (words, D)
    scales: F32  # (words,)
    hidden: F32_2D  # (groups * GROUP, D)
    gradients: F32_2D  # (groups * GROUP, D)
    pair_errors: F32  # (pairs,)
    negative_gradients: F32_2D  # (groups * NEGATIVES, D)
    own: F32_2D  # (workers * NEGATIVES, D): the negatives of a group
    across: F32_2D  # (workers * D, NEGATIVES): the same, transposed
    errors: F32_2D  # (workers * GROUP, NEGATIVES)
    sums: F32_2D  # (2 * workers, D): every other row is used, so that workers share no line
    losses: F32  # (batch size,), out: of the first example of each group


class Job(NamedTuple):
    """What all workers share for one call."""

    vocabulary: Vocabulary
    tables: Tables
    tokens: Tokens
    plan: Plan
    scratch: Scratch
    means: F32  # (batches,), out: the mean loss of a pair
    batch_size: int
    num_rows: int  # K
    num_buckets: int  # B
    dim: int  # d
    cbow: bool
    seed: int  # of the negatives of this piece
    decay: float
    importance_rate: float
    negative_weight: float


def make_plan(batch: int, pairs: int, entries: int, hashes: int) -> Plan:
    """Space for plans. pairs, entries: the most of a batch."""
    groups = -(-batch // GROUP)
    items = pairs + groups * NEGATIVES

    def rows(size: int) -> U32_2D:
        return np.empty((PLANNED, size), np.uint32)

    inputs = max(pairs, batch)
    return Plan(
        counts=np.zeros((PLANNED, COUNTS), np.int64),
        input_begins=rows(batch + 1),
        input_places=rows(inputs),
        words=rows(inputs),
        word_begins=rows(inputs + 1),
        word_examples=rows(inputs),
        entry_begins=rows(inputs + 1),
        pair_begins=rows(batch + 1),
        pair_words=rows(inputs),
        pair_examples=rows(inputs),
        negatives=rows(groups * NEGATIVES),
        E_rows=rows(entries * hashes),
        E_begins=rows(entries * hashes + 1),
        E_items=rows(entries * hashes),
        E_places=rows(entries * hashes),
        part_places=np.zeros((PLANNED, PARTS + 1), np.int64),
        mix_rows=rows(entries * hashes),
        mix_items=rows(entries * hashes),
        mix_places=rows(entries * hashes),
        P_rows=rows(entries),
        P_begins=rows(entries + 1),
        P_items=rows(entries),
        C_rows=rows(items),
        C_begins=rows(items + 1),
        C_items=rows(items),
    )


def make_scratch(
    workers: int, batch: int, pairs: int, words: int, entries: int, hashes: int, width: int
) -> Scratch:
    """Buffers; `words`, `pairs` and `entries` are the most of a batch, `width` is D."""
    groups = -(-batch // GROUP)
    items = max(entries * hashes, pairs + groups * NEGATIVES, batch)

    def floats(*shape: int) -> F32:
        return aligned(*shape, make=np.zeros)

    return Scratch(
        sorted=np.empty((2 * workers, items), np.uint64),
        counters=np.empty((workers, RADIX), np.int64),
        places=np.empty((workers, max(entries * hashes, pairs, batch)), np.uint32),
        weights=floats(entries * hashes),
        dots=floats(entries * hashes),
        vectors=floats(words, width),
        word_gradients=floats(words, width),
        scales=floats(words),
        hidden=floats(groups * GROUP, width),
        gradients=floats(groups * GROUP, width),
        pair_errors=floats(max(pairs, batch)),
        negative_gradients=floats(groups * NEGATIVES, width),
        own=floats(workers * NEGATIVES, width),
        across=floats(workers * width, NEGATIVES),
        errors=floats(workers * GROUP, NEGATIVES),
        sums=floats(2 * workers, width),
        losses=floats(groups),
    )
