"""Phrases: which neighbouring words belong together, and where they are in texts.

Two units (words, or phrases that were found before) that follow each other are a phrase if

    (count(ab) - min_count) * N / (count(a) * count(b))  >  threshold

where N is the number of known words in the corpus, as in word2vec. Counts are exact, of n-grams.
A text is divided from left to right: the longest phrase that begins at a word is taken.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hashembed.core.arrays import I64, Bools
from hashembed.core.arrow_columns import number_column
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags
from hashembed.vectors.corpus import (
    EncodedCorpus,
    Source,
    count_ids,
    count_words,
    number_words,
    renumber,
    source_of,
)
from hashembed.vectors.id_store import Storage
from hashembed.vectors.settings import VectorSettings


class Ngrams(NamedTuple):
    """The n-grams of a dictionary, by their number of words."""

    words: I64  # (V,): of each n-gram
    parts: dict[int, I64]  # m -> (n-grams of m words, m (m + 1) / 2): the ranks of their parts


def encode_phrases(
    texts: Any, settings: VectorSettings, threads: int | None, storage: Storage | None
) -> EncodedCorpus:
    """Count words and n-grams, choose phrases, and number the texts."""
    source = source_of(texts)
    dictionary, phrases = _chosen(source, settings, threads)
    ids, counts = _numbered(source, dictionary, settings, threads, storage)
    rare = phrases & (counts < settings.min_count)  # others take their words
    if rare.any():
        dictionary = _some(dictionary, np.flatnonzero(~rare), dictionary.counts[~rare])
        ids, counts = _numbered(source, dictionary, settings, threads, storage)
    # Words that occur only in phrases are left out.
    kept = np.flatnonzero(counts)
    order = kept[np.lexsort((dictionary.keys[kept], -counts[kept]))]
    places = np.full(len(counts), -1, np.int32)
    places[order] = np.arange(len(order))
    renumber(ids, places)
    dictionary = _some(dictionary, order, counts[order])
    return EncodedCorpus(dictionary, ids, int(counts.sum()))


def _numbered(
    source: Source,
    dictionary: Dictionary,
    settings: VectorSettings,
    threads: int | None,
    storage: Storage | None,
) -> tuple[Any, I64]:
    ids = number_words(source, dictionary, settings.words, threads, storage, settings.phrases)
    return ids, count_ids(ids, len(dictionary))


def _chosen(
    source: Source, settings: VectorSettings, threads: int | None
) -> tuple[Dictionary, Bools]:
    """The words and phrases of a corpus, and which of them are phrases."""
    config = replace(settings.words, ngrams=(1, settings.phrases))
    size = min(4 * settings.max_words, 2**31 - 1)
    found = count_words(source, config, settings.min_count, size, threads)
    ngrams = _ngrams_of(found, config)
    units = ngrams.words == 1
    total = int(found.counts[units].sum())
    for m in range(2, settings.phrases + 1):
        entries = np.flatnonzero(ngrams.words == m)
        score = _scores(found.counts, entries, ngrams.parts[m], units, settings.min_count, total)
        units[entries[score > settings.phrase_threshold]] = True
    kept = np.flatnonzero(units)[: settings.max_words]
    chosen = Dictionary(
        settings.words,
        found.keys[kept],
        found.counts[kept],
        found.strings.take(number_column(kept)),
    )
    return chosen, ngrams.words[kept] > 1


def _ngrams_of(dictionary: Dictionary, config: TextConfig) -> Ngrams:
    # The strings are folded already.
    bags = text_to_bags(dictionary.strings, replace(config, lowercase=False, repeats="all"))
    ranks = dictionary.ranks(bags.keys)
    most = config.ngrams[1]
    words = np.zeros(len(dictionary), np.int64)
    parts: dict[int, I64] = {}
    for m in range(1, most + 1):
        size = m * (m + 1) // 2
        entries = np.flatnonzero(bags.lengths == size)
        words[entries] = m
        parts[m] = ranks[bags.offsets[entries][:, None] + np.arange(size)]
    return Ngrams(words, parts)


def _scores(
    counts: I64, entries: I64, parts: I64, units: Bools, discount: int, total: int
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The largest score of each n-gram over all ways to divide it into two units."""
    best = np.zeros(len(entries), np.float64)
    m = round((np.sqrt(8 * parts.shape[1] + 1) - 1) / 2)
    for first in range(1, m):
        left = parts[:, first - 1]
        right = parts[:, sum(m - start for start in range(first)) + m - first - 1]
        valid = (left >= 0) & (right >= 0)
        valid &= units[left] & units[right]
        product = counts[left].astype(np.float64) * counts[right]
        score = (counts[entries] - discount) * (total / np.maximum(product, 1))
        best = np.maximum(best, np.where(valid, score, 0))
    return best


def _some(dictionary: Dictionary, places: I64, counts: I64) -> Dictionary:
    strings = dictionary.strings.take(number_column(places))
    return Dictionary(dictionary.config, dictionary.keys[places], counts, strings)
