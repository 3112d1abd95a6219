"""Text to keys, slowly and obviously: what `hashembed.text.pipeline` must give, bit for bit."""

import string
import unicodedata
from functools import cache
from itertools import groupby

import numpy as np

from hashembed.hashing import spec as hashing
from hashembed.text.characters import (
    EXPANSIONS,
    MARK,
    SEPARATOR,
    UNICODE_VERSION,
    character_table,
    punctuation_table,
)
from hashembed.text.config import TextConfig
from hashembed.text.repeats import counted

SAME_UNICODE = unicodedata.unidata_version == UNICODE_VERSION
SUBSTITUTE = "\ufffd"


@cache
def is_separator(char: str) -> bool:
    """By Python's Unicode where it is the library's version, else by the library's table."""
    if not SAME_UNICODE:
        return bool(character_table(False)[ord(char)] == SEPARATOR)
    punctuation = unicodedata.category(char).startswith("P") or char in string.punctuation
    return char.isspace() or punctuation


@cache
def is_punctuation(char: str) -> bool:
    """A separator other than white space."""
    if not SAME_UNICODE:
        return bool(punctuation_table()[ord(char)])
    return is_separator(char) and not char.isspace()


@cache
def fold(char: str) -> str:
    if SAME_UNICODE:
        return char.casefold()
    table = character_table(True)
    codes = [int(table[ord(char)])]
    if codes[0] & 0xFF == MARK:
        count, *codes = table[EXPANSIONS + 4 * (codes[0] >> 8) :][:4].tolist()
        codes = codes[:count]
    return "".join((c.to_bytes(4, "little").rstrip(b"\0") or b"\0").decode() for c in codes)


def kind(char: str, punctuation: str) -> str:
    """What neighbours in a word have in common; "" for what is in no word."""
    if is_punctuation(char):
        return "punctuation" if punctuation == "keep" else ""
    return "" if is_separator(char) else "word"


def split(text: str, lowercase: bool, punctuation: str = "drop") -> list[str]:
    runs = groupby(text, lambda char: kind(char, punctuation))
    words = ["".join(run) for which, run in runs if which]
    return ["".join(map(fold, word)) if lowercase else word for word in words]


def pieces(word: str, lo: int, hi: int) -> list[str]:
    """Character n-grams, without '<' and '>' alone."""
    marked = f"<{word}>"
    places = [(i, n) for i in range(len(marked)) for n in range(lo, hi + 1)]
    alone = {(0, 1), (len(marked) - 1, 1)}
    return [marked[i : i + n] for i, n in places if i + n <= len(marked) and (i, n) not in alone]


ngram_key = cache(hashing.ngram_key)
subword_key = cache(hashing.subword_key)


def keys(text: str | bytes | None, config: TextConfig) -> list[int]:
    """The keys of one document."""
    if isinstance(text, bytes):
        text = text.decode("utf8", "replace")
    words = split(text or "", config.lowercase, config.punctuation)
    lo, hi = config.ngrams
    found = []
    for i, word in enumerate(words):
        orders = range(lo, min(hi, len(words) - i) + 1)
        found += [ngram_key(tuple(words[i : i + n])) for n in orders]
        if config.subwords:
            found += [subword_key(piece) for piece in pieces(word, *config.subwords)]
    return [found[i] for i in counted(np.array(found), config.repeats)]
