"""Learning from a stream: the model predicts each text before it learns from it.

The share of right predictions so far is the *progressive accuracy*. It estimates the accuracy
without a test set, because the model has not seen a text when it predicts it.
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
    """The stream is not the one that the model has learned, so it cannot be resumed."""


@dataclass
class Progressive:
    """How far a stream has been learned, and how well it was answered."""

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
        """The fields as JSON values."""
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
    """Answer and then learn batches of (texts, labels), in their order.

    Args:
        classifier: a new one, or one that has learned before.
        batches: the stream.
        path: the model is saved here every `save_seconds` and at the end, with everything that
            further training needs. A process that is killed loses what came after the last save.
        resume: True for the same stream from its beginning, after an interruption: texts that the
            model has learned are skipped (see `unlearned`). False for new data.
        on_report: gets the progress after `report_first` texts, then each time their number has
            doubled, and at the end.
        on_save: gets the number of texts learned, after every save.

    If the loss is no longer finite, it raises `LossNotFiniteError` and saves nothing more.
    """
    stream = _Stream(classifier, path, on_save)
    if resume:
        stream.position = getattr(classifier, "stream_position_", stream.position)
        batches = unlearned(batches, stream.position)
    progress = stream.progress
    start = last_save = time.monotonic()
    due = report_first
    try:
        for texts, labels in batches:
            if len(texts) == 0:
                continue
            stream.learn(texts, labels)
            now = time.monotonic()
            progress.seconds = now - start
            if progress.texts >= due:
                on_report(progress)
                progress.recent_texts = progress.recent_right = 0
                while due <= progress.texts:
                    due *= 2
            if now - last_save >= save_seconds:
                uninterrupted(stream.save)
                last_save = time.monotonic()
    except LossNotFiniteError:
        raise
    except BaseException:
        try:
            uninterrupted(stream.save)
        except KeyboardInterrupt:  # a second Ctrl-C: still keep what was learned
            uninterrupted(stream.save)
        raise
    uninterrupted(stream.save)
    if progress.recent_texts:
        on_report(progress)
    return progress


class _Stream:
    """A classifier, its position in a stream, and its progress."""

    def __init__(
        self,
        classifier: TextClassifier,
        path: str | os.PathLike[str] | None,
        on_save: Callable[[int], object],
    ) -> None:
        self.classifier, self.path, self.on_save = classifier, path, on_save
        self.position, self.progress = StreamPosition(), Progressive()
        self._last: Any = None  # the texts of the last batch

    def learn(self, texts: Any, labels: Any) -> None:
        """Answer a batch, learn it, and count both."""
        following = self.position.after(texts, labels)
        right = self._right(texts, labels)
        uninterrupted(partial(self._learn_and_count, texts, labels, following))
        self.position, self._last = following, texts
        progress = self.progress
        progress.texts += len(texts)
        progress.recent_texts += len(texts)
        progress.right += right
        progress.recent_right += right
        progress.classes = len(self.classifier.classes_)

    def save(self) -> None:
        """Write the model, if there is a file for it and something was learned."""
        if self.path is None or self._last is None:
            return
        # The last update may have spoiled the rows it touched, and no later loss has shown it.
        if not np.isfinite(self.classifier.decision_function(self._last)).all():
            raise loss_not_finite(1, 1)
        # A compressed model has one form only.
        self.classifier.save(self.path, for_training=not self.classifier.packed_)
        self.on_save(self.classifier.texts_seen_)

    def _learn_and_count(self, texts: Any, labels: Any, following: StreamPosition) -> None:
        self.classifier.partial_fit(texts, labels)
        self.classifier.stream_position_ = following

    def _right(self, texts: Any, labels: Any) -> int:
        """The number of right answers; none before the first batch."""
        if not self.classifier.__sklearn_is_fitted__():
            return 0
        return round(self.classifier.score(texts, labels) * len(texts))


def unlearned(
    batches: Iterable[tuple[Any, Any]], position: StreamPosition
) -> Iterator[tuple[Any, Any]]:
    """Yield the part of a stream after this position.

    The stream must begin with exactly the texts and labels that led to the position. Otherwise it
    raises an `OtherStreamError`.
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
            f"the model has learned {position.texts:,} texts of its stream, but this stream has "
            f"only {found.texts:,}"
        )


def _check_same(found: StreamPosition, position: StreamPosition) -> None:
    if found != position:
        raise OtherStreamError(
            f"the first {position.texts:,} texts of this stream are not the ones that the model "
            "has learned"
        )
