"""The n-grams of a text as readable strings with positions, in the order of the keys."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import I64
from hashembed.text.arrow import documents, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import kernel_rules, text_to_bags
from hashembed.text.repeats import counted
from hashembed.text.span_kernels import NO_LIMIT, cut_ngrams


@dataclass(frozen=True, slots=True)
class NGram:
    """One n-gram of a text.

    text: as the pipeline saw it: folded if it ignores case, words joined by one space, a character
        n-gram with the '<' and '>' of its word's ends.
    start, end: the piece of the original text, in characters.
    order: words; for a character n-gram its characters, '<' and '>' included.
    subword: whether it is a character n-gram.
    word: the number of its first word in the text, from 0.
    """

    text: str
    start: int
    end: int
    order: int
    subword: bool
    word: int

    @property
    def words(self) -> int:
        """How many words it covers."""
        return 1 if self.subword else self.order


def ngrams_of(text: str, config: TextConfig) -> tuple[I64, list[NGram]]:
    """The keys of one text that count, and the n-gram of each."""
    if not isinstance(text, str):
        raise TypeError(f"text must be one str, found {type(text).__name__}")
    column = to_arrow([text])
    keys = text_to_bags(column, replace(config, repeats="all")).keys
    text_bytes = documents(column.chunk(0))
    offsets, positions = np.array([0, len(keys)]), counted(keys, config.repeats)
    found, texts, ends = cut_ngrams(text_bytes, offsets, positions, kernel_rules(config), NO_LIMIT)
    data = text_bytes[0]
    characters = np.append(0, np.cumsum(data & 0xC0 != 0x80))  # before each byte of the text
    found[:, 3:] = characters[found[:, 3:]]
    rows = zip(strings(texts, ends), found.tolist(), strict=True)
    return keys[positions], [
        NGram(string, start, end, order, bool(subword), word)
        for string, (word, order, subword, start, end) in rows
    ]


def word_spans(text: str, config: TextConfig) -> list[tuple[int, int]]:
    """Where the words of a text begin and end, in characters."""
    _, words = ngrams_of(text, replace(config, ngrams=(1, 1), subwords=None, repeats="all"))
    return [(word.start, word.end) for word in words]


def strings(texts: npt.NDArray[np.uint8], ends: I64) -> list[str]:
    """The strings that `cut_ngrams` wrote one after another."""
    data, edges = texts.tobytes(), [0, *ends.tolist()]
    return [data[a:b].decode() for a, b in pairwise(edges)]
