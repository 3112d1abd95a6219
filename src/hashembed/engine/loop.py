"""The training loop: passes over bags, validation, early stopping, history; drives an engine.

An engine trains on batches and scores bags (`ShallowModel` is one). The loop prints nothing: it
calls back, and returns a `History`.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import named
from hashembed.engine.history import Epoch, History, Monitor
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import Engine, LossNotFiniteError, State, loss_not_finite
from hashembed.hashing.bags import Bags

RATE, CLASS_POWER, LENGTH_POWER = 0.073, 0.25, 0.2
BATCH_NGRAMS, BATCH_RANGE = 1 << 17, (256, 1024)
STEPS, LEAST_BATCH = 40, 8  # in a pass
MAX_BATCH = 2**24  # documents
OFTEN, MOST_PASSES = 4, 10  # times that an n-gram comes up in the text, on average


@dataclass(frozen=True)
class TrainConfig:
    """How to train. The defaults suit text; `paper()` is the protocol of the paper.

    passes: over the training data. learning_rate: the first one; None takes the engine's own or,
    where it has none, a rule from the lengths of the documents (`default_rate`). decay: whether it
    falls linearly to zero over all passes. batch_size: documents in a step; None takes a rule from
    their lengths (`default_batch`). snippets: train on runs of so many consecutive n-grams
    instead of whole documents. patience: stop after so many passes without a better validation
    loss, and restore the best. monitor: "loss" or "accuracy", what is better means.
    """

    passes: int = 1
    learning_rate: float | None = None
    decay: bool = False
    batch_size: int | None = None
    snippets: tuple[int, int] | None = None
    patience: int | None = None
    seed: int = 0
    monitor: Monitor = "loss"

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
        check_learning_rate(self.learning_rate)

    @classmethod
    def paper(cls, **changes: Any) -> "TrainConfig":
        """Snippets of 4 to 100 n-grams, a constant rate, early stopping with patience 10.

        Accuracy decides: a model of snippets is too sure of whole documents, whose vectors are
        longer, and its loss on them rises long before it has learned what it can.
        """
        protocol = cls(passes=1000, decay=False, snippets=(4, 100), patience=10, monitor="accuracy")
        return replace(protocol, **changes)


def check_learning_rate(rate: float | None) -> None:
    """None, or a number above 0."""
    if rate is not None and not 0 < rate < float("inf"):
        raise ValueError(f"{named('learning_rate')} must be above 0, found {rate}")


def default_rate(bags: Bags, classes: int, passes: int = 1) -> float:
    """A learning rate for documents of these lengths and so many classes.

    A document's vector is a sum, so one step of its rows moves it the further the longer it is;
    more classes pull each row in more directions; and more passes may go slower. Fitted to six
    data sets (`docs/how-it-works/training.md`).
    """
    length = max(len(bags.keys) / max(len(bags), 1), 1)
    rate = RATE * max(classes, 2) ** CLASS_POWER / length**LENGTH_POWER / passes**0.5
    return float(np.clip(rate, 0.005, 0.5))


def default_batch(bags: Bags) -> int:
    """Documents in a step: enough for n-grams to come up again, few enough for the cache.

    A small set gets smaller steps, so that there are at least some.
    """
    length = max(len(bags.keys) / max(len(bags), 1), 1)
    suits = int(np.clip(BATCH_NGRAMS / length, *BATCH_RANGE))
    return max(min(suits, len(bags) // STEPS), LEAST_BATCH)


def default_passes(bags: Bags, distinct: int) -> int:
    """One pass is enough, unless the n-grams of the text come up only a few times in it."""
    times = len(bags.keys) / max(distinct, 1)
    return int(np.clip((OFTEN / max(times, 1)) ** 2, 1, MOST_PASSES))


@dataclass
class Progress:
    """Where training stands; given to callbacks after every chunk of batches."""

    epoch: int
    passes: int
    documents: int  # of this pass, so far
    total: int
    loss: float  # mean of this chunk
    learning_rate: float
    ngrams_per_second: float


@dataclass
class Snapshot:
    """A run after some pass: what has happened, and the engine's state then and at its best."""

    history: History
    state: State
    best: float = float("inf")  # the lowest validation loss or error rate
    best_pass: int = -1
    best_state: State = field(default_factory=dict)


def fit(
    engine: Engine,
    bags: Bags,
    labels: Labels,
    config: TrainConfig | None = None,
    *,
    weights: F32 | None = None,
    validation: tuple[Bags, Labels] | None = None,
    callbacks: Sequence[Callable[[Progress], object]] = (),
    on_epoch: Callable[[Epoch], object] = lambda epoch: None,
    on_pass: Callable[[Snapshot], object] | None = None,
    resume: Snapshot | None = None,
    history: History | None = None,
) -> History:
    """Train the engine on labelled bags.

    `on_epoch` gets the figures of each pass. `on_pass` gets a snapshot after each pass; a run that
    resumes from it (`resume`) ends with bitwise the weights of an uninterrupted one.

    However training ends, the engine has the weights of the best validated pass, or its latest
    ones if none was validated, and `history` (where given) says why it stopped. Ctrl-C and other
    exceptions are raised after that. So is a loss that is not finite, unless there is a validated
    pass to return to.
    """
    config = config or TrainConfig()
    config = replace(config, batch_size=config.batch_size or default_batch(bags))
    rate = config.learning_rate or engine.learning_rate
    if rate is None:
        rate = default_rate(bags, int(labels.labels.max(initial=0)) + 1, config.passes)
    history = History() if history is None else history
    history.monitor = config.monitor
    run = resume or Snapshot(history, {})
    if resume is not None:
        engine.load_state(resume.state)
        history.epochs, history.stopped = resume.history.epochs, resume.history.stopped
        run.history = history
    best = None
    try:
        while len(history.epochs) < config.passes and not history.stopped:
            number = len(history.epochs)
            start = time.perf_counter()
            loss = _one_pass(engine, bags, labels, config, number, rate, weights, callbacks)
            seconds = time.perf_counter() - start
            epoch = Epoch(number, loss, float(_rate_at(config, rate, number + 1, 0, 1)), seconds)
            if validation is not None:
                epoch = replace(epoch, **evaluate(engine, *validation))
            history.epochs.append(epoch)
            if validation is not None and (measure := history.measure(epoch)) < run.best:
                run.best, run.best_pass = measure, number
                best = None  # makes room for the next
                best = engine.keep()
                if on_pass is not None:
                    run.best_state = engine.state()
            if validation is not None and config.patience is not None:
                history.stopped = _out_of_patience(config, number - run.best_pass)
            on_epoch(epoch)
            if on_pass is not None:
                run.state = engine.state()
                on_pass(replace(run, history=replace(history, epochs=list(history.epochs))))
        _check_last_batch(engine, bags, config, len(history.epochs) - 1)
    except LossNotFiniteError as error:
        history.stopped = f"{error} (pass {len(history.epochs) + 1})"
        if run.best_pass < 0:
            raise LossNotFiniteError(history.stopped) from None
        warnings.warn(f"kept the best pass: {history.stopped}", RuntimeWarning, stacklevel=2)
    except BaseException as error:
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        history.stopped = f"{what} in pass {len(history.epochs) + 1}"
        raise
    finally:
        if run.best_pass < len(history.epochs) - 1 or history.stopped:
            if best is not None:
                engine.go_back(best)
            elif run.best_state:  # of before it was resumed
                engine.load_state(run.best_state)
    return history


def _out_of_patience(config: TrainConfig, waited: int) -> str | None:
    if config.patience is None or waited < config.patience:
        return None
    return f"no better validation {config.monitor} for {config.patience} passes"


def evaluate(engine: Engine, bags: Bags, labels: Labels) -> dict[str, Any]:
    """Loss and accuracy on whole documents (exact sets of labels, where there may be several)."""
    z = engine.scores(bags).astype(np.float64)
    truth = labels.matrix(z.shape[1])
    if engine.multilabel:
        losses = (np.maximum(z, 0) - z * truth + np.log1p(np.exp(-np.abs(z)))).sum(axis=1)
        right = ((z > 0) == truth).all(axis=1)
    else:
        top = z.max(axis=1, keepdims=True)
        losses = np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[truth]
        right = z.argmax(axis=1) == labels.labels
    return {
        "validation_loss": float(losses.mean()) if len(losses) else 0.0,
        "validation_accuracy": float(right.mean()) if len(right) else 0.0,
    }


def _one_pass(
    engine: Engine,
    bags: Bags,
    labels: Labels,
    config: TrainConfig,
    number: int,
    rate: float,
    weights: F32 | None,
    callbacks: Sequence[Callable[[Progress], object]],
) -> float:
    """One pass in chunks of whole batches -> mean loss."""
    n, size = len(bags), config.batch_size or default_batch(bags)
    order = _order(n, config, number)
    snippets = None
    if config.snippets:
        snippets = engine.snippets(bags, config.seed, number, *config.snippets)
    steps = -(-n // size)
    rates = _rate_at(config, rate, number, np.arange(steps), steps).astype(np.float32)
    ngrams = len(bags.keys) / max(n, 1)
    stride = max(1, int(engine.chunk / max(ngrams * size, 1)))
    total = 0.0
    for first in range(0, steps, stride):
        last = min(first + stride, steps)
        chosen = order[first * size : last * size]
        start = time.perf_counter()
        losses = engine.train(
            bags,
            labels,
            chosen,
            rates[first:last],
            batch_size=size,
            weights=weights,
            snippets=snippets,
        )
        seconds = time.perf_counter() - start
        total += float(losses.sum(dtype=np.float64))
        progress = Progress(
            number,
            config.passes,
            min(last * size, n),
            n,
            float(losses.mean()),
            float(rates[first]),
            len(chosen) * ngrams / max(seconds, 1e-9),
        )
        for callback in callbacks:
            callback(progress)
    return total / max(n, 1)


def _order(documents: int, config: TrainConfig, number: int) -> I64:
    """The documents of a pass; from the seed and the pass alone, so a resumed run has the same."""
    return np.random.default_rng([config.seed & (2**63 - 1), number]).permutation(documents)


def _check_last_batch(engine: Engine, bags: Bags, config: TrainConfig, number: int) -> None:
    """No later loss shows what the last update did."""
    size = config.batch_size or default_batch(bags)
    last = _order(len(bags), config, number)[-(len(bags) % size or size) :]
    if not np.isfinite(engine.scores(bags.take(last))).all():
        raise loss_not_finite(-(-len(bags) // size), -(-len(bags) // size))


def _rate_at(config: TrainConfig, rate: float, number: int, step: Any, steps: int) -> Any:
    """The learning rate at a batch of a pass."""
    if not config.decay:
        return rate + 0.0 * step
    return rate * (1 - (number + step / max(steps, 1)) / config.passes)
