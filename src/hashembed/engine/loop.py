"""The training loop: drives an engine through passes, validation and early stopping.

An engine trains on batches and scores bags (`ShallowModel` is one). The loop prints nothing: it
calls hooks, and returns a `History`. `engine/defaults.py` has the settings and their defaults.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hashembed.core.arrays import F32, F64, I64
from hashembed.engine.defaults import TrainConfig, default_batch, default_rate
from hashembed.engine.history import Epoch, History
from hashembed.engine.labels import Labels
from hashembed.engine.order import pass_order
from hashembed.engine.outputs import fill_losses
from hashembed.engine.protocol import Engine, Kept, LossNotFiniteError, loss_not_finite
from hashembed.engine.training_state import TrainingState
from hashembed.hashing.bags import Bags

STATE_SECONDS = 120.0  # between training states within a pass


@dataclass
class Progress:
    """How far training has come; hooks get it after every chunk of batches."""

    epoch: int
    passes: int
    documents: int  # of this pass, so far
    total: int
    loss: float  # mean of this chunk
    learning_rate: float
    ngrams_per_second: float


@dataclass(frozen=True)
class Hooks:
    """Functions that the loop calls.

    progress: each is called after every chunk of batches.
    epoch: is called after each pass, with its figures.
    state: is called after each pass, with all that resuming from there needs.
    state_seconds: it is also called within a pass, once this much time has gone by.
    """

    progress: Sequence[Callable[[Progress], object]] = ()
    epoch: Callable[[Epoch], object] = lambda epoch: None
    state: Callable[[TrainingState], object] | None = None
    state_seconds: float = STATE_SECONDS


def fit(
    engine: Engine,
    bags: Bags,
    labels: Labels,
    config: TrainConfig | None = None,
    *,
    weights: F32 | None = None,
    validation: tuple[Bags, Labels] | None = None,
    hooks: Hooks | None = None,
    resume: TrainingState | None = None,
    history: History | None = None,
) -> History:
    """Train the engine on labelled bags.

    weights: of the documents; None is 1. resume: a training state that `hooks.state` got; the
    resumed run ends with the same weights as an uninterrupted one, bit for bit.

    However training ends, the engine has the weights of the best validated pass, or the latest if
    none was validated, and `history` (if given) says why training stopped. Ctrl-C and other
    exceptions are raised after that. So is a loss that is not finite, unless there is a validated
    pass to return to.
    """
    config = config or TrainConfig()
    size = config.batch_size or default_batch(bags)
    rate = config.learning_rate or engine.learning_rate
    if rate is None:
        rate = default_rate(bags, int(labels.labels.max(initial=0)) + 1, config.passes)
    history = History() if history is None else history
    history.monitor = config.monitor
    state = resume or TrainingState(history, {})
    if resume is not None:
        engine.load_state(resume.state)
        history.epochs, history.stopped = resume.history.epochs, resume.history.stopped
        state.history = history
    run = _Run(engine, bags, labels, weights, config, size, rate, hooks or Hooks(), state)
    try:
        while len(history.epochs) < config.passes and not history.stopped:
            run.one_pass(validation)
        run.check_last_batch()
    except LossNotFiniteError as error:
        history.stopped = f"{error} (pass {len(history.epochs) + 1})"
        if state.best_pass < 0:
            raise LossNotFiniteError(history.stopped) from None
        warnings.warn(f"kept the best pass: {history.stopped}", RuntimeWarning, stacklevel=2)
    except BaseException as error:
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        history.stopped = f"{what} in pass {len(history.epochs) + 1}"
        raise
    finally:
        run.restore_best()
    return history


@dataclass
class _Run:
    """A training run: what is trained on what, how, and the state after the last whole pass."""

    engine: Engine
    bags: Bags
    labels: Labels
    weights: F32 | None
    config: TrainConfig
    size: int  # documents in a batch
    rate: float  # the first learning rate
    hooks: Hooks
    state: TrainingState
    kept: Kept | None = field(default=None, init=False)  # `Engine.keep` of the best pass
    saved: float = field(default_factory=time.monotonic, init=False)  # when the state was

    @property
    def history(self) -> History:
        return self.state.history

    def one_pass(self, validation: tuple[Bags, Labels] | None) -> None:
        """Train for one pass, validate it, and tell the hooks."""
        engine, history, number = self.engine, self.history, len(self.history.epochs)
        start = time.perf_counter()
        loss = self._train(number)
        seconds = time.perf_counter() - start
        epoch = Epoch(number, loss, float(self._rate_after(number + 1)), seconds)
        if validation is not None:
            found = evaluate(engine, *validation)
            epoch = replace(
                epoch,
                validation_loss=found["validation_loss"],
                validation_accuracy=found["validation_accuracy"],
            )
        history.epochs.append(epoch)
        if validation is not None:
            self._remember_if_best(epoch)
        self.hooks.epoch(epoch)
        self._save_state()

    def _save_state(self, steps: int = 0, loss: float = 0.0) -> None:
        """Give the state to its hook. steps, loss: of a pass that is not over."""
        state = self.state
        state.steps, state.loss = steps, loss
        if self.hooks.state is None:
            return
        state.state = self.engine.state()
        copied = replace(self.history, epochs=list(self.history.epochs))
        self.hooks.state(replace(state, history=copied))
        self.saved = time.monotonic()

    def _remember_if_best(self, epoch: Epoch) -> None:
        """Keep the weights of the best pass; stop if none was better for too long."""
        state, config = self.state, self.config
        if (measure := self.history.measure(epoch)) < state.best:
            state.best, state.best_pass = measure, epoch.number
            self.kept = None  # frees the memory before the next copy
            self.kept = self.engine.keep()
            if self.hooks.state is not None:
                state.best_state = self.engine.state()
        waited = epoch.number - state.best_pass
        if config.patience is not None and waited >= config.patience:
            self.history.stopped = (
                f"no better validation {config.monitor} for {config.patience} passes"
            )

    def restore_best(self) -> None:
        """Return to the best validated pass, unless it is the state of the engine already."""
        state = self.state
        if state.best_pass == len(self.history.epochs) - 1 and not self.history.stopped:
            return
        if self.kept is not None:
            self.engine.go_back(self.kept)
        elif state.best_state:  # from before the run was resumed
            self.engine.load_state(state.best_state)

    def _train(self, number: int) -> float:
        """One pass in chunks of whole batches -> mean loss."""
        engine, bags, config, n, size = (
            self.engine,
            self.bags,
            self.config,
            len(self.bags),
            self.size,
        )
        order = self._order(number)
        snippets = None
        if config.snippets:
            snippets = engine.snippets(bags, config.seed, number, *config.snippets)
        steps = -(-n // size)
        rates = self._rate_after(number + np.arange(steps) / max(steps, 1)).astype(np.float32)
        ngrams = len(bags.keys) / max(n, 1)
        stride = max(1, int(engine.chunk / max(ngrams * size, 1)))
        total, begin = self.state.loss, self.state.steps  # 0 unless resumed within the pass
        for first in range(begin, steps, stride):
            last = min(first + stride, steps)
            chosen = order[first * size : last * size]
            start = time.perf_counter()
            losses = engine.train(
                bags,
                self.labels,
                chosen,
                rates[first:last],
                batch_size=size,
                weights=self.weights,
                snippets=snippets,
            )
            seconds = time.perf_counter() - start
            total += float(losses.sum(dtype=np.float64))
            progress = Progress(
                epoch=number,
                passes=config.passes,
                documents=min(last * size, n),
                total=n,
                loss=float(losses.mean()),
                learning_rate=float(rates[first]),
                ngrams_per_second=len(chosen) * ngrams / max(seconds, 1e-9),
            )
            for hook in self.hooks.progress:
                hook(progress)
            late = time.monotonic() - self.saved >= self.hooks.state_seconds
            if self.hooks.state is not None and late and last < steps:
                self._save_state(last, total)
        return total / max(n, 1)

    def check_last_batch(self) -> None:
        """Raise if the last update spoiled the weights: no later loss would show it."""
        n, size = len(self.bags), self.size
        last = self._order(len(self.history.epochs) - 1)[-(n % size or size) :]
        if not np.isfinite(self.engine.scores(self.bags.take(last))).all():
            raise loss_not_finite(-(-n // size), -(-n // size))

    def _order(self, number: int) -> I64:
        """The documents of a pass; depends only on seed and pass, so a resumed run has the same."""
        return pass_order(self.bags, self.config.seed, number, self.config.shuffle)

    def _rate_after(self, passes: float | F64) -> F64:
        """The learning rate after this many passes, fractions included."""
        if not self.config.decay:
            return np.asarray(self.rate + 0.0 * passes)
        return np.asarray(self.rate * (1 - passes / self.config.passes))


def evaluate(engine: Engine, bags: Bags, labels: Labels) -> dict[str, float]:
    """Loss and accuracy on whole documents; with several labels, right is the exact set."""
    z, losses = engine.scores(bags), np.empty(len(bags))
    fill_losses(np.ascontiguousarray(z), labels.labels, labels.offsets, engine.multilabel, losses)
    if engine.multilabel:
        right = ((z > 0) == labels.matrix(z.shape[1])).all(axis=1)
    else:
        right = z.argmax(axis=1) == labels.labels
    return {
        "validation_loss": float(losses.mean()) if len(losses) else 0.0,
        "validation_accuracy": float(right.mean()) if len(right) else 0.0,
    }
