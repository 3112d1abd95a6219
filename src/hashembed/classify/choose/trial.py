"""One trial: a small model, trained on some rows and scored on others after every pass."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from hashembed.classify.documents import Documents
from hashembed.core.arrays import F32, F64
from hashembed.core.checks import whole_number
from hashembed.engine.defaults import default_batch
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_losses
from hashembed.engine.protocol import Engine, LossNotFiniteError, to_probabilities
from hashembed.engine.tensor_file import LARGEST
from hashembed.text.config import TextConfig

Metric = Literal["accuracy", "f1", "average_precision", "log_loss"]
METRICS = get_args(Metric)

TEMPERATURES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.7, 4.0)


@dataclass(frozen=True)
class Score:
    """How good a model is on held-out rows.

    error: 1 - accuracy (micro F1 with several labels), 1 - macro F1, 1 - average precision, or the
        loss.
    loss: the mean log loss at the best temperature. A model that is too sure has a cheap remedy, so
        it is not blamed for that.
    """

    error: float
    loss: float


@dataclass(frozen=True)
class Trial:
    """What was tried, on how many texts, and the scores after each pass."""

    round: int  # from 1
    text: TextConfig
    factor: float | None  # of the default learning rate; None: that of the number of passes
    texts: int  # trained on
    held_out: int  # scored on
    scores: tuple[Score, ...]
    work: float

    def to_dict(self) -> dict[str, Any]:
        """The trial as JSON values."""
        return {**asdict(self), "text": self.text.to_dict()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Trial":
        """The trial from `to_dict`."""
        factor, scores = saved["factor"], [Score(**score) for score in saved["scores"]]
        for score in scores:
            positive("error", score.error, or_zero=True)
            positive("loss", score.loss, or_zero=True)
        return cls(
            count("round", saved["round"]),
            TextConfig.from_dict(saved["text"]),
            None if factor is None else positive("factor", factor),
            count("texts", saved["texts"]),
            count("held_out", saved["held_out"]),
            tuple(scores),
            positive("work", saved["work"], or_zero=True),
        )


def count(name: str, value: object, low: int = 0) -> int:
    """A saved number of things."""
    return whole_number(name, value, low, 2**62)


def positive(name: str, value: Any, or_zero: bool = False) -> float:
    """A saved number above 0, or from 0."""
    if type(value) not in (int, float) or not 0 <= value <= LARGEST or not (value or or_zero):
        raise ValueError(f"{value!r:.20} as {name}")
    return float(value)


def train_and_score(
    engine: Engine, train: Documents, test: Documents, rate: float, passes: int, metric: Metric
) -> list[Score]:
    """Train for some passes; score the model after each, until it diverges."""
    n, size = len(train.bags), default_batch(train.bags)
    rates = np.full(-(-n // size), rate, np.float32)
    scores = []
    for number in range(passes):
        order = np.random.default_rng([0x7121A1, number]).permutation(n)
        try:
            engine.train(
                train.bags,
                train.labels,
                order,
                rates,
                batch_size=size,
                weights=train.weights,
                snippets=None,
            )
        except LossNotFiniteError:
            break
        z = engine.scores(test.bags)
        if not np.isfinite(z).all():
            break
        scores.append(score(z, test.labels, engine.multilabel, metric))
    return scores


def score(z: F32, labels: Labels, multilabel: bool, metric: Metric) -> Score:
    """The score of logits (texts, classes)."""
    loss = min(float(_losses(z, labels, multilabel, t).mean()) for t in TEMPERATURES)
    if metric == "log_loss":
        return Score(loss, loss)
    if metric == "accuracy" and not multilabel:
        return Score(float((z.argmax(axis=1) != labels.labels).mean()), loss)
    truth = labels.matrix(z.shape[1])
    if metric == "average_precision":
        from hashembed.classify.metrics import average_precision

        occurring = truth.any(axis=0)
        found = average_precision(truth, to_probabilities(z, multilabel))[occurring]
        return Score(1 - float(found.mean()) if len(found) else 1.0, loss)
    answers = z > 0 if multilabel else np.eye(z.shape[1], dtype=np.bool_)[z.argmax(axis=1)]
    hits, both = (truth & answers).sum(axis=0), truth.sum(axis=0) + answers.sum(axis=0)
    if metric == "f1":
        occurring = both > 0
        f1 = 2 * hits[occurring] / both[occurring]
        return Score(1 - float(f1.mean()) if len(f1) else 1.0, loss)
    # Exact sets of labels are too rare to compare: micro F1.
    return Score(1 - float(2 * hits.sum() / max(both.sum(), 1)), loss)


def _losses(z: F32, labels: Labels, multilabel: bool, temperature: float) -> F64:
    losses = np.empty(len(z))
    softer = np.ascontiguousarray(z / np.float32(temperature), np.float32)
    fill_losses(softer, labels.labels, labels.offsets, multilabel, losses)
    return losses


def mean_score(scores: list[Score], counts: list[int]) -> Score:
    """The mean over folds of these sizes."""
    total = max(sum(counts), 1)
    return Score(
        sum(s.error * n for s, n in zip(scores, counts, strict=True)) / total,
        sum(s.loss * n for s, n in zip(scores, counts, strict=True)) / total,
    )
