"""From texts to numbers of words: the vocabulary, and the corpus as one array."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I32, I64, is_among
from hashembed.text.arrow import documents, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import CHUNK, Corpus
from hashembed.text.dictionary import Dictionary
from hashembed.text.key_kernels import Segments, cut_documents
from hashembed.text.pipeline import kernel_rules, text_to_bags
from hashembed.vectors.id_store import IdStore, Storage
from hashembed.vectors.phrase_kernels import mark_phrases
from hashembed.vectors.settings import MAX_PHRASE

END = -1  # follows the words of each text
LONG = 4 * CHUNK  # bytes; longer texts are read in parts

_IDS_AT_ONCE = 1 << 20

Source = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class EncodedCorpus:
    """ids: the ranks of words in the dictionary, and END after each text."""

    dictionary: Dictionary
    ids: I32
    words: int  # known words in the corpus

    @cached_property
    def counts(self) -> I64:
        """How often each word of the dictionary occurs (V,)."""
        return count_ids(self.ids, len(self.dictionary))


def source_of(texts: Any) -> Source:
    """Texts that can be read several times: a column, or a function that returns columns."""
    if callable(texts):
        return texts  # type: ignore[no-any-return]
    column = to_arrow(texts)  # an iterator can be read only once
    return lambda: [column]


def encode_corpus(
    texts: Any,
    config: TextConfig,
    min_count: int,
    max_words: int,
    threads: int | None,
    storage: Storage | None = None,
) -> EncodedCorpus:
    """Read texts several times: count the words, then number them.

    texts: a column of texts, or a function that returns an iterable of columns.
    """
    source = source_of(texts)
    dictionary = count_words(source, config, min_count, max_words, threads)
    ids = number_words(source, dictionary, config, threads, storage)
    corpus = EncodedCorpus(dictionary, ids, int(dictionary.counts.sum()))
    if not np.array_equal(corpus.counts, dictionary.counts):
        raise ValueError(
            f"the texts changed: {corpus.words:,} words of the vocabulary in the first reading, "
            f"{int(corpus.counts.sum()):,} in a later one; a function of texts must return all of "
            "them each time"
        )
    return corpus


def count_words(
    source: Source, config: TextConfig, min_count: int, size: int, threads: int | None
) -> Dictionary:
    """The vocabulary of texts."""

    def in_parts() -> Iterator[pa.Array]:
        return (piece for piece, _ in cut_texts(source, config))

    return Dictionary.count(in_parts, config, size, min_count=min_count, threads=threads)


def number_words(
    source: Source,
    dictionary: Dictionary,
    config: TextConfig,
    threads: int | None,
    storage: Storage | None = None,
    phrases: int = 1,
) -> I32:
    """The ranks of the known words of texts, and END after each text.

    phrases: the most words of a phrase of the dictionary.
    """
    with IdStore(storage or Storage()) as store:
        for piece, ends in cut_texts(source, config):
            marks, offsets = units_of(piece, dictionary, config, phrases, threads)
            ids = _with_ends(marks, offsets)
            store.add(ids if ends else ids[:-1])
        return store.whole()


def units_of(
    texts: Any, dictionary: Dictionary, config: TextConfig, phrases: int, threads: int | None
) -> tuple[I64, I64]:
    """The unit that begins at each word of texts: a rank, -1, or INSIDE; and the texts' offsets."""
    if phrases == 1:
        bags = text_to_bags(texts, config, threads)
        return dictionary.ranks(bags.keys, threads), bags.offsets
    bags = text_to_bags(texts, replace(config, ngrams=(1, phrases)), threads)
    offsets = np.concatenate([[0], np.cumsum(words_of(bags.lengths, phrases))])
    marks = np.empty(offsets[-1], np.int64)
    ranks = dictionary.ranks(bags.keys, threads)
    mark_phrases(ranks, bags.offsets, offsets, phrases, marks)
    return marks, offsets


def words_of(ngrams: I64, most: int) -> I64:
    """How many words have so many n-grams of 1 to `most` words."""
    missing = most * (most - 1) // 2  # n-grams that would reach beyond the end
    few = np.rint((np.sqrt(8 * ngrams + 1) - 1) / 2).astype(np.int64)
    return np.where(ngrams >= most + missing, (ngrams + missing) // most, few)


def count_ids(ids: I32, size: int) -> I64:
    """How often each number from 0 to size - 1 occurs."""
    counts = np.zeros(size + 1, np.int64)
    for first in range(0, len(ids), _IDS_AT_ONCE):
        counts += np.bincount(ids[first : first + _IDS_AT_ONCE] + 1, minlength=size + 1)
    return counts[1:]


def renumber(ids: I32, new: I32) -> None:
    """Replace each number i by new[i], in place; END stays."""
    table = np.append(new, np.int32(END))  # its last entry is that of END = -1
    for first in range(0, len(ids), _IDS_AT_ONCE):
        ids[first : first + _IDS_AT_ONCE] = table[ids[first : first + _IDS_AT_ONCE]]


def cut_texts(source: Source, config: TextConfig) -> Iterator[tuple[pa.Array, bool]]:
    """Texts of a few megabytes, and whether the last one is complete. Long texts come in parts."""
    for piece in Corpus(source, config).pieces():
        _, starts, ends = documents(piece)
        first = 0
        for place in np.flatnonzero(ends - starts > LONG).tolist():
            if place > first:
                yield piece.slice(first, place - first), True
            yield from _parts_of(piece.slice(place, 1), config)
            first = place + 1
        if first < len(piece):
            yield piece.slice(first), True


def _parts_of(text: pa.Array, config: TextConfig) -> Iterator[tuple[pa.Array, bool]]:
    """One long text, cut between words."""
    data, starts, ends = documents(text)
    most = 1 + int(ends[0] - starts[0]) // CHUNK
    begins, stops, last = *np.empty((2, most), np.int64), np.empty(most, np.bool_)
    segments = Segments(data, begins, stops, last)
    count = cut_documents(starts, ends, kernel_rules(config).table, CHUNK, segments)
    for begin, stop, ends_here in zip(begins[:count], stops[:count], last[:count], strict=True):
        buffers = [None, pa.py_buffer(np.array([begin, stop])), text.buffers()[2]]
        yield pa.Array.from_buffers(pa.large_binary(), 1, buffers), bool(ends_here)


def _with_ends(ranks: I64, offsets: I64) -> I32:
    """Ranks (words,) -> known words of each text, and END behind them."""
    known = ranks >= 0
    before = np.concatenate([[0], np.cumsum(known)])[offsets]  # known words before each text
    out = np.full(before[-1] + len(offsets) - 1, END, np.int32)
    lengths = np.diff(before)
    texts = np.repeat(np.arange(len(lengths)), lengths)
    out[np.arange(before[-1]) + texts] = ranks[known]
    return out


def entries_of(
    strings: Any, config: TextConfig, subwords: tuple[int, int] | None
) -> tuple[I64, I64]:
    """The keys of words: each word's own key, then those of its n-grams -> keys, offsets.

    A phrase has the key of its words as an n-gram, and the n-grams of characters of its words.
    """
    # The strings are folded already, and folding them again could change them.
    config = replace(config, lowercase=False, repeats="all")
    bags = text_to_bags(strings, replace(config, subwords=subwords))
    words = text_to_bags(strings, config)
    if (words.lengths == 1).all():
        return bags.keys, bags.offsets
    ngrams = text_to_bags(strings, replace(config, ngrams=(1, MAX_PHRASE)))
    keys = bags.keys.copy()
    kept = ~is_among(keys, words.keys)  # no n-gram of characters has the key of a word
    kept[bags.offsets[:-1]] = True  # where each bag has its first word
    keys[bags.offsets[:-1]] = ngrams.keys[ngrams.offsets[:-1] + words.lengths - 1]
    return keys[kept], np.concatenate([[0], np.cumsum(kept)])[bags.offsets]
