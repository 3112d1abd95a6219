"""Text to bags of 64-bit n-gram keys: Arrow strings in, `Bags` out, on all cores.

A word is a run of characters other than white space and punctuation (Unicode's categories P and
ASCII's `string.punctuation`). Everything else, emoji and other symbols included, is part of a word.
Where punctuation is kept, a run of it is a word too. Bytes that are not UTF-8 count as U+FFFD, as
`bytes.decode("utf8", "replace")` reads them. `text/characters.py` holds the classes of characters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.core.arrays import I64, U8, U32
from hashembed.core.threads import cpu_count, run_workers
from hashembed.hashing.bags import Bags
from hashembed.text.characters import character_table, punctuation_table
from hashembed.text.config import TextConfig
from hashembed.text.few_texts import FEW, few_bytes
from hashembed.text.key_kernels import (
    Segments,
    count_words,
    cut_documents,
    fill_keys,
    lay_out,
)
from hashembed.text.repeats import CODES, without_repeats
from hashembed.text.word_kernels import Rules

if TYPE_CHECKING:
    import pyarrow as pa

_TASK = 1 << 20  # bytes of a task, and of a segment of a long document
_DOCUMENT = 16  # the overhead of a document, in bytes of text that take as long
_TASKS_AT_ONCE = 32  # for each thread: a fraction of a second


@cache
def kernel_rules(config: TextConfig) -> Rules:
    """The configuration in the form that the kernels take."""
    keep = config.punctuation == "keep"
    return Rules(
        table=character_table(config.lowercase, keep),
        punctuation=punctuation_table() if keep else None,
        orders=(*config.ngrams, *(config.subwords or (0, 0))),
        upper=0x80808080 if config.lowercase else 0,
        repeats=CODES[config.repeats],
    )


@dataclass(frozen=True)
class _Column:
    """A piece of Arrow as the kernels read it; only long documents have several segments."""

    segments: Segments
    before: int = 0  # segments in the columns before this one

    def __len__(self) -> int:
        return len(self.segments.starts)

    def tasks(self) -> list["_Task"]:
        """Ranges of segments that cost about the same."""
        if len(self) == 0:
            return []
        starts = self.segments.starts
        costs = starts - starts[0] + _DOCUMENT * np.arange(len(self))
        cuts = np.searchsorted(costs, np.arange(_TASK, costs[-1] + 1, _TASK))
        edges = sorted({0, *cuts.tolist(), len(self)})
        return [(self, first, stop) for first, stop in pairwise(edges)]


_Task = tuple[_Column, int, int]  # segments first..stop-1 of a column


def _column(chunk: "pa.Array", table: U32, before: int) -> _Column:
    from hashembed.text.arrow import documents

    data, starts, ends = documents(chunk)
    if (ends - starts).max(initial=0) > 2 * _TASK:
        most = len(starts) + int(((ends - starts) // _TASK).sum())
        begins, stops, last = *np.empty((2, most), np.int64), np.empty(most, np.bool_)
        count = cut_documents(starts, ends, table, _TASK, Segments(data, begins, stops, last))
        cut = Segments(data, begins[:count], stops[:count], last[:count])
        return _Column(cut, before)
    return _Column(Segments(data, starts, ends, np.ones(len(chunk), np.bool_)), before)


def _run(work: Callable[[_Task], None], tasks: list[_Task], threads: int) -> None:
    """Do all tasks, a few at a time, so that Ctrl-C is noticed in between."""
    at_once = max(_TASKS_AT_ONCE * threads, 1)
    for first in range(0, len(tasks), at_once):
        group = tasks[first : first + at_once]
        waiting = iter(group)  # each worker takes the next; one step of an iterator is atomic

        def take_tasks(
            worker: int, workers: int, barrier: I64, waiting: Iterator[_Task] = waiting
        ) -> None:
            for task in waiting:
                work(task)

        run_workers(take_tasks, min(threads, len(group)))


def _few_bags(data: U8, starts: I64, ends: I64, rules: Rules) -> Bags:
    """The bags of a few short documents, without threads."""
    count = len(starts)
    segments = Segments(data, starts, ends, np.ones(count, np.bool_))
    words, pieces, places = np.zeros((3, count), np.int64)
    offsets = np.zeros(count + 1, np.int64)
    count_words(segments, 0, count, rules, words, pieces)
    lay_out(words, pieces, segments.last, rules.orders, offsets, places)
    keys = np.empty(offsets[-1], np.int64)
    if count:
        fill_keys(segments, 0, count, rules, keys, 0)
    return without_repeats(keys, offsets, rules.repeats, 1)


def text_to_bags(texts: Any, config: TextConfig | None = None, threads: int | None = None) -> Bags:
    """One bag of keys for each text; a null is an empty bag. `to_arrow` says what texts may be.

    `threads`: None is all cores. A first pass counts the words, a second writes every key to its
    place. So the result is the same for any number of threads, and no other array is large.
    """
    rules = kernel_rules(config or TextConfig())
    if type(texts) is list and len(texts) <= FEW:
        few = few_bytes(texts)
        if few is not None:
            return _few_bags(*few, rules)
    from hashembed.text.arrow import merge_small, to_arrow

    columns: list[_Column] = []
    count = 0
    for chunk in merge_small(to_arrow(texts).chunks, _TASK):
        columns.append(_column(chunk, rules.table, count))
        count += len(columns[-1])
    tasks = [task for column in columns for task in column.tasks()]
    last = np.concatenate([np.empty(0, np.bool_), *(column.segments.last for column in columns)])
    words, pieces, places = np.zeros((3, count), np.int64)

    def count_task(task: _Task) -> None:
        column, first, stop = task
        own = slice(column.before, column.before + len(column))
        count_words(column.segments, first, stop, rules, words[own], pieces[own])

    def fill_task(task: _Task) -> None:
        column, first, stop = task
        fill_keys(column.segments, first, stop, rules, keys, places[column.before + first])

    threads = threads or cpu_count()
    _run(count_task, tasks, threads)
    offsets = np.zeros(1 + np.count_nonzero(last), np.int64)
    lay_out(words, pieces, last, rules.orders, offsets, places)
    keys = np.empty(offsets[-1], np.int64)
    _run(fill_task, tasks, threads)
    return without_repeats(keys, offsets, rules.repeats, threads)
