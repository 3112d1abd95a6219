"""Calibrates a model after training, on rows that it was not trained on.

Validation rows serve, if there are enough. Otherwise every member of an ensemble leaves out some
rows, each member others, and is asked about them afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hashembed.classify.answers import THRESHOLD
from hashembed.classify.calibration import FEWEST_ROWS, best_temperature
from hashembed.classify.choose.trial import THRESHOLDS, Metric, count, f1, positive
from hashembed.classify.documents import Documents
from hashembed.core.arrays import F32, I64
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.labels import Labels
from hashembed.engine.linear import linear
from hashembed.engine.protocol import Engine, to_probabilities

SHARE, MOST_ROWS = 0.03, 2_000  # of the rows each member leaves out, and rows of all members
SURER = 0.94  # the best temperature of the members' mean logits, relative to that of one member's


@dataclass(frozen=True)
class Calibration:
    """What was found on rows that were not trained on."""

    temperature: float  # the logits were divided by it
    threshold: float  # the probability above which a label is given, in models of several labels
    rows: int  # that it was found on

    def to_dict(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Calibration":
        """The calibration from `to_dict`."""
        threshold = positive("threshold", saved["threshold"])
        if threshold >= 1:
            raise ValueError(f"{threshold!r:.20} as threshold")
        temperature = positive("temperature", saved["temperature"])
        return cls(temperature, threshold, count("rows", saved["rows"]))


@contextmanager
def leaving_rows_out(model: Engine, rows: int, seed: int) -> Iterator[list[I64]]:
    """While this lasts, members do not train on some rows: a list for each, [] if there are none.

    However training ends, later training is on all rows again.
    """
    if not isinstance(model, Ensemble) or linear(model) is None:
        yield []
        return
    members = len(model.members)
    each = min(int(rows * SHARE), MOST_ROWS // members)
    if each * members < FEWEST_ROWS:
        yield []
        return
    order = np.random.default_rng([seed & (2**63 - 1), 0xCA1]).permutation(rows)
    left_out = [np.sort(order[i * each : (i + 1) * each]) for i in range(members)]
    model.left_out = left_out
    try:
        yield left_out
    finally:
        model.left_out = ()


def calibrate(
    model: Engine,
    train: Documents,
    left_out: list[I64],
    held_out: Documents | None,
    metric: Metric,
) -> Calibration | None:
    """Divide the logits by the temperature that is best on rows that were not trained on.

    None if there are too few such rows.
    """
    surer, labels = 1.0, train.labels
    if held_out is not None:
        z, labels = model.scores(held_out.bags), held_out.labels
    elif left_out and isinstance(model, Ensemble):
        parts = zip(model.members, left_out, strict=True)
        z = np.concatenate([part.scores(train.bags.take(rows)) for part, rows in parts])
        labels, surer = labels.take(np.concatenate(left_out)), SURER
    else:
        return None
    if len(z) < FEWEST_ROWS or not np.isfinite(z).all():
        return None
    temperature = surer * best_temperature(z, labels, model.multilabel)
    model.scale_logits(1 / temperature)
    threshold = THRESHOLD
    if model.multilabel:
        threshold = best_threshold(z / np.float32(temperature), labels, metric)
    return Calibration(temperature, threshold, len(z))


def best_threshold(z: F32, labels: Labels, metric: Metric) -> float:
    """The probability with the best F1 if labels above it are given; F1 is micro or macro.

    Of equally good ones it is the one closest to a half.
    """
    truth, chances = labels.matrix(z.shape[1]), to_probabilities(z, True)
    scores = {t: round(f1(truth, chances > t, metric), 9) for t in THRESHOLDS}
    return max(scores, key=lambda t: (scores[t], -abs(t - THRESHOLD)))
