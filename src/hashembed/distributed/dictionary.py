"""Dictionaries of a dataset: see `text/dictionary.py`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrow_columns import number_column
from hashembed.distributed.cluster import connected
from hashembed.distributed.columns import Columns, Names, Skipped
from hashembed.distributed.counting import ClusterCounter
from hashembed.distributed.groups import Group, add_up, fetch, run_groups
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import CHUNK
from hashembed.text.dictionary import (
    MEMORY,
    NGRAMS,
    SIZE,
    Dictionary,
    Spelled,
    in_order_of_ranks,
)


def count_dictionary(
    ds: Any,
    *,
    text: Names = "text",
    config: TextConfig | None = None,
    size: int = SIZE,
    min_count: int = 1,
    stop: Sequence[str] = (),
    memory: int = MEMORY,
    on_error: str = "stop",
) -> Dictionary:
    """Find the most frequent n-grams of a Ray dataset: the same as `Dictionary.count`.

    The dataset is read at least three times: for a sketch of the counts, for exact counts, and for
    the strings.

    Args:
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        config: how text becomes n-grams; None is the paper's 1- to 9-grams.
        size: keep at most this many n-grams.
        min_count: drop n-grams that are less frequent.
        stop: n-grams to leave out.
        memory: bytes for the tables of one task.
        on_error: "stop" (default) raises a `DataError` for a row without text, "skip" leaves it
            out.
    """
    connected()
    config = config or TextConfig(NGRAMS)
    columns = Columns.of(ds, text, None, on_error)
    every = replace(config, repeats="all")
    counter = ClusterCounter(ds, columns, every, memory)
    found = Dictionary.without_strings(lambda: counter, config, size, min_count, stop, memory)
    found.strings = spell_out(ds, columns, every, found)
    return found


def spell_out(
    ds: Any, columns: Columns, config: TextConfig, dictionary: Dictionary
) -> pa.LargeStringArray:
    """The string of each n-gram, from the first place where it occurs."""
    if not len(dictionary):
        return in_order_of_ranks([], 0)
    from hashembed.distributed.cluster import load_ray

    work = _spell_group, columns, config, load_ray().put(dictionary)
    total = add_up(run_groups(columns.select(ds), "spell", *work), "spell: sum", _first_of_both)
    return in_order_of_ranks([] if total is None else [fetch(total)], len(dictionary))


def _spell_group(
    group: Group, columns: Columns, config: TextConfig, dictionary: Dictionary
) -> Spelled:
    """The task: the n-grams of the dictionary that occur in a group, and their strings."""
    seen, parts = np.zeros(len(dictionary), np.bool_), []
    for first, table in group.tables():
        texts = columns.read(first, table, Skipped()).texts
        for piece in pieces(to_arrow(texts), CHUNK):
            parts.append(dictionary.spell(piece, config, seen, 1))
    return _joined(parts)


def _first_of_both(one: Spelled, two: Spelled) -> Spelled:
    """All n-grams of both; those of the first come first."""
    new = np.flatnonzero(~np.isin(two.ranks, one.ranks))
    return _joined([one, Spelled(two.ranks[new], two.strings.take(number_column(new)))])


def _joined(parts: Sequence[Spelled]) -> Spelled:
    none = pa.array([], pa.large_string())
    ranks = np.concatenate([np.empty(0, np.int64), *(part.ranks for part in parts)])
    return Spelled(ranks, pa.concat_arrays([none, *(part.strings for part in parts)]))
