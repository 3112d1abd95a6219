"""How much work the choice and the training may cost, counted in n-grams.

One unit is a step on one n-gram with d = 16. The budget follows the cost of fastText's five passes
over words and bigrams, which `peer_work` estimates in the same units.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from hashembed.engine.shallow.arrays import LANES, padded

Effort = Literal["fast", "normal", "best"]
EFFORTS = get_args(Effort)

FREE = 16_000_000  # units that any data set may use: half a second or so on two cores
TIMES = 5.0  # and this many times `peer_work`
BEST_TIMES = 10.0  # how much more the effort "best" may use
RACE_SHARE = 0.4  # of the work, for the race; the rest is for the final training
MOST_MEMBERS, BEST_MEMBERS = 5, 10
LOGIT, PEER_LOGIT = 0.15, 0.4  # the cost of a logit, here and in fastText, relative to an n-gram


@dataclass(frozen=True)
class Budget:
    """Units of work for the race and for the final training, and the most members."""

    race: float
    final: float
    members: int

    @classmethod
    def of(cls, best: bool, peer: float) -> "Budget":
        """The budget for data with this `peer_work`."""
        total = FREE + TIMES * peer
        return cls._split(BEST_TIMES * total, BEST_MEMBERS) if best else cls._split(total)

    @classmethod
    def timed(cls, seconds: float, speed: float) -> "Budget":
        """The budget of a time limit, at this many units a second."""
        return cls._split(seconds * speed, BEST_MEMBERS)

    @classmethod
    def _split(cls, total: float, members: int = MOST_MEMBERS) -> "Budget":
        return cls(RACE_SHARE * total, (1 - RACE_SHARE) * total, members)


def work(ngrams: float, texts: float, classes: int, dim: int) -> float:
    """Units of one pass. Rows twice as wide take half as long again."""
    width = padded(dim) / LANES
    return (ngrams + LOGIT * texts * classes) * (1 + width) / 2


def peer_work(ngrams: float, texts: float, classes: int) -> float:
    """Units of one pass of fastText over words and bigrams."""
    return ngrams + PEER_LOGIT * texts * classes
