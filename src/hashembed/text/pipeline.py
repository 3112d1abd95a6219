"""Text to bags of 64-bit n-gram keys: Arrow strings in, `Bags` out, on all cores.

A word is a run of characters other than white space and punctuation (Unicode's categories P and
ASCII's `string.punctuation`). Everything else, emoji and other symbols too, is part of a word, and
nothing else is done to the text. Where punctuation is kept, a run of it is a word, too. Bytes that
are not UTF-8 count as U+FFFD, the way `bytes.decode("utf8", "replace")` reads them.
`text/unicode.py` holds the classes of characters.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import I64, U8, U32
from hashembed.core.threads import cpu_count, run_workers
from hashembed.hashing.bags import Bags
from hashembed.text.arrow import documents, few_bytes, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.key_kernels import count_words, cut_documents, fill_keys, keys_of, lay_out
from hashembed.text.unicode import character_table, punctuation_table

_TASK = 1 << 20  # bytes: the share of a thread at a time, and the length of a cut in a document
_DOCUMENT = 16  # bytes: what the handling of a document costs
_TASKS_AT_ONCE = 32  # of a thread: a fraction of a second
_FEW = 64  # texts that do not go through Arrow


def kernel_settings(config: TextConfig) -> tuple[int, int, int, int, int]:
    """The configuration as the kernels take it, see `fill_keys`."""
    upper = 0x80808080 if config.lowercase else 0
    return (*config.ngrams, *(config.subwords or (0, 0)), upper)


def kernel_tables(config: TextConfig) -> tuple[U32, U8 | None]:
    """What becomes of characters, and which of them are punctuation, as the kernels take it."""
    keep = config.punctuation == "keep"
    return character_table(config.lowercase, keep), punctuation_table() if keep else None


@dataclass(frozen=True)
class _Column:
    """A piece of Arrow as the kernels read it: documents, those that are long in segments."""

    data: U8
    starts: I64  # (segments,)
    ends: I64  # (segments,)
    last: npt.NDArray[np.bool_]  # (segments,): whether the document ends there
    before: int = 0  # segments in the columns before this one

    def tasks(self) -> list[tuple["_Column", int, int]]:
        """Ranges of segments that cost about the same."""
        count = len(self.starts)
        if count == 0:
            return []
        costs = self.starts - self.starts[0] + _DOCUMENT * np.arange(count)
        cuts = np.searchsorted(costs, np.arange(_TASK, costs[-1] + 1, _TASK))
        edges = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
        return [(self, first, stop) for first, stop in pairwise(edges)]


def _column(chunk: pa.Array, table: U32) -> _Column:
    data, starts, ends = documents(chunk)
    last = np.ones(len(chunk), np.bool_)
    if (ends - starts).max(initial=0) > 2 * _TASK:
        starts, ends, last = cut_documents(data, starts, ends, table, _TASK)
    return _Column(data, starts, ends, last)


def _grouped(chunks: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The same texts with small chunks put together."""
    group: list[pa.Array] = []
    size = 0
    for chunk in chunks:
        if group and size + chunk.nbytes > _TASK:
            yield pa.concat_arrays(group) if len(group) > 1 else group[0]
            group, size = [], 0
        group.append(chunk)
        size += chunk.nbytes
    if group:
        yield pa.concat_arrays(group) if len(group) > 1 else group[0]


def _run(work: Callable[[tuple[_Column, int, int]], None], tasks: list[Any], threads: int) -> None:
    """Do all tasks, some at a time: Ctrl-C is heard in between."""
    at_once = max(_TASKS_AT_ONCE * threads, 1)
    for first in range(0, len(tasks), at_once):
        group = tasks[first : first + at_once]
        waiting = iter(group)  # each worker takes the next; one step of an iterator is atomic

        def take_tasks(worker: int, workers: int, barrier: Any, waiting: Any = waiting) -> None:
            for task in waiting:
                work(task)

        run_workers(take_tasks, min(threads, len(group)))


def text_to_bags(texts: Any, config: TextConfig | None = None, threads: int | None = None) -> Bags:
    """One bag of keys for each text; a null is an empty bag. `to_arrow` says what texts may be.

    `threads`: None is all cores. First every word is counted, then every key is written to its
    place, so that the result is the same for any number, and nothing but the result is large.
    """
    config = config or TextConfig()
    tables, settings = kernel_tables(config), kernel_settings(config)
    if type(texts) is list and len(texts) <= _FEW:
        few = few_bytes(texts)
        if few is not None:
            return Bags.trusted(*keys_of(*few, *tables, settings))
    columns: list[_Column] = []
    count = 0
    for chunk in _grouped(to_arrow(texts).chunks):
        columns.append(replace(_column(chunk, tables[0]), before=count))
        count += len(columns[-1].starts)
    tasks = [task for column in columns for task in column.tasks()]
    last = np.concatenate([np.empty(0, np.bool_), *(column.last for column in columns)])
    words, pieces, places = np.zeros((3, count), np.int64)

    def count_task(task: tuple[_Column, int, int]) -> None:
        c, first, stop = task
        own = slice(c.before, c.before + len(c.starts))
        count_words(
            c.data, c.starts, c.ends, first, stop, *tables, settings, words[own], pieces[own]
        )

    def fill_task(task: tuple[_Column, int, int]) -> None:
        c, first, stop = task
        place = places[c.before + first]
        fill_keys(c.data, c.starts, c.ends, c.last, first, stop, *tables, settings, keys, place)

    threads = threads or cpu_count()
    _run(count_task, tasks, threads)
    offsets = np.zeros(1 + np.count_nonzero(last), np.int64)
    lay_out(words, pieces, last, settings, offsets, places)
    keys = np.empty(offsets[-1], np.int64)
    _run(fill_task, tasks, threads)
    return Bags(keys, offsets)
