"""The arrays that the GPU's planning and steps share. All are flat, for all batches of a chunk.

Letters are those of `vectors/arrays.py`; W is the width of a row with its padding. Numbers of
examples, words and negatives are local if they count from the beginning of their batch.

`starts` arrays have a number for each batch and one more: where the batch begins. Batches that are
only there to fill up a CUDA graph begin and end at the end of everything.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hashembed.vectors.arrays import GROUP, NEGATIVES, Tables, Vocabulary

TILE = 16  # examples of a group that one program handles; products of matrices need 16
TILES = GROUP // TILE  # of a group


class DeviceVocabulary(NamedTuple):
    """`Vocabulary` on the GPU."""

    offsets: Tensor  # (V + 1,), int64
    rows: Tensor  # (entries,), int32
    buckets: Tensor  # (entries * k,), int32
    limits: Tensor  # (V,), int64
    aliases: Tensor  # (V,), int32


class DeviceTables(NamedTuple):
    """`Tables` on the GPU."""

    E: Tensor  # (B, W)
    E_square: Tensor  # (B,)
    P: Tensor  # (K, k)
    P_square: Tensor  # (K,)
    C: Tensor  # (V, W)
    C_square: Tensor  # (V,)


class Runs(NamedTuple):
    """The runs of a table. In each batch short runs come first, then long ones."""

    rows: Tensor  # (runs,), int32: rows of the table
    begins: Tensor  # (runs,), int32: first items
    lengths: Tensor  # (runs,), int32: items
    starts: Tensor  # (batches + 1,), int32
    long_starts: Tensor  # (batches,), int32: the first long run of each batch


class ChunkPlan(NamedTuple):
    """What the batches of a chunk do."""

    rates: Tensor  # (batches,), float32
    example_starts: Tensor  # (batches + 1,), int32
    group_starts: Tensor  # (batches + 1,), int32
    word_starts: Tensor  # (batches + 1,), int32

    pair_begins: Tensor  # (examples + 1,), int32
    pair_words: Tensor  # (pairs,), int32
    pair_slots: Tensor  # (pairs,), int32: the place of a pair among the items of C
    hidden_rows: Tensor  # (examples,), int32: skip-gram: the local word. CBOW: the local example
    negatives: Tensor  # (groups * NEGATIVES,), int32
    hits: Tensor  # (examples,), int64: bit j: negative j is an output word of the example

    input_begins: Tensor  # (examples + 1,), int32
    input_words: Tensor  # (inputs,), int32: local words
    use_begins: Tensor  # (words + 1,), int32: runs of `use_examples`
    use_examples: Tensor  # (inputs,), int32: the local examples that have a word as an input
    word_firsts: Tensor  # (words,), int64: the first entry of a word in the vocabulary
    entry_begins: Tensor  # (words + 1,), int32

    E_slots: Tensor  # (entries * k,), int32: the place of a component among the items of E
    E_words: Tensor  # (entries * k,), int32: of each item of E, the local word
    P_slots: Tensor  # (entries * k,), int32: of each item of E, its place in `dots`
    C_sources: Tensor  # (items,), int32: of each item of C, the hidden row, or -1 - local negative

    E_rows: Tensor  # five arrays of `Runs` for each table
    E_begins: Tensor
    E_lengths: Tensor
    E_starts: Tensor
    E_long_starts: Tensor
    P_rows: Tensor
    P_begins: Tensor
    P_lengths: Tensor
    P_starts: Tensor
    P_long_starts: Tensor
    C_rows: Tensor
    C_begins: Tensor
    C_lengths: Tensor
    C_starts: Tensor
    C_long_starts: Tensor

    @property
    def of_E(self) -> Runs:
        """The runs of E."""
        return Runs(self.E_rows, self.E_begins, self.E_lengths, self.E_starts, self.E_long_starts)

    @property
    def of_P(self) -> Runs:
        """The runs of P."""
        return Runs(self.P_rows, self.P_begins, self.P_lengths, self.P_starts, self.P_long_starts)

    @property
    def of_C(self) -> Runs:
        """The runs of the output."""
        return Runs(self.C_rows, self.C_begins, self.C_lengths, self.C_starts, self.C_long_starts)


class Results(NamedTuple):
    """What the steps of a chunk leave in memory that grows with the chunk."""

    weights: Tensor  # (items of E,): importance weights over the number of the word's entries
    dots: Tensor  # (items of E,): gradients of importance weights, in the order of P's items
    errors: Tensor  # (items of C,): of pairs
    losses: Tensor  # (batches, 2, groups of a batch): of the first example of a group


class Scratch(NamedTuple):
    """What one step keeps for itself."""

    vectors: Tensor  # (words, W)
    scales: Tensor  # (words,)
    hidden: Tensor  # (examples, W); skip-gram: not used
    gradients: Tensor  # (2, examples, W): of pairs, of negatives
    negative_gradients: Tensor  # (tiles * NEGATIVES, W)
    word_gradients: Tensor  # (words, W)


class Sizes(NamedTuple):
    """What kernels are compiled for, and the most that a batch can have."""

    batch: int  # examples
    words: int  # distinct input words
    dim: int  # d
    width: int  # W
    hashes: int  # k
    cbow: bool

    @property
    def groups(self) -> int:
        """Groups of a batch."""
        return -(-self.batch // GROUP)


def vocabulary_on(vocabulary: Vocabulary, device: torch.device) -> DeviceVocabulary:
    """Copy a vocabulary. Numbers of rows and buckets are below 2^31."""

    def moved(array: "np.ndarray[tuple[int], np.dtype[np.uint32]]", kind: type) -> Tensor:
        return torch.from_numpy(array.astype(kind)).to(device)

    return DeviceVocabulary(
        torch.from_numpy(vocabulary.offsets).to(device),
        moved(vocabulary.rows, np.int32),
        moved(vocabulary.buckets, np.int32),
        moved(vocabulary.limits, np.int64),
        moved(vocabulary.aliases, np.int32),
    )


def tables_on(tables: Tables, device: torch.device) -> DeviceTables:
    """Copy tables to a device."""
    return DeviceTables(*(torch.from_numpy(np.array(table)).to(device) for table in tables))


def make_scratch(sizes: Sizes, device: torch.device) -> Scratch:
    """Memory for one step. Zeros: a stale number must be finite, even where it counts nothing."""
    tiles = -(-sizes.batch // TILE)
    W = sizes.width

    def floats(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device=device)

    return Scratch(
        vectors=floats(sizes.words, W),
        scales=floats(sizes.words),
        hidden=floats(sizes.batch if sizes.cbow else 0, W),
        gradients=floats(2, sizes.batch, W),
        negative_gradients=floats(tiles * NEGATIVES, W),
        word_gradients=floats(sizes.words, W),
    )
