"""The most and the least important n-grams of a model, over any corpus, without a dictionary.

Table 4 of the paper lists the phrases with the largest and the smallest importance weights; a
dictionary says which phrase a row of P belongs to. Here the corpus says it: one pass counts its
n-grams by their keys (`text/counts/frequent.py`) and cuts a string out of the text when an n-gram
has been seen `min_count` times. The model's tables then tell the weights of any key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.classify.explain.corpus_table import BY, By, Word, WordsTable
from hashembed.classify.explain.result import relative
from hashembed.classify.explain.text import importance_norms, ngram_contributions, plain_labels
from hashembed.core.arrays import F64, I64
from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import given
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing import theory
from hashembed.text.arrow import documents, pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.frequent import HeavyHitters
from hashembed.text.pipeline import kernel_rules, text_to_bags
from hashembed.text.span_kernels import cut_ngrams

MEMORY = 64 << 20
MIN_COUNT = 10
MOST_BYTES = 255  # of an n-gram's string; what is longer ends in an ellipsis

_BATCH_BYTES = 4 << 20
_BATCH_TEXTS = 4096
_KEYS_AT_A_TIME = 1 << 16
_FEW_STRINGS = 1 << 16  # need no tidying up


def important_ngrams(
    model: ShallowModel,
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
    """The n-grams of a corpus that matter most and least to a model, in one pass.

    Args:
        model, config, classes: the model, how it reads text, and the names of its outputs.
        texts: a column or list of str, an iterator of str, or an iterator of such batches; an
            iterator is read once and never held whole.
        top: how many of each.
        min_count: n-grams must have been seen this often. The paper has no such limit; but the
            weights of what a model has hardly seen are hardly more than their initial values.
        memory: bytes for counting. With too little, rare n-grams are forgotten and `missed` says
            how many occurrences at most; no n-gram of `complete_from` occurrences is lost. The
            strings of n-grams that reach `min_count` come on top.
        by: "weight" is the paper's |p_w|. It leaves out how long the component vectors are that
            it weighs and where they point, which "evidence" counts: the largest of what the n-gram
            adds to any class.
        on_bytes: is told the size of every piece of text that is done.
    """
    whole_number("top", top, 1, 2**31)
    whole_number("min_count", min_count, 1, 2**62)
    whole_number("memory", memory, 1 << 10, 2**62)
    one_of("by", by, BY)
    if by == "weight" and not model.importance:
        raise ValueError(
            f"this model has no importance weights to rank by: use {given('by', 'evidence')}"
        )
    labels = plain_labels(classes, len(model.tables.bias))
    hitters, strings = HeavyHitters(memory, min_count, model.threads), _Strings()
    for piece in _pieces(texts):
        bags = text_to_bags(piece, config, model.threads)
        strings.add(bags.keys, hitters.update(bags.keys), bags.offsets, piece, config)
        if strings.crowded:
            strings.keep(hitters.items(min_count)[0])
        on_bytes(piece.nbytes)

    keys, counts, missed = hitters.items(min_count)
    weights = importance_norms(model, keys) if model.importance else None
    ranked = weights if by == "weight" and weights is not None else _evidence(model, keys)
    order = np.argsort(-ranked, kind="stable")  # of equals, the frequent first
    most = order[: min(top, (len(order) + 1) // 2)]
    least = order[::-1][: min(top, len(order) // 2)]

    chosen = np.concatenate([most, least])
    rows, _ = model.spec(keys)
    rivals = [_most_frequent_other(rows, i) if model.importance else None for i in chosen]
    wanted = [i for i in [*chosen.tolist(), *rivals] if i is not None]
    named = strings.find(keys[wanted])
    evidence = relative(ngram_contributions(model, keys[chosen]), model.multilabel)
    chances = _same_row(hitters.at_least(counts[chosen]), model)
    words = [
        Word(
            *named[keys[i].item()],
            counts[i].item(),
            missed[i].item(),
            None if weights is None else weights[i].item(),
            labels[int(evidence[x].argmax())],
            float(evidence[x].max()),
            float(chances[x]),
            None if rivals[x] is None else named[keys[rivals[x]].item()][0],
        )
        for x, i in enumerate(chosen)
    ]
    distinct = round(hitters.distinct())
    same_vector = theory.indistinguishable_probability(
        distinct, model.spec, importance=model.importance
    )
    return WordsTable(
        most=words[: len(most)],
        least=words[len(most) :],
        by=by,
        min_count=min_count,
        looked_at=len(keys),
        complete_from=min_count + hitters.floor,
        total=hitters.total,
        distinct=distinct,
        same_row=float(_same_row(np.array([distinct]), model)[0]),
        same_vector=float(same_vector),
    )


def _same_row(others: npt.ArrayLike, model: ShallowModel) -> F64:
    """The chance that an n-gram shares its weights with one of so many (itself counted)."""
    if not model.importance:
        return np.zeros(np.shape(others))
    return np.asarray(theory.same_row_probability(others, model.spec))


def _evidence(model: ShallowModel, keys: I64) -> F64:
    """The largest evidence for any class, of each key: (n,)."""
    parts = [keys[i : i + _KEYS_AT_A_TIME] for i in range(0, len(keys), _KEYS_AT_A_TIME)]
    largest = [
        relative(ngram_contributions(model, part), model.multilabel).max(axis=1) for part in parts
    ]
    return np.concatenate([np.empty(0), *largest])


def _most_frequent_other(rows: I64, i: int) -> int | None:
    """The first other key in the row of key i; keys come by frequency."""
    others = np.flatnonzero(rows == rows[i])
    others = others[others != i]
    return int(others[0]) if len(others) else None


# --- text in pieces --------------------------------------------------------------------------


def _pieces(texts: Any) -> Iterator[pa.Array]:
    """Texts as Arrow arrays of a few megabytes."""
    for column in _columns(texts):
        yield from pieces(column, _BATCH_BYTES)


def _columns(texts: Any) -> Iterator[pa.ChunkedArray]:
    """Texts, or batches of texts, as Arrow columns; iterators are not read ahead by much."""
    whole = isinstance(texts, str | bytes | dict | pa.Array | pa.ChunkedArray | np.ndarray)
    offers = hasattr(texts, "to_numpy") or hasattr(texts, "__arrow_c_stream__")
    if whole or offers or not isinstance(texts, Iterable):
        yield to_arrow(texts)  # or an error that says what is wrong
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


class _Strings:
    """What the n-grams behind some keys look like, out of the corpus itself."""

    def __init__(self) -> None:
        self._keys, self._texts, self._subwords = _NO_KEYS, _NO_TEXTS, _NO_KEYS
        self._room = _FEW_STRINGS

    def add(
        self, keys: I64, positions: I64, offsets: I64, piece: pa.Array, config: TextConfig
    ) -> None:
        """Cut the n-grams behind the keys at these positions from the texts they came from."""
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
        """Whether there are twice as many strings as were last found worth keeping."""
        return len(self._keys) > self._room

    def keep(self, keys: I64) -> None:
        """Drop the strings of all other keys."""
        _, first = np.unique(self._keys, return_index=True)
        kept = first[np.isin(self._keys[first], keys)]
        self._keys, self._subwords = self._keys[kept], self._subwords[kept]
        self._texts = pa.chunked_array([self._texts.take(pa.array(kept)).combine_chunks()])
        self._room = max(self._room, 2 * len(kept))

    def find(self, keys: I64) -> dict[int, tuple[str, bool]]:
        """The string of each of these keys, and whether it is of characters."""
        places = np.flatnonzero(np.isin(self._keys, keys))
        texts = self._texts.take(pa.array(places)).to_pylist()
        flags = self._subwords[places].astype(bool).tolist()
        return dict(zip(self._keys[places].tolist(), zip(texts, flags, strict=True), strict=True))


_NO_KEYS = np.empty(0, np.int64)
_NO_TEXTS = pa.chunked_array([], pa.large_string())
