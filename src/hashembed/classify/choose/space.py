"""What the race may try: ways to read text, and learning rates."""

from dataclasses import dataclass, replace
from typing import Any

from hashembed.core.wording import named
from hashembed.text.config import Repeats, TextConfig

AUTO = "auto"
RULES = TextConfig()  # what is used without a race

PASSES_OF_THOUSAND = 4.0  # good for a thousand texts; fewer for more
MOST_PASSES = 5  # of a trial; it is scored after each
FACTORS = (0.6, 1.0, 0.35, 1.6)  # of the default learning rate, with the effort "best"

# Word n-grams, character n-grams and punctuation. The first two are always tried. Then come those
# with or without character n-grams, depending on which of the two was better. All have damped
# counts, but for one variant of the better one.
Settings = tuple[tuple[int, int], tuple[int, int] | None, str]
_REPEATS: Repeats = "damp"
_OTHER_REPEATS: Repeats = "once"
_FIRST: tuple[Settings, ...] = (((1, 2), None, "keep"), ((1, 2), (4, 4), "keep"))
_WORDS: tuple[Settings, ...] = (((1, 3), None, "keep"), ((1, 2), None, "drop"))
_CHARACTERS: tuple[Settings, ...] = (
    ((1, 3), (4, 5), "keep"),
    ((1, 2), (5, 6), "keep"),
    ((1, 2), (2, 5), "keep"),
)
_FEW: Settings = ((1, 2), (3, 6), "keep")  # for too few texts to try anything
_MORE_WORDS: tuple[Settings, ...] = (((1, 1), None, "keep"), ((1, 3), None, "drop"))
_MORE_CHARACTERS: tuple[Settings, ...] = (
    ((1, 2), (3, 6), "drop"),
    ((1, 2), (3, 6), "keep"),
    ((1, 2), (3, 3), "keep"),
    ((1, 2), (4, 4), "drop"),
    ((1, 1), (2, 5), "keep"),
)


@dataclass(frozen=True)
class Open:
    """What the user has given. "auto" (text) and None (training) leave it to the race."""

    ngrams: Any
    subwords: Any
    punctuation: Any
    repeats: Any
    lowercase: bool
    passes: int | None
    learning_rate: float | None
    members: int | None

    def __post_init__(self) -> None:
        for name in ("ngrams", "subwords"):
            value = getattr(self, name)
            if isinstance(value, str) and value != AUTO:
                raise TypeError(
                    f"{named(name)} must be (lowest, highest), for example (1, 2), or 'auto', "
                    f"found {value!r}"
                )

    @property
    def text(self) -> bool:
        """Whether the way to read text is open. Repeats alone are not worth a race."""
        return any(map(_is_auto, (self.ngrams, self.subwords, self.punctuation)))

    @property
    def training(self) -> bool:
        """Whether passes and learning rate are both open."""
        return self.passes is None and self.learning_rate is None

    def text_config(
        self, ngrams: Any = None, subwords: Any = None, punctuation: Any = None, repeats: Any = None
    ) -> TextConfig:
        """These settings, or those of `RULES`, except where the user has given others."""
        return TextConfig(
            (ngrams or RULES.ngrams) if _is_auto(self.ngrams) else self.ngrams,
            self.lowercase,
            subwords if _is_auto(self.subwords) else self.subwords,
            (punctuation or RULES.punctuation) if _is_auto(self.punctuation) else self.punctuation,
            (repeats or RULES.repeats) if _is_auto(self.repeats) else self.repeats,
        )

    def first(self) -> list[TextConfig]:
        """The ways to read text that are tried first, without those that the user ruled out."""
        return self._distinct(_FIRST)

    def few(self) -> TextConfig:
        """How to read too few texts to try anything."""
        return self.text_config(*_FEW, _REPEATS)

    def more(self, winner: TextConfig, best: bool) -> list[TextConfig]:
        """Those that are tried next: with character n-grams if the winner of the first has them."""
        more = _CHARACTERS if winner.subwords else _WORDS
        if best:
            more += _MORE_CHARACTERS if winner.subwords else _MORE_WORDS
        found = [config for config in self._distinct(more) if config not in self.first()]
        if _is_auto(self.repeats):
            found.insert(0, replace(winner, repeats=_OTHER_REPEATS))
        return found

    def _distinct(self, settings: tuple[Settings, ...]) -> list[TextConfig]:
        return list(dict.fromkeys(self.text_config(*each, _REPEATS) for each in settings))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO  # an array has no single answer


def name_of(text: TextConfig) -> str:
    """A way to read text in a few words."""
    lengths = _range(text.ngrams)
    words = f"words {lengths}"
    characters = f", characters {_range(text.subwords)}" if text.subwords else ""
    repeats = {_REPEATS: "", _OTHER_REPEATS: ", once"}.get(text.repeats, ", all")
    punctuation = "" if text.punctuation == "keep" else ", no punctuation"
    return f"{words}{characters}{punctuation}{repeats}"


def _range(orders: tuple[int, int]) -> str:
    low, high = orders
    return f"{low}" if low == high else f"{low}-{high}"
