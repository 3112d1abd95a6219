"""The most and the least important n-grams of a model, over any corpus, without a dictionary.

Table 4 of the paper lists the phrases with the largest and the smallest importance weights. There,
a dictionary maps each row of P to its phrase. Here the corpus takes its place. One pass counts the
keys of its n-grams (`text/counts/frequent.py`). When an n-gram has been seen `min_count` times, its
string is copied from the text. The weights of a key come from the model's tables.

In an ensemble, |p_w| and the evidence are means over the members. Every member has hash functions
of its own, so an n-gram shares its row with other n-grams in each: the chance of a collision is
that in one member, which is also the share of members to expect it in. Two n-grams have the same
vector only if they have it in all members.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.classify.explain.corpus_table import BY, By, Word, WordsTable
from hashembed.classify.explain.result import relative
from hashembed.classify.explain.text import importance_norms, ngram_contributions, plain_labels
from hashembed.core.arrays import F64, I64, is_among
from hashembed.core.arrow_columns import number_column
from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import given
from hashembed.engine.linear import LinearModel
from hashembed.hashing import theory
from hashembed.text.arrow import documents, pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.frequent import HeavyHitters
from hashembed.text.pipeline import kernel_rules, text_to_bags
from hashembed.text.span_kernels import cut_ngrams

MEMORY = 64 << 20
MIN_COUNT = 10
SMALLEST = 1e-300  # a chance below it is zero
MOST_BYTES = 255  # of an n-gram's string; longer ones end in an ellipsis

_BATCH_BYTES = 4 << 20
_BATCH_TEXTS = 4096
_KEYS_AT_A_TIME = 1 << 16
_FEW_STRINGS = 1 << 16  # not worth pruning


def important_ngrams(
    model: LinearModel,
    config: TextConfig,
    classes: Sequence[Any],
    texts: Any,
    *,
    top: int = 20,
    min_count: int = MIN_COUNT,
    memory: int = MEMORY,
    by: By = "weight",
    on_bytes: Callable[[int], object] = lambda count: None,
) -> WordsTable:
    """Find the n-grams of a corpus that matter most and least to a model, in one pass.

    Args:
        model: a trained shallow model, or an ensemble of them that averages logits.
        config: how the model splits text into n-grams.
        classes: the names of the model's classes, in the order of its outputs.
        texts: a column or list of str, an iterator of str, or an iterator of such batches. An
            iterator is read once and never held in memory as a whole.
        top: number of n-grams in each of the two lists (default 20).
        min_count: ignore n-grams that occur less often (default 10). The paper has no such
            limit, but the weights of n-grams that a model has hardly seen are close to their
            initial values.
        memory: bytes for counting. With too little, rare n-grams are forgotten: `missed` bounds
            the occurrences that were not counted, and no n-gram with `complete_from` occurrences is
            lost. The strings of n-grams that reach `min_count` need memory in addition.
        by: "weight" ranks by the paper's |p_w|. "evidence" ranks by the largest amount that the
            n-gram adds to the logit of any class; unlike |p_w| this includes the lengths and
            directions of its component vectors.
        on_bytes: gets the size of every piece of text after it is counted.
    """
    check_ranking(model, top, min_count, memory, by)
    first, config = model.parts[0], replace(config, repeats="all")
    hitters, strings = HeavyHitters(memory, min_count, first.threads), Strings()
    for piece in _pieces(texts):
        bags = text_to_bags(piece, config, first.threads)
        strings.add(bags.keys, hitters.update(bags.keys), bags.offsets, piece, config)
        if strings.crowded:
            strings.keep(hitters.items(min_count)[0])
        on_bytes(piece.nbytes)
    return rank(model, classes, hitters, strings.find, top, min_count, by)


class Hitters(Protocol):
    """Frequent keys and their counts."""

    total: int  # keys that were counted

    def floor_above(self, min_count: int) -> int:
        """How much more often than `min_count` a key must occur to be here for certain."""

    def items(self, least: int) -> tuple[I64, I64, I64]:
        """Keys that were seen so often, how often, and how many occurrences were missed at most."""

    def at_least(self, counts: I64) -> I64:
        """How many keys are as frequent as each of these counts, at most."""

    def distinct(self) -> float:
        """The number of distinct keys."""


Find = Callable[[I64], dict[int, tuple[str, bool]]]  # strings of keys, and whether of characters


def rank(
    model: LinearModel,
    classes: Sequence[Any],
    hitters: Hitters,
    find: Find,
    top: int,
    min_count: int,
    by: By,
) -> WordsTable:
    """The table of the most and the least important of these n-grams."""
    labels = plain_labels(classes, len(model.parts[0].tables.bias))
    frequent = _Frequent(model, labels, hitters, find, min_count)
    most, least = frequent.extremes(by, top)
    distinct = round(hitters.distinct())
    words = frequent.words(np.concatenate([most, least]))
    return WordsTable(
        most=words[: len(most)],
        least=words[len(most) :],
        by=by,
        min_count=min_count,
        looked_at=len(frequent.keys),
        complete_from=min_count + hitters.floor_above(min_count),
        total=hitters.total,
        distinct=distinct,
        same_row=float(_same_row(np.array([distinct]), model)[0]),
        same_vector=_same_vector(distinct, model),
        members=len(model.parts),
    )


def check_ranking(model: LinearModel, top: int, min_count: int, memory: int, by: By) -> None:
    """Refuse arguments that make no sense."""
    whole_number("top", top, 1, 2**31)
    whole_number("min_count", min_count, 1, 2**62)
    whole_number("memory", memory, 1 << 10, 2**62)
    one_of("by", by, BY)
    if by == "weight" and not model.importance:
        raise ValueError(
            f"this model has no importance weights to rank by: use {given('by', 'evidence')}"
        )


class _Frequent:
    """The n-grams that were seen often enough, the most frequent first."""

    def __init__(
        self,
        model: LinearModel,
        labels: list[Any],
        hitters: Hitters,
        find: Find,
        min_count: int,
    ) -> None:
        self.model, self.labels, self.hitters, self.find = model, labels, hitters, find
        self.keys, self.counts, self.missed = hitters.items(min_count)
        self.weights = importance_norms(model, self.keys) if model.importance else None

    def extremes(self, by: By, top: int) -> tuple[I64, I64]:
        """The positions of the most and of the least important; none is in both."""
        weights = self.weights if by == "weight" else None
        ranked = _evidence(self.model, self.keys) if weights is None else weights
        order = np.argsort(-ranked, kind="stable")  # on a tie, the more frequent comes first
        size = len(order)
        return order[: min(top, (size + 1) // 2)], order[::-1][: min(top, size // 2)]

    def words(self, chosen: I64) -> list[Word]:
        """What there is to say about the n-grams at these positions."""
        model, keys, weights = self.model, self.keys, self.weights
        rivals: list[int | None] = [None] * len(chosen)
        if model.importance and len(model.parts) == 1:
            rows, _ = model.parts[0].spec(keys)
            rivals = [_most_frequent_other(rows, i) for i in chosen]
        wanted = [i for i in [*chosen.tolist(), *rivals] if i is not None]
        named = self.find(keys[wanted])
        evidence = relative(ngram_contributions(model, keys[chosen]), model.multilabel)
        chances = _same_row(self.hitters.at_least(self.counts[chosen]), model)
        return [
            Word(
                *named[keys[i].item()],
                self.counts[i].item(),
                self.missed[i].item(),
                None if weights is None else weights[i].item(),
                self.labels[int(evidence[x].argmax())],
                float(evidence[x].max()),
                float(chances[x]),
                None if (rival := rivals[x]) is None else named[keys[rival].item()][0],
            )
            for x, i in enumerate(chosen)
        ]


def _same_row(others: npt.ArrayLike, model: LinearModel) -> F64:
    """The chance that an n-gram shares its row with any of `others` n-grams (itself included).

    In an ensemble it is the mean of the members' chances: the share of members to expect it in.
    """
    if not model.importance:
        return np.zeros(np.shape(others))
    chances = [theory.same_row_probability(others, part.spec) for part in model.parts]
    return np.asarray(sum(chances) / len(chances))


def _same_vector(distinct: int, model: LinearModel) -> float:
    """The chance that an n-gram has the same vector as another one, in all parts."""

    def chance(ngrams: int) -> list[float]:
        return [
            float(theory.indistinguishable_probability(ngrams, x.spec, importance=x.importance))
            for x in model.parts
        ]

    if len(model.parts) == 1:
        return chance(distinct)[0]
    pair = math.prod(chance(2))  # members hash independently
    return float(theory.collision_probability(distinct, 1 / pair)) if pair > SMALLEST else 0.0


def _evidence(model: LinearModel, keys: I64) -> F64:
    """The largest evidence of each key for any class: (n,)."""
    parts = [keys[i : i + _KEYS_AT_A_TIME] for i in range(0, len(keys), _KEYS_AT_A_TIME)]
    largest = [
        relative(ngram_contributions(model, part), model.multilabel).max(axis=1) for part in parts
    ]
    return np.concatenate([np.empty(0), *largest])


def _most_frequent_other(rows: I64, i: int) -> int | None:
    """The first other key in the row of key i. Keys are sorted by frequency."""
    others = np.flatnonzero(rows == rows[i])
    others = others[others != i]
    return int(others[0]) if len(others) else None


# --- text in pieces --------------------------------------------------------------------------


def _pieces(texts: Any) -> Iterator[pa.Array]:
    """Texts as Arrow arrays of a few megabytes."""
    for column in _columns(texts):
        yield from pieces(column, _BATCH_BYTES)


def _columns(texts: Any) -> Iterator[pa.ChunkedArray]:
    """Texts, or batches of texts, as Arrow columns; at most one batch is read in advance."""
    whole = isinstance(texts, str | bytes | dict | pa.Array | pa.ChunkedArray | np.ndarray)
    offers = hasattr(texts, "to_numpy") or hasattr(texts, "__arrow_c_stream__")
    if whole or offers or not isinstance(texts, Iterable):
        yield to_arrow(texts)  # which refuses what it cannot read
        return
    items = iter(texts)
    first = next(items, None)
    items = chain([first], items)
    if first is None or isinstance(first, str | bytes):
        while batch := list(islice(items, _BATCH_TEXTS)):
            yield to_arrow(batch)
    else:
        for batch in items:
            yield to_arrow(batch)


# --- strings of frequent n-grams -------------------------------------------------------------


class Strings:
    """The strings of frequent keys, copied from the corpus."""

    def __init__(self) -> None:
        self._keys, self._texts, self._subwords = _NO_KEYS, _NO_TEXTS, _NO_KEYS
        self._room = _FEW_STRINGS

    def add(
        self, keys: I64, positions: I64, offsets: I64, piece: pa.Array, config: TextConfig
    ) -> None:
        """Copy the n-grams of the keys at these positions from their texts."""
        if len(positions) == 0:
            return
        found, texts, text_ends = cut_ngrams(
            documents(piece), offsets, positions, kernel_rules(config), MOST_BYTES
        )
        edges = pa.py_buffer(np.append(0, text_ends))
        cut = pa.LargeStringArray.from_buffers(len(positions), edges, pa.py_buffer(texts))
        self._keys = np.append(self._keys, keys[positions])
        self._texts = pa.chunked_array([*self._texts.chunks, cut])
        self._subwords = np.append(self._subwords, found[:, 2])

    @property
    def crowded(self) -> bool:
        """Whether there are twice as many strings as the last pruning kept."""
        return len(self._keys) > self._room

    def keep(self, keys: I64) -> None:
        """Drop the strings of all other keys."""
        _, first = np.unique(self._keys, return_index=True)
        kept = first[is_among(self._keys[first], keys)]
        self._keys, self._subwords = self._keys[kept], self._subwords[kept]
        self._texts = pa.chunked_array([self._texts.take(number_column(kept)).combine_chunks()])
        self._room = max(self._room, 2 * len(kept))

    def find(self, keys: I64) -> dict[int, tuple[str, bool]]:
        """The string of each key, and whether it is a character n-gram."""
        places = np.flatnonzero(is_among(self._keys, keys))
        texts = [self._texts[place].as_py() for place in places.tolist()]
        flags = self._subwords[places].astype(bool).tolist()
        return dict(zip(self._keys[places].tolist(), zip(texts, flags, strict=True), strict=True))


_NO_KEYS = np.empty(0, np.int64)
_NO_TEXTS = pa.chunked_array([], pa.large_string())
