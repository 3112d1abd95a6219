"""How to train: the settings, and the default learning rate, batch size and number of passes."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import named
from hashembed.engine.history import Monitor
from hashembed.engine.protocol import MAX_BATCH
from hashembed.hashing.bags import Bags

RATE, CLASS_POWER, LENGTH_POWER = 0.073, 0.25, 0.2  # see `default_rate`
LEAST_RATE, MOST_RATE = 0.005, 0.5
BATCH_NGRAMS, BATCH_RANGE = 1 << 17, (256, 1024)  # see `default_batch`
STEPS, LEAST_BATCH = 40, 8  # the fewest steps in a pass, unless batches get too small
OFTEN, MOST_PASSES = 4, 10  # see `default_passes`
FULL_SHUFFLE = 1 << 31  # n-grams, 16 GiB of keys, up to which all documents are shuffled together
BLOCK_ROWS, BLOCKS = 4096, 128  # of the block shuffle, see `engine/order.py`

Shuffle = Literal["full", "blocks"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train. The defaults suit text; `paper()` is the protocol of the paper.

    passes: over the training data.
    learning_rate: the first one. None takes the engine's own or, if it has none, `default_rate`.
    decay: whether the rate falls linearly to zero over all passes.
    batch_size: documents in a step. None takes `default_batch`.
    snippets: (shortest, longest). Train on runs of that many consecutive n-grams, drawn anew in
        each pass, instead of whole documents.
    patience: stop after this many passes without a better validation, and restore the best.
    seed: of the order of the documents and of snippets.
    monitor: "loss" or "accuracy", what decides which validation is better.
    shuffle: "full" puts all documents of a pass into random order. "blocks" reads blocks of
        consecutive documents in random order, and shuffles the documents of many blocks: for keys
        on disk that do not fit into memory. None is "full" up to 2^31 n-grams.
    """

    passes: int = 1
    learning_rate: float | None = None
    decay: bool = False
    batch_size: int | None = None
    snippets: tuple[int, int] | None = None
    patience: int | None = None
    seed: int = 0
    monitor: Monitor = "loss"
    shuffle: Shuffle | None = None

    def __post_init__(self) -> None:
        whole_number("passes", self.passes, 1, 1_000_000)
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size, 1, MAX_BATCH)
        if self.patience is not None:
            whole_number("patience", self.patience, 1, 1_000_000)
        if self.snippets is not None:
            shortest, longest = self.snippets
            whole_number("snippets[0]", shortest, 1, 2**31 - 1)
            whole_number("snippets[1]", longest, shortest, 2**31 - 1)
        one_of("monitor", self.monitor, ("loss", "accuracy"))
        if self.shuffle is not None:
            one_of("shuffle", self.shuffle, get_args(Shuffle))
        check_learning_rate(self.learning_rate)

    @classmethod
    def paper(cls, **changes: Any) -> "TrainConfig":
        """Snippets of 4 to 100 n-grams, a constant rate, early stopping with patience 10.

        Accuracy decides. A model trained on snippets is overconfident on whole documents, whose
        vectors are longer, so the validation loss rises long before the model has learned what it
        can.
        """
        protocol = cls(passes=1000, decay=False, snippets=(4, 100), patience=10, monitor="accuracy")
        return replace(protocol, **changes)


def check_learning_rate(rate: float | None) -> None:
    """None, or a number above 0."""
    if rate is not None and not 0 < rate < float("inf"):
        raise ValueError(f"{named('learning_rate')} must be above 0, found {rate}")


def default_rate(bags: Bags, classes: int, passes: int = 1) -> float:
    """A learning rate for documents of these lengths and this many classes.

    A document's vector is a sum, so a step moves it further the longer the document is; more
    classes pull each row in more directions; more passes can take smaller steps. Fitted to six
    data sets (`docs/how-it-works/training.md`).
    """
    return rate_for(len(bags.keys) / max(len(bags), 1), classes, passes)


def rate_for(length: float, classes: int, passes: int = 1) -> float:
    """`default_rate` for documents of this mean length."""
    rate = RATE * max(classes, 2) ** CLASS_POWER / max(length, 1) ** LENGTH_POWER / passes**0.5
    return float(np.clip(rate, LEAST_RATE, MOST_RATE))


def default_batch(bags: Bags) -> int:
    """Documents in a step: enough for n-grams to repeat, few enough for the cache.

    A small data set gets smaller batches, so that a pass has at least STEPS steps.
    """
    length = max(len(bags.keys) / max(len(bags), 1), 1)
    suits = int(np.clip(BATCH_NGRAMS / length, *BATCH_RANGE))
    return max(min(suits, len(bags) // STEPS), LEAST_BATCH)


def default_passes(bags: Bags, distinct: int) -> int:
    """One pass, unless the text repeats its n-grams fewer than OFTEN times on average."""
    times = len(bags.keys) / max(distinct, 1)
    return int(np.clip((OFTEN / max(times, 1)) ** 2, 1, MOST_PASSES))
