"""From texts to numbers of words: the vocabulary, and the corpus as one array."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hashembed.core.arrays import I32, I64
from hashembed.hashing.bags import Bags
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import Corpus
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags

MAX_WORDS = 10_000_000
END = -1  # follows the words of each text


@dataclass(frozen=True)
class EncodedCorpus:
    """ids: the ranks of words in the dictionary, and END after each text."""

    dictionary: Dictionary
    ids: I32
    words: int  # known words in the corpus


def word_config(lowercase: bool, punctuation: Any) -> TextConfig:
    """How text becomes words."""
    return TextConfig((1, 1), lowercase=lowercase, punctuation=punctuation)


def encode_corpus(
    texts: Any,
    config: TextConfig,
    min_count: int,
    max_words: int,
    threads: int | None,
    known: Dictionary | None = None,
) -> EncodedCorpus:
    """Read texts twice: count the words, then number them.

    texts: a column of texts, or a function that returns an iterable of columns.
    known: an existing vocabulary, which is kept as it is.
    """
    if not callable(texts):
        from hashembed.text.arrow import to_arrow

        column = to_arrow(texts)  # an iterator can be read only once
        texts = lambda: [column]  # noqa: E731
    dictionary = known
    if dictionary is None:
        dictionary = Dictionary.count(
            texts, config, max_words, min_count=min_count, threads=threads
        )
    parts: list[I32] = []
    for piece in Corpus(texts, config).pieces():
        bags = text_to_bags(piece, config, threads)
        parts.append(_with_ends(dictionary.ranks(bags.keys, threads), bags))
    ids = np.concatenate([np.empty(0, np.int32), *parts])
    return EncodedCorpus(dictionary, ids, int(np.count_nonzero(ids != END)))


def _with_ends(ranks: I64, bags: Bags) -> I32:
    """Ranks (keys,) -> known words of each text, and END behind them."""
    known = ranks >= 0
    before = np.concatenate([[0], np.cumsum(known)])[bags.offsets]  # known words before each text
    out = np.full(before[-1] + len(bags), END, np.int32)
    lengths = np.diff(before)
    texts = np.repeat(np.arange(len(bags)), lengths)
    out[np.arange(before[-1]) + texts] = ranks[known]
    return out


def entries_of(
    strings: Any, config: TextConfig, subwords: tuple[int, int] | None
) -> tuple[I64, I64]:
    """The keys of words: each word's own key, then those of its n-grams -> keys, offsets."""
    # The strings are folded already, and folding them again could change them.
    bags = text_to_bags(strings, replace(config, subwords=subwords, lowercase=False))
    return bags.keys, bags.offsets
