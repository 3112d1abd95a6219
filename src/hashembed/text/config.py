"""How text becomes keys: the settings, their checks, and their form in files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hashembed.core.checks import one_of, whole_number
from hashembed.text.characters import UNICODE_VERSION

MAX_NGRAM = 9
MAX_SUBWORD = 32

Punctuation = Literal["drop", "keep"]
Repeats = Literal["all", "damp", "once"]


def _orders(name: str, value: object, most: int) -> tuple[int, int]:
    """`value` as (lowest, highest), or an error that says what is wrong."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TypeError(f"{name} must be (lowest, highest), for example (1, 2), found {value!r}")
    lowest = whole_number(f"{name}[0]", value[0], 1, most)
    return lowest, whole_number(f"{name}[1]", value[1], lowest, most)


@dataclass(frozen=True)
class TextConfig:
    """How text becomes keys.

    ngrams: the orders of word n-grams, lowest and highest.
    lowercase: Unicode's full case folding, `str.casefold()`, of each character. It makes 'ΟΔΟΣ'
        and 'οδος', 'STRASSE' and 'straße' the same word; `str.lower()` of each character does not.
    subwords: lowest and highest length of the character n-grams of '<word>', fastText's minn and
        maxn, or None for none. '<' and '>' alone are left out.
    punctuation: "drop" it, or "keep" every run of it as a word: 'C++ :-)' is then the words 'c',
        '++' and ':-)'. `docs/guides/text.md` has the exact rule.
    repeats: which of the equal n-grams of a text count: "all" of them, "damp" for the first,
        second, fourth, eighth, ..., "once" for the first alone.

    Keys are ordered by the position of the first word, then by the order of the n-gram. The
    character n-grams of a word follow all n-grams that begin at it, by position, then by length.
    """

    ngrams: tuple[int, int] = (1, 2)
    lowercase: bool = True
    subwords: tuple[int, int] | None = None
    punctuation: Punctuation = "drop"
    repeats: Repeats = "all"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ngrams", _orders("ngrams", self.ngrams, MAX_NGRAM))
        if not isinstance(self.lowercase, bool):
            raise TypeError(f"lowercase must be True or False, found {self.lowercase!r}")
        if self.subwords is not None:
            object.__setattr__(self, "subwords", _orders("subwords", self.subwords, MAX_SUBWORD))
        one_of("punctuation", self.punctuation, get_args(Punctuation))
        one_of("repeats", self.repeats, get_args(Repeats))

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` needs, as JSON can hold it."""
        saved = {
            "ngrams": list(self.ngrams),
            "lowercase": self.lowercase,
            "subwords": list(self.subwords) if self.subwords else None,
            "unicode": UNICODE_VERSION,
        }
        # Versions that know only the first value of a setting refuse a file that names it.
        if self.punctuation != "drop":
            saved["punctuation"] = self.punctuation
        if self.repeats != "all":
            saved["repeats"] = self.repeats
        return saved

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "TextConfig":
        """The configuration that `to_dict` described."""
        settings = dict(saved)
        version = settings.pop("unicode", UNICODE_VERSION)
        if version != UNICODE_VERSION:
            raise ValueError(
                f"the text configuration was saved for Unicode {version}, "
                f"but this version of hashembed has Unicode {UNICODE_VERSION}"
            )
        unknown = settings.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(f"unknown setting of the text configuration: {sorted(unknown)[0]!r}")
        return cls(**settings)
