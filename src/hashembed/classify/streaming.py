"""Learning from a stream: each text is answered first and learned from then.

The share of right answers so far, the *progressive accuracy*, is an honest estimate without a test
set, because no text was seen before it was answered.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from hashembed.classify.classifier import TextClassifier
from hashembed.classify.stream_position import StreamPosition
from hashembed.core.threads import uninterrupted
from hashembed.engine.protocol import LossNotFiniteError, loss_not_finite


class OtherStreamError(ValueError):
    """A stream is not the one that a model was learning: it can be learned, but not resumed."""


@dataclass
class Progressive:
    """Where a stream stands."""

    texts: int = 0
    right: int = 0
    recent_texts: int = 0  # since the last report
    recent_right: int = 0
    classes: int = 0
    seconds: float = 0.0

    @property
    def accuracy(self) -> float:
        """Of all texts so far."""
        return self.right / max(self.texts, 1)

    @property
    def recent_accuracy(self) -> float:
        """Of the texts since the last report."""
        return self.recent_right / max(self.recent_texts, 1)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            **asdict(self),
            "accuracy": self.accuracy,
            "recent_accuracy": self.recent_accuracy,
        }


def learn_stream(
    classifier: TextClassifier,
    batches: Iterable[tuple[Any, Any]],
    *,
    path: str | os.PathLike[str] | None = None,
    save_seconds: float = 30.0,
    resume: bool = False,
    on_report: Callable[[Progressive], object] = lambda progress: None,
    on_save: Callable[[int], object] = lambda texts: None,
    report_first: int = 1000,
) -> Progressive:
    """Answer and learn batches of (texts, labels), in their order.

    `path` gets the model, with everything it needs to learn on, every so many seconds and at the
    end: a process that is killed loses what came since. `on_save` is told after how many texts.
    Reports come after `report_first` texts and then whenever twice as many have been seen.

    A loss that is no longer finite raises `LossNotFiniteError`, and nothing more is saved.

    `resume` is for the same stream once more, from its beginning, after an interruption: the texts
    that the model has learned from are recognised and skipped (`unlearned`). Without it, the stream
    is new data.
    """
    position = StreamPosition()
    if resume:
        position = getattr(classifier, "stream_position_", position)
        batches = unlearned(batches, position)
    progress = Progressive()
    start = last_save = time.monotonic()
    due = report_first
    learned: Any = None  # the texts of the last batch

    def save() -> None:
        if path is not None and learned is not None:
            _check_sound(classifier, learned)
            classifier.save(path, for_training=True)
            on_save(classifier.texts_seen_)

    try:
        for texts, labels in batches:
            if len(texts) == 0:
                continue
            following = position.after(texts, labels)
            right = _right(classifier, texts, labels)
            uninterrupted(partial(_learn_and_count, classifier, texts, labels, following))
            position, learned = following, texts
            progress.texts += len(texts)
            progress.recent_texts += len(texts)
            progress.right += right
            progress.recent_right += right
            progress.classes = len(classifier.classes_)
            now = time.monotonic()
            progress.seconds = now - start
            if progress.texts >= due:
                on_report(progress)
                progress.recent_texts = progress.recent_right = 0
                while due <= progress.texts:
                    due *= 2
            if now - last_save >= save_seconds:
                uninterrupted(save)
                last_save = time.monotonic()
    except LossNotFiniteError:
        raise
    except BaseException:
        try:
            uninterrupted(save)
        except KeyboardInterrupt:  # a second one: what was learned is still worth keeping
            uninterrupted(save)
        raise
    uninterrupted(save)
    if progress.recent_texts:
        on_report(progress)
    return progress


def _check_sound(classifier: TextClassifier, texts: Any) -> None:
    """The last update may have spoiled what it touched, and no later loss has shown it."""
    if not np.isfinite(classifier.decision_function(texts)).all():
        raise loss_not_finite(1, 1)


def unlearned(
    batches: Iterable[tuple[Any, Any]], position: StreamPosition
) -> Iterator[tuple[Any, Any]]:
    """What comes in a stream after this position.

    The stream must begin with the very texts and labels that led to the position; otherwise it is
    another one: an `OtherStreamError`.
    """
    found = StreamPosition()
    for texts, labels in batches:
        missing = position.texts - found.texts
        if missing <= 0:
            yield texts, labels
            continue
        found = found.after(texts[:missing], labels[:missing])
        if found.texts == position.texts:
            _check_same(found, position)
            if len(texts) > missing:
                yield texts[missing:], labels[missing:]
    if found.texts < position.texts:
        raise OtherStreamError(
            f"the model has learned {position.texts:,} texts of its stream, but this one has only "
            f"{found.texts:,}"
        )


def _check_same(found: StreamPosition, position: StreamPosition) -> None:
    if found != position:
        raise OtherStreamError(
            f"the first {position.texts:,} texts of this stream are not those that the model has "
            "learned"
        )


def _learn_and_count(
    classifier: TextClassifier, texts: Any, labels: Any, following: StreamPosition
) -> None:
    classifier.partial_fit(texts, labels)
    classifier.stream_position_ = following


def _right(classifier: TextClassifier, texts: Any, labels: Any) -> int:
    """How many of these the model would have answered right; before it knows anything, none."""
    if not hasattr(classifier, "model_"):
        return 0
    return round(classifier.score(texts, labels) * len(texts))
