"""Trained vectors: the vocabulary, the hash, the tables, and the vectors of texts."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import F32, I64, distinct, is_among
from hashembed.core.arrow_columns import mask_column, number_column
from hashembed.core.threads import cpu_count, run_workers
from hashembed.engine.shallow.arrays import padded
from hashembed.hashing.spec import HashSpec
from hashembed.text.arrow import to_arrow
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags
from hashembed.text.string_keys import keys as string_keys
from hashembed.vectors.arrays import Tables
from hashembed.vectors.corpus import entries_of, units_of, words_of
from hashembed.vectors.embed_kernels import embed_bags
from hashembed.vectors.phrase_kernels import INSIDE
from hashembed.vectors.row_table import CodedWeights, RowTable, SignWeights
from hashembed.vectors.settings import VectorSettings

_WORDS_AT_ONCE = 1 << 14
_TEXT_BYTES_AT_ONCE = 1 << 22
_KEYS_FOR_ONE_THREAD = 10_000


@dataclass
class VectorModel:
    """What training made, or a file holds.

    E: component vectors. P (K, k): importance weights; the rows that no word of the corpus has are
    0, so n-grams that were never seen count nothing. state: all that further training needs.
    """

    settings: VectorSettings
    dictionary: Dictionary
    spec: HashSpec
    E: RowTable
    P: F32 | CodedWeights | SignWeights
    state: Tables | None = None
    losses: list[float] = field(default_factory=list)
    threads: int | None = None

    @classmethod
    def trained(
        cls, settings: VectorSettings, dictionary: Dictionary, spec: HashSpec, tables: Tables
    ) -> "VectorModel":
        """A model of the tables that training has changed."""
        P = np.where(tables.P_square[:, None] > 0, tables.P, np.float32(0))
        E = RowTable(tables.E, settings.embedding_dim)
        return cls(settings, dictionary, spec, E, P, tables)

    @property
    def importance(self) -> F32:
        """P, decoded."""
        return self.P if isinstance(self.P, np.ndarray) else self.P.whole

    @property
    def hashed(self) -> bool:
        """Whether keys are hashed. If not, the key of a word is its rank."""
        return self.spec.indexing != "identity"

    @cached_property
    def vectors(self) -> F32:
        """The vectors (V, d) of all words of the vocabulary."""
        if not self.hashed and type(self.E) is RowTable:
            return self.E.whole[: len(self.dictionary), : self.settings.embedding_dim]
        out = np.empty((len(self.dictionary), self.settings.embedding_dim), np.float32)
        for first in range(0, len(out), _WORDS_AT_ONCE):
            ranks = np.arange(first, min(first + _WORDS_AT_ONCE, len(out)))
            out[first : first + len(ranks)] = self.of_ranks(ranks)
        return out

    def embed(self, texts: Any, weights: F32 | None = None) -> F32:
        """The mean vector (n, d) of the words of each text; zeros for a text without words.

        weights (V,): of the words of the vocabulary, for a weighted mean; others have 1.
        """
        column = to_arrow(texts)
        parts = [np.empty((0, self.settings.embedding_dim), np.float32)]
        for chunk in column.chunks:
            parts += [self._embed_some(piece, weights) for piece in _pieces(chunk)]
        out = np.concatenate(parts)
        if not self.hashed:
            ranks = self._exact_ranks(column)
            out[ranks >= 0] = self.of_ranks(ranks[ranks >= 0])
        return out

    def ranks(self, texts: Any) -> I64:
        """The rank of each string in the vocabulary; -1 if it is unknown, or not one word."""
        ranks = self._ranks_of_words(texts)
        if not self.hashed:
            exact = self._exact_ranks(texts)
            ranks = np.where(exact >= 0, exact, ranks)
        return ranks

    def entries(self, strings: Any) -> tuple[I64, I64]:
        """The keys that the vector of each string is the mean of -> keys, offsets (n + 1,).

        Without a hash, keys are ranks. An unknown word has no key of its own.
        """
        column = to_arrow(strings)
        ranks = self.ranks(column)
        if not self.hashed:
            return ranks[ranks >= 0], np.concatenate([[0], np.cumsum(ranks >= 0)])
        known = ranks >= 0
        of_known = self._entries_of_ranks(ranks[known])
        of_others = self._entries_of_unknown(column.filter(mask_column(~known)))
        lengths = np.zeros(len(ranks), np.int64)
        lengths[known], lengths[~known] = np.diff(of_known[1]), np.diff(of_others[1])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        keys = np.empty(offsets[-1], np.int64)
        of_string = np.repeat(known, lengths)
        keys[of_string], keys[~of_string] = of_known[0], of_others[0]
        return keys, offsets

    def _entries_of_ranks(self, ranks: I64) -> tuple[I64, I64]:
        strings = self.dictionary.strings.take(number_column(ranks))
        return entries_of(strings, self.settings.words, self.settings.subwords)

    def _entries_of_unknown(self, column: pa.ChunkedArray) -> tuple[I64, I64]:
        """The keys of all words of texts, without the own keys of unknown words."""
        config = replace(self.settings.words, subwords=self.settings.subwords)
        bags = text_to_bags(column, config, self.threads)
        own = text_to_bags(column, self.settings.words, self.threads)
        unknown = self.dictionary.ranks(own.keys, self.threads) < 0
        # A word's own key is no key of an n-gram of characters.
        kept = ~is_among(bags.keys, own.keys[unknown])
        return bags.keys[kept], np.concatenate([[0], np.cumsum(kept)])[bags.offsets]

    def _exact_ranks(self, strings: Any) -> I64:
        """The ranks of strings that are taken whole, as words without a hash are."""
        return self.dictionary.ranks(string_keys(strings, null=0), self.threads)

    def _ranks_of_words(self, texts: Any) -> I64:
        """The rank of each text that is one word, or one phrase."""
        settings = self.settings
        config = replace(settings.words, ngrams=(1, settings.phrases))
        bags = text_to_bags(texts, config, self.threads)
        words = words_of(bags.lengths, settings.phrases)
        ranks = np.full(len(bags), -1, np.int64)
        units = np.flatnonzero((words >= 1) & (words <= settings.phrases))
        keys = bags.keys[bags.offsets[units] + words[units] - 1]
        ranks[units] = self.dictionary.ranks(keys, self.threads)
        return ranks

    def _embed_some(self, column: pa.Array, weights: F32 | None) -> F32:
        """Texts of a few megabytes: first the vector of each word, then the means."""
        bags = text_to_bags(column, self.settings.words, self.threads)
        ranks, offsets = self.dictionary.ranks(bags.keys, self.threads), bags.offsets
        unknown = np.flatnonzero(ranks < 0)
        of_unknown = self._of_unknown(column, bags.offsets, bags.keys, unknown)
        if self.settings.phrases > 1:
            config, most = self.settings.words, self.settings.phrases
            marks, _ = units_of(column, self.dictionary, config, most, self.threads)
            of_unknown = of_unknown[marks[unknown] == -1]
            kept = marks != INSIDE
            ranks, offsets = marks[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]
            unknown = np.flatnonzero(ranks < 0)
        known = distinct(ranks[ranks >= 0])
        places = np.searchsorted(known, ranks)
        of_known = self.of_ranks(known)
        places[unknown] = len(known) + np.arange(len(unknown))
        table = np.zeros((len(known) + len(unknown), padded(of_known.shape[1])), np.float32)
        table[: len(known), : of_known.shape[1]] = of_known
        table[len(known) :, : of_known.shape[1]] = of_unknown
        counted = np.ones(len(ranks), np.float32)
        if weights is not None:
            counted[ranks >= 0] = weights[ranks[ranks >= 0]]
        if not self.has_unknown_words:
            counted[unknown] = 0
        totals = _sums(counted, offsets)
        counted /= np.repeat(np.where(totals > 0, totals, 1), np.diff(offsets))
        return self._combined(table, places.astype(np.uint32), counted, offsets)

    @property
    def has_unknown_words(self) -> bool:
        """Whether words that are not in the vocabulary have vectors."""
        return self.hashed and self.settings.subwords is not None

    def of_ranks(self, ranks: I64) -> F32:
        """The vectors of words of the vocabulary."""
        if "vectors" in self.__dict__:
            return self.vectors[ranks]
        if not self.hashed:
            return self._of_keys(ranks, np.arange(len(ranks) + 1))
        return self._of_keys(*self._entries_of_ranks(ranks))

    def _of_unknown(self, column: pa.Array, offsets: I64, keys: I64, unknown: I64) -> F32:
        """The vectors of unknown words, given by their places among all words of the texts."""
        dim = self.settings.embedding_dim
        if not self.has_unknown_words or not len(unknown):
            return np.zeros((len(unknown), dim), np.float32)
        texts = distinct(np.searchsorted(offsets, unknown, "right") - 1)
        some = column.take(number_column(texts))
        config = self.settings.words
        entries = text_to_bags(some, replace(config, subwords=self.settings.subwords))
        # The keys of each word follow its own key, which no n-gram of characters has.
        own = np.flatnonzero(is_among(entries.keys, keys))
        wanted = is_among(entries.keys[own], keys[unknown])
        ends = np.append(own[1:], len(entries.keys))
        lengths = (ends - own - 1)[wanted]  # without the word itself, which was not trained
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        items = np.arange(bounds[-1]) + np.repeat(own[wanted] + 1 - bounds[:-1], lengths)
        return self._of_keys(entries.keys[items], bounds)

    def _of_keys(self, keys: I64, offsets: I64) -> F32:
        """The mean of the hash vectors of keys, for each bag (n, d)."""
        k = self.spec.num_hashes
        rows, buckets = self.spec(keys) if len(keys) else (keys, np.empty((0, k), np.int64))
        lengths = np.diff(offsets)
        scales = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        weights = self.P[rows] * scales[:, None]
        table, places = self.E.rows(buckets)
        flat = np.ascontiguousarray(places, np.uint32).reshape(-1)
        return self._combined(table, flat, weights.reshape(-1), offsets * k)

    def _combined(self, table: F32, places: Any, weights: F32, offsets: I64) -> F32:
        """The weighted sums of rows of a table, for each bag (n, d)."""
        out = np.zeros((len(offsets) - 1, table.shape[1]), np.float32)
        threads = self.threads or cpu_count()
        run_workers(
            embed_bags,
            threads if len(places) > _KEYS_FOR_ONE_THREAD else 1,
            table,
            places,
            np.ascontiguousarray(weights),
            np.ascontiguousarray(offsets, np.int64),
            out,
        )
        return np.ascontiguousarray(out[:, : self.settings.embedding_dim])


def _sums(values: F32, offsets: I64) -> F32:
    """The sum of the values of each bag."""
    before = np.concatenate([[0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(before[offsets[1:]] - before[offsets[:-1]], np.float32)


def _pieces(chunk: pa.Array) -> list[pa.Array]:
    """Parts of a column with a few megabytes each."""
    texts = max(1, len(chunk) * _TEXT_BYTES_AT_ONCE // max(chunk.nbytes, 1))
    return [chunk.slice(first, texts) for first in range(0, len(chunk), texts)]
