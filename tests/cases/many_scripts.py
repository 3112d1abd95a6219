"""Texts that a browser may get: many scripts, emoji, broken strings, nothing at all."""

import json
import random
from importlib.resources import files

import pyarrow.parquet as pq

ALPHABETS = [
    "abcdefghij",
    "ABCDEFGHIJ",
    "0123456789٠١٢٣०१२",
    "äöüßÄÖÜẞéÉçÇñÑøØåÅœŒæÆ",
    "İıIiſKÅŉǰﬀﬁﬂﬃﬄﬅﬓ",  # folded to others, or to several
    "αβγδΑΒΓΔσςΣάΐΰᾳᾼῼᾀᾈ",
    "абвгдАБВГДђЂёЁѢѣ",
    "ԱԲԳաբգև",
    "ႠႡႢⴀⴁⴂაბგᲐᲑᲒ",
    "אבגדה\u05b0\u05b7",
    "ابجده\u064b\u0651ـ",
    "कखगघङ\u093e\u094d",
    "กขคฆง\u0e31\u0e48",
    "漢字仮名中文日本語",
    "ひらがなカタカナー",
    "한국어조선말",
    "ꭰꭱꮿᎠᎡᏰ",  # Cherokee: folded to upper case
    "𐐀𐐁𐐨𐐩𞤀𞤢𝒜𝔅𠀀",
    "e\u0301a\u0308o\u0302n\u0303\u0345",
    "😀🎉🐎🚀❤️👍🏽",
    "👩\u200d💻👨\u200d👩\u200d👧🏳️\u200d🌈",
    ".,;:!?'\"()[]{}<>-_/\\@#%&*$+=^`|~",
    "«»„“”‘’…—–·¡¿§¶、。「」！？،؛؟।",
    "\t\n\v\f\r \x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000",
    "€£¥©®™°±×÷←→∞√",
    "\x00\x01\x7f\u00ad\u200b\u200e\ufeff\ufffd\uffff",
    "\ud800\udbff\udc00\udfff",  # surrogates, alone unless two happen to make a pair
]
FIXED = [
    *("", " ", "\t\n \u3000", ".", "...!?", "。", "\ufeff", "\ud800", "\udfff a \ud83d", "a", "İ"),
    *("x" * 5000, "ΐ" * 3000, "😀" * 2000, ("a" * 300 + " ") * 20, "a b " * 3000),
]


def as_javascript(text: str) -> str:
    """The text after a way through JSON: neighbouring halves of a pair become one character."""
    return json.loads(json.dumps(text))


def mixed(rng: random.Random) -> str:
    """Words of one or several alphabets."""
    parts = []
    for _ in range(rng.randrange(1, 14)):
        letters = "".join(rng.choices(ALPHABETS, k=rng.choice([1, 1, 1, 2])))
        parts.append("".join(rng.choices(letters, k=rng.randrange(1, 9))))
        parts.append(rng.choice(["", " ", " ", "  ", ", ", "-", "。"]))
    return as_javascript("".join(parts))


def anything(rng: random.Random) -> str:
    """Code points of any kind, unassigned ones and surrogates included."""
    top = rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x1F000, 0x110000])
    return as_javascript("".join(chr(rng.randrange(top)) for _ in range(rng.randrange(40))))


def sentences() -> tuple[list[str], list[str]]:
    """Real texts in 16 languages, and their languages."""
    with (files("hashembed") / "data" / "sentences.parquet").open("rb") as file:
        table = pq.read_table(file)
    return table["text"].to_pylist(), table["language"].to_pylist()


def many_texts(count: int, seed: int = 0) -> list[str]:
    """So many texts, a fifth of them real."""
    rng = random.Random(seed)
    real = rng.sample(sentences()[0], min(count // 5, 8000))
    made = [rng.choice([mixed, mixed, anything])(rng) for _ in range(count - len(real))]
    return [*real, *made]


def long_text() -> str:
    """A million characters."""
    return " ".join(sentences()[0] * 3)[:1_000_000]
