"""One trial: a small model, trained on some rows and scored on others after every pass."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hashembed.classify.documents import Documents
from hashembed.core.arrays import F32, F64, Bools
from hashembed.core.checks import whole_number
from hashembed.engine.defaults import default_batch
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_losses
from hashembed.engine.protocol import Engine, LossNotFiniteError, to_probabilities
from hashembed.engine.tensor_file import LARGEST
from hashembed.text.config import TextConfig

Metric = Literal["accuracy", "f1", "average_precision", "log_loss"]
METRICS = get_args(Metric)

THRESHOLDS = tuple(t / 40 for t in range(4, 29))  # for several labels: from 0.1 to 0.7
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
        scores.append(score(z, test.labels, engine.multilabel, metric, test.weights))
    return scores


def score(
    z: F32, labels: Labels, multilabel: bool, metric: Metric, weights: F32 | None = None
) -> Score:
    """The score of logits (texts, classes).

    weights: of the texts; None weighs all alike. With several labels, class weights (`Labels`) also
    weigh each answer for its class, as they do in training.
    """
    own = None if weights is None else weights.astype(np.float64)
    loss = min(_mean(_losses(z, labels, multilabel, t), own) for t in TEMPERATURES)
    if metric == "log_loss":
        return Score(loss, loss)
    if metric == "accuracy" and not multilabel:
        return Score(_mean(z.argmax(axis=1) != labels.labels, own), loss)
    truth = labels.matrix(z.shape[1])
    cells = _cell_weights(truth, labels.class_weights, own)
    if metric == "average_precision":
        found = _average_precision(truth, to_probabilities(z, multilabel), cells)
        return Score(1 - float(found.mean()) if len(found) else 1.0, loss)
    if multilabel:  # the final model has the best threshold too
        chances = to_probabilities(z, True)
        return Score(1 - max(f1(truth, chances > t, metric, cells) for t in THRESHOLDS), loss)
    answers = np.eye(z.shape[1], dtype=np.bool_)[z.argmax(axis=1)]
    return Score(1 - f1(truth, answers, metric, cells), loss)


def f1(truth: Bools, answers: Bools, metric: Metric, cells: F64 | None = None) -> float:
    """Macro F1 for the metric "f1", else micro F1: exact sets of labels are too rare.

    cells: a weight for each text and class.
    """
    hits = _total(truth & answers, cells)
    both = _total(truth, cells) + _total(answers, cells)
    occurring = both > 0
    if not occurring.any():
        return 0.0
    if metric != "f1":
        return float(2 * hits.sum() / both.sum())
    return float((2 * hits[occurring] / both[occurring]).mean())


def _losses(z: F32, labels: Labels, multilabel: bool, temperature: float) -> F64:
    softer = np.ascontiguousarray(z / np.float32(temperature), np.float32)
    if labels.class_weights is None:
        losses = np.empty(len(z))
        fill_losses(softer, labels.labels, labels.offsets, multilabel, losses)
        return losses
    # Each answer is a document of one class, so that it can have a weight of its own.
    truth = labels.matrix(z.shape[1])
    offsets = np.concatenate([[0], np.cumsum(truth)]).astype(np.int64)
    losses = np.empty(z.size)
    fill_losses(softer.reshape(-1, 1), np.zeros(offsets[-1], np.int64), offsets, True, losses)
    weighted = losses.reshape(z.shape) * _by_class(truth, labels.class_weights)
    return np.asarray(weighted.sum(axis=1))


def _mean(values: npt.NDArray[Any], weights: F64 | None) -> float:
    """The mean over texts; 0 if none of them has a weight."""
    if weights is None:
        return float(values.mean())
    total = weights.sum()
    return float((weights * values).sum() / total) if total > 0 else 0.0


def _cell_weights(truth: Bools, of_class: F32 | None, of_text: F64 | None) -> F64 | None:
    """The weight of each answer (texts, classes); None is 1."""
    if of_class is None and of_text is None:
        return None
    cells = np.ones(truth.shape) if of_class is None else _by_class(truth, of_class)
    return cells if of_text is None else cells * of_text[:, None]


def _by_class(truth: Bools, of_class: F32) -> F64:
    yes, no = of_class.astype(np.float64)
    return np.asarray(np.where(truth, yes, no))


def _total(which: Bools, cells: F64 | None) -> npt.NDArray[Any]:
    """The number of answers for each class, or their weight."""
    return np.asarray(which.sum(axis=0) if cells is None else (which * cells).sum(axis=0))


def _average_precision(truth: Bools, probabilities: F32, cells: F64 | None) -> F64:
    """Of each class that occurs."""
    if cells is None:
        from hashembed.classify.tally import average_precision

        return average_precision(truth, probabilities)[truth.any(axis=0)]
    found = []
    for c in np.flatnonzero((truth * cells).sum(axis=0) > 0):
        order = np.argsort(-probabilities[:, c], kind="stable")
        falling, weights = -probabilities[order, c], cells[order, c]
        own = weights * truth[order, c]
        last = np.searchsorted(falling, falling, "right") - 1  # of those at least as probable
        said, right = np.cumsum(weights)[last], np.cumsum(own)[last]
        counts = own > 0
        found.append((own[counts] * right[counts] / said[counts]).sum() / own.sum())
    return np.array(found)


def mean_score(scores: list[Score], sizes: list[float]) -> Score:
    """The mean over folds of these sizes, or weights."""
    total = sum(sizes) or 1
    return Score(
        sum(s.error * n for s, n in zip(scores, sizes, strict=True)) / total,
        sum(s.loss * n for s, n in zip(scores, sizes, strict=True)) / total,
    )
