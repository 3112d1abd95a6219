"""The order in which a pass sees the documents.

A full shuffle reads keys at random places: good in memory, slow on disk. The block shuffle reads
blocks of consecutive documents. It puts the blocks into random order and shuffles the documents of
BLOCKS blocks at a time, so that memory needs to hold only these. Both orders depend only on the
seed, the pass and the number of documents.
"""

import numpy as np

from hashembed.core.arrays import I64
from hashembed.engine.defaults import BLOCK_ROWS, BLOCKS, FULL_SHUFFLE, Shuffle
from hashembed.hashing.bags import Bags


def pass_order(bags: Bags, seed: int, number: int, shuffle: Shuffle | None) -> I64:
    """The documents of pass `number`, in its order."""
    rng = np.random.default_rng([seed & (2**63 - 1), number])
    if shuffle is None:
        shuffle = "full" if len(bags.keys) <= FULL_SHUFFLE else "blocks"
    if shuffle == "full":
        return rng.permutation(len(bags))
    return block_shuffle(rng, len(bags), BLOCK_ROWS, BLOCKS)


def block_shuffle(rng: np.random.Generator, count: int, rows: int, blocks: int) -> I64:
    """All numbers below `count`; those of `blocks` random blocks of `rows` are shuffled together.

    Every group has blocks from all over the data: a file that is sorted by class is mixed.
    """
    if count == 0:
        return np.empty(0, np.int64)
    starts = rng.permutation(np.arange(0, count, rows))
    groups = np.array_split(starts, max(1, -(-len(starts) // blocks)))  # of about equal sizes
    parts = []
    for group in groups:
        inside = [np.arange(start, min(start + rows, count)) for start in np.sort(group)]
        parts.append(rng.permutation(np.concatenate(inside)))
    return np.concatenate(parts)
