"""The most frequent keys of a corpus and their exact counts, in bounded memory.

The keys of 1- to 9-grams take more than ten times as many bytes as the text, but computing tens of
millions of keys takes only a second. So keys are not stored: every pass over the texts computes
them again.

1. Every key adds one to its cell of a sketch, so a cell is never below the count of a key in it.
   From the cells follows a threshold that about as many keys reach as are wanted.
2. Keys in cells that reach the threshold are counted exactly. All keys that reach the threshold are
   among them; so if enough of them do, the most frequent keys are known. If not, this step is
   repeated with a lower threshold. A table that fills up gives up the upper half of its range of
   keys and leaves it to another round.

The sketch and the tables have a fixed size. The result depends only on the texts, not on the number
of threads, the memory allowed, or how the texts are divided into columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I64, U16
from hashembed.core.threads import run_workers
from hashembed.hashing.scalars import SALT
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.kernels import (
    FULL,
    POSITIONS,
    CountTables,
    Passed,
    Sketch,
    add_to_sketch,
    count_cells,
    count_chosen,
)
from hashembed.text.pipeline import text_to_bags

CHUNK = 4 << 20  # bytes of text whose keys are held at a time
STEP = 5  # a threshold that was too high is lowered by a fifth

Texts = Any | Callable[[], Iterable[Any]]


class Corpus:
    """Texts that can be read several times, in pieces of limited size."""

    def __init__(self, texts: Texts, config: TextConfig) -> None:
        self.config = config
        self.total: int | None = None
        if callable(texts):
            self.source: Callable[[], Iterable[Any]] = texts
            self.nbytes = None
        else:
            column = to_arrow(texts)
            self.source = lambda: [column]
            self.nbytes = column.nbytes

    def pieces(self) -> Iterator[pa.Array]:
        """The texts again, from the beginning."""
        for texts in self.source():
            yield from pieces(to_arrow(texts), CHUNK)

    def all_keys(self) -> Iterator[I64]:
        """The keys of all texts; an error if their number differs from that of the first pass."""
        total = 0
        for piece in self.pieces():
            keys = text_to_bags(piece, self.config).keys
            total += len(keys)
            yield keys
        if self.total is not None and total != self.total:
            raise ValueError(
                f"the texts changed: {self.total:,} n-grams in the first reading, {total:,} in a "
                "later one; a function of texts must return all of them each time"
            )
        self.total = total


class FrequentKeys(ABC):
    """Finds the most frequent keys by a sketch and exact counts."""

    @abstractmethod
    def fill_sketch(self) -> U16:
        """Count all keys in a sketch -> its cells."""

    @abstractmethod
    def count(self, threshold: int, number: int) -> tuple[I64, I64]:
        """The most frequent keys of cells that reach the threshold, with exact counts."""

    def most_frequent(self, number: int, min_count: int) -> tuple[I64, I64]:
        """The most frequent keys and their counts; fewer than `number` if there are no more."""
        threshold = max(min_count, _reached_by(self.fill_sketch(), number))
        while True:
            keys, counts = self.count(threshold, number)
            enough = len(counts) >= number and counts[-1] >= threshold
            if enough or threshold == min_count:
                kept = counts >= min_count
                return keys[kept], counts[kept]
            reached = int(counts[-1]) if len(counts) >= number else 1  # certainly by enough keys
            threshold = max(min_count, reached, threshold - 1 - threshold // STEP)


def _reached_by(cells: U16, number: int) -> int:
    """The largest value that at least `number` cells reach, or 1."""
    histogram = np.zeros(int(FULL) + 1, np.int64)
    count_cells(cells, histogram)
    at_least = np.cumsum(histogram[::-1])[::-1]
    return max(1, int(np.count_nonzero(at_least >= number)) - 1)


def new_sketch(cells: int) -> Sketch:
    """An empty sketch of at most this many cells."""
    bits = min(cells, POSITIONS).bit_length() - 1
    return Sketch(np.zeros(1 << bits, np.uint16), np.uint32(32 - bits))


def new_tables(workers: int, slots: int) -> CountTables:
    """Empty tables of `slots` keys, a power of two, for each worker; they count all keys."""
    keys, counts = np.zeros((2, workers, max(slots, 64)), np.int64)
    rounds = np.zeros((workers, 3), np.int64)
    rounds[:, 1] = POSITIONS
    return CountTables(keys, counts, rounds, SALT)


class Counter(FrequentKeys):
    """Counts the frequent keys of a corpus, within `memory` bytes."""

    def __init__(self, corpus: Corpus, memory: int, workers: int) -> None:
        self.corpus, self.workers = corpus, workers
        cells = memory // 2 // np.dtype(np.uint16).itemsize
        if corpus.nbytes is not None:  # few texts need no large sketch
            cells = min(cells, max(1 << 16, 16 * corpus.nbytes))
        self.sketch = new_sketch(cells)
        self.tables = new_tables(workers, 1 << (memory // 2 // 16 // workers).bit_length() - 1)

    def fill_sketch(self) -> U16:
        """Count all keys in the sketch."""
        for keys in self.corpus.all_keys():
            run_workers(add_to_sketch, self.workers, keys, self.sketch)
        return self.sketch.cells

    def count(self, threshold: int, number: int) -> tuple[I64, I64]:
        """The most frequent keys of cells that reach the threshold, with exact counts."""
        best = np.empty(0, np.int64), np.empty(0, np.int64)
        tables = self.tables
        begins, ends, used = tables.rounds.T
        begins[:] = 0
        while begins.min() < POSITIONS:
            ends[:], used[:] = POSITIONS, 0
            tables.counts[:] = 0
            for keys in self.corpus.all_keys():
                count_exactly(keys, self.sketch, threshold, tables)
            if used.max() == tables.counts.shape[1]:
                raise MemoryError("too many n-grams for the memory allowed: raise `memory`")
            found = tables.counts > 0
            keys = np.concatenate([best[0], tables.keys[found]])
            best = best_keys(keys, np.concatenate([best[1], tables.counts[found]]), number)
            begins[:] = ends
        return best


def count_exactly(keys: I64, sketch: Sketch, threshold: int, tables: CountTables) -> None:
    """Add keys to the tables, if their cells reach the threshold."""
    workers = len(tables.keys)
    passed = Passed(np.empty(len(keys) + 1, np.int64), np.zeros(workers, np.int64))
    run_workers(count_chosen, workers, keys, sketch, min(threshold, int(FULL)), passed, tables)


def best_keys(keys: I64, counts: I64, number: int) -> tuple[I64, I64]:
    """By count, the largest first, then by key."""
    if len(keys) > number:  # first drop the keys that are too rare to be among them
        least = np.partition(counts, len(counts) - number)[len(counts) - number]
        keys, counts = keys[counts >= least], counts[counts >= least]
    order = np.lexsort((keys, -counts))[:number]
    return keys[order], counts[order]
