"""The most and the least important n-grams of a model, over a dataset."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.core.arrays import I64
from hashembed.distributed.cluster import connected
from hashembed.distributed.columns import Columns, Names, Skipped
from hashembed.distributed.counting import ClusterCounter
from hashembed.distributed.groups import Group, add_up, fetch, run_groups
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import CHUNK

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.explain.corpus_table import By, WordsTable

MEMORY = 1 << 30
KEY_BYTES = 24  # of a counted key: itself, its count, its weight


def important_ngrams(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    top: int = 20,
    min_count: int | None = None,
    memory: int = MEMORY,
    by: "By" = "weight",
    on_error: str = "stop",
) -> "WordsTable":
    """Find the n-grams of a Ray dataset that matter most and least to a model.

    Counts are exact. The result is that of `TextClassifier.important_ngrams` with enough memory for
    all n-grams. If those that occur `min_count` times need more than `memory` bytes, the rarest are
    left out, and `complete_from` of the result is larger than `min_count`.

    Args:
        clf: a trained classifier.
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        top: as in `TextClassifier.important_ngrams`.
        min_count: as there.
        memory: bytes for the n-grams that are ranked, and for the tables of a task.
        by: as there.
        on_error: "stop" (default) raises a `DataError` for a row without text, "skip" leaves it
            out.
    """
    from hashembed.classify.explain import corpus
    from hashembed.classify.trained import shallow_model

    connected()
    min_count = corpus.MIN_COUNT if min_count is None else min_count
    model = shallow_model(clf, "rank n-grams by importance")
    corpus.check_ranking(model, top, min_count, memory, by)
    columns = Columns.of(ds, text, None, on_error)
    config = replace(clf.text_config_, repeats="all")
    counter = ClusterCounter(ds, columns, config, memory)
    counter.fill_sketch()
    most = max(memory // KEY_BYTES, 1)
    distinct = round(counter.distinct().estimate())
    everything = distinct <= most // 2  # then the number of distinct n-grams is exact
    keys, counts = counter.most_frequent(most, 1 if everything else min_count)
    total = 0 if counter.seen is None else counter.seen.total
    hitters = ExactCounts(keys, counts, total, None if everything else distinct, len(keys) == most)

    def strings(wanted: I64) -> dict[int, tuple[str, bool]]:
        return _strings_of(ds, columns, config, wanted)

    return corpus.rank(model, clf.classes_.tolist(), hitters, strings, top, min_count, by)


class ExactCounts:
    """Keys with exact counts, in the form of `HeavyHitters`: none was missed."""

    def __init__(self, keys: I64, counts: I64, total: int, distinct: int | None, cut: bool) -> None:
        self.keys, self.counts, self.total, self._distinct = keys, counts, total, distinct
        self._least = int(counts[-1]) if cut else 0  # rarer ones may be missing

    def floor_above(self, min_count: int) -> int:
        """How much more often than `min_count` an n-gram must occur to be here for certain."""
        return max(0, self._least + 1 - min_count) if self._least else 0

    def items(self, least: int) -> tuple[I64, I64, I64]:
        """Keys, counts and missed occurrences, frequent keys first."""
        chosen = self.counts >= least
        return self.keys[chosen], self.counts[chosen], np.zeros(int(chosen.sum()), np.int64)

    def at_least(self, counts: I64) -> I64:
        """The number of keys that are as frequent as each of these counts."""
        rising = self.counts[::-1]
        return np.asarray(len(rising) - np.searchsorted(rising, counts), np.int64)

    def distinct(self) -> float:
        """The number of distinct keys."""
        return float(len(self.keys) if self._distinct is None else self._distinct)


def _strings_of(
    ds: Any, columns: Columns, config: TextConfig, keys: I64
) -> dict[int, tuple[str, bool]]:
    """The string of each key, and whether it is a character n-gram."""
    work = _find_strings, columns, config, np.unique(keys)
    total = add_up(run_groups(columns.select(ds), "strings", *work), "strings: sum", _both)
    return {} if total is None else fetch(total)


def _find_strings(
    group: Group, columns: Columns, config: TextConfig, keys: I64
) -> dict[int, tuple[str, bool]]:
    """The task: the strings of the keys that occur in a group."""
    from hashembed.classify.explain.corpus import Strings
    from hashembed.core.arrays import is_among
    from hashembed.text.pipeline import text_to_bags

    found: dict[int, tuple[str, bool]] = {}
    for first, table in group.tables():
        texts = columns.read(first, table, Skipped()).texts
        for piece in pieces(to_arrow(texts), CHUNK):
            missing = np.array([key for key in keys.tolist() if key not in found], np.int64)
            if not len(missing):
                return found
            bags = text_to_bags(piece, config, 1)
            places = np.flatnonzero(is_among(bags.keys, missing))
            _, once = np.unique(bags.keys[places], return_index=True)
            strings = Strings()
            strings.add(bags.keys, np.sort(places[once]), bags.offsets, piece, config)
            found |= strings.find(missing)
    return found


def _both(
    one: dict[int, tuple[str, bool]], two: dict[int, tuple[str, bool]]
) -> dict[int, tuple[str, bool]]:
    return {**two, **one}
