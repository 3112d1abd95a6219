"""Calibration: how far confidences are from shares of right answers, and the temperature to fit.

Of the answers with a probability of 80%, a calibrated model has 80% right.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, F64, I64, Bools
from hashembed.core.exact_sum import ExactSum, merged
from hashembed.core.plotting import new_figure
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import make_probabilities
from hashembed.engine.protocol import check_labels

BINS = 15  # of equal width; the usual number, from Guo et al. (2017)
COOLEST, HOTTEST = 0.05, 20.0  # temperatures
FEWEST_ROWS = 50  # with fewer rows, the best temperature is chance
WRONG = 0.5  # answers that count as wrong in addition, see `best_temperature`
STEPS = 100  # far more than the search takes
TOLERANCE = 1e-10  # of 1 / T, relative
BLOCK = 1 << 18  # logits or confidences in memory as float64 at a time
NORMAL_95 = 1.959964  # standard deviations: an interval of 95%


@dataclass(frozen=True, eq=False)
class Reliability:
    """Answers by their confidence: bin i has those above i / 15 and up to (i + 1) / 15.

    With one class per text, an answer is the likeliest class of a text, and its confidence is the
    probability. With several labels, every pair of text and label is an answer: its confidence is
    the probability of the label, and it is right if the text has the label.
    """

    counts: I64  # (15,), answers
    right: I64  # (15,), answers that are right
    confidence: F64  # (15,), mean confidence; 0 in an empty bin
    multilabel: bool = False

    @property
    def accuracy(self) -> F64:
        """Of each bin: the share of answers that are right (0 without answers)."""
        return self.right / np.maximum(self.counts, 1)

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |confidence - accuracy| over all answers."""
        gaps = self.counts * np.abs(self.confidence - self.accuracy)
        return float(gaps.sum() / max(int(self.counts.sum()), 1))

    def to_list(self) -> list[dict[str, Any]]:
        """The bins as JSON values; an empty bin has neither confidence nor accuracy."""
        columns = (self.counts, self.confidence, self.accuracy)
        return [
            {
                "above": i / BINS,
                "up_to": (i + 1) / BINS,
                "answers": n,
                "confidence": c if n else None,
                "accuracy": a if n else None,
            }
            for i, (n, c, a) in enumerate(zip(*(x.tolist() for x in columns), strict=True))
        ]

    def interval(self) -> tuple[F64, F64]:
        """Of each bin: Wilson's 95% interval of the accuracy, from 0 to 1 without answers."""
        n, share, z = np.maximum(self.counts, 1), self.accuracy, NORMAL_95
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        full = self.counts > 0
        low, high = np.maximum(middle - half, 0), np.minimum(middle + half, 1)
        return np.where(full, low, 0.0), np.where(full, high, 1.0)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the accuracy of each bin, with its 95% interval, and the number of answers below."""
        figure = new_figure("a reliability plot", 6, 6.5)
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
        places = (np.arange(BINS) + 0.5) / BINS
        share, counts, full = self.accuracy, self.counts, self.counts > 0
        what = "share of true labels" if self.multilabel else "accuracy"
        bars = {"width": 1 / BINS, "edgecolor": "white", "linewidth": 1}
        upper.bar(places, share, color="C0", alpha=0.5, label=what, **bars)
        if full.any():
            low, high = self.interval()
            around = np.maximum([share - low, high - share], 0)[:, full]
            where = self.confidence[full], share[full], around
            name = "95% interval, at the mean confidence"
            marks = {"fmt": "o", "color": "C0", "markersize": 4, "clip_on": False, "label": name}
            upper.errorbar(*where, **marks)
        upper.plot([0, 1], [0, 1], "--", color="0.3", zorder=3, label="calibrated")
        upper.set(xlim=(0, 1), ylim=(0, 1), ylabel=what)
        upper.grid(alpha=0.3)
        upper.set_axisbelow(True)
        heights = np.log10(1 + counts) if _is_uneven(counts) else counts
        drawn = lower.bar(places, heights, color="0.75", **bars)
        names = [_short(n) if n else "" for n in counts.tolist()]
        lower.bar_label(drawn, names, fontsize=7, padding=1)
        lower.set(yticks=[], ylim=(0, 1.3 * max(heights.max(initial=0), 0.1)))
        unit = "labels" if self.multilabel else "texts"
        lower.set(ylabel=f"{unit}\n(log scale)" if _is_uneven(counts) else unit)
        name = "probability of the label" if self.multilabel else "confidence of the answer"
        lower.set(xlabel=name, xticks=np.arange(0, 1.1, 0.2))
        total = f"{int(counts.sum()):,} {'labels of texts' if self.multilabel else 'texts'}"
        upper.set_title(f"calibration error (ECE) {self.error:.4f} on {total}")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        figure.savefig(path)


def _is_uneven(counts: I64) -> bool:
    """Whether small counts would not be seen next to large ones."""
    some = counts[counts > 0]
    return len(some) > 0 and int(some.max()) > 30 * int(some.min())


def _short(count: int) -> str:
    """12345 -> 12.3k"""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{unit}"
    return str(count)


@dataclass(frozen=True, eq=False)
class Reliable:
    """The counts of a `Reliability`; those of parts of the answers add up to those of all."""

    counts: I64  # (15,), answers
    right: I64  # (15,), answers that are right
    sums: list[ExactSum]  # of 15 bins: of the confidences
    multilabel: bool

    @classmethod
    def of(cls, confidence: npt.ArrayLike, right: Bools, multilabel: bool) -> "Reliable":
        """Sort answers with these confidences into bins; both arrays have one shape."""
        all_values, all_right = np.ravel(confidence), np.ravel(right)
        edges = np.arange(1, BINS) / BINS
        counts, hits = np.zeros((2, BINS), np.int64)
        sums = [ExactSum() for _ in range(BINS)]
        for start in range(0, len(all_values), BLOCK):
            values = all_values[start : start + BLOCK].astype(np.float64)
            place = np.searchsorted(edges, values)  # an edge belongs to the bin below it
            counts += np.bincount(place, minlength=BINS)
            hits += np.bincount(place[all_right[start : start + BLOCK]], minlength=BINS)
            for i, total in enumerate(sums):
                total.add(values[place == i])
        return cls(counts, hits, sums, multilabel)

    def __add__(self, other: "Reliable") -> "Reliable":
        sums = merged(self.sums, other.sums)
        return Reliable(self.counts + other.counts, self.right + other.right, sums, self.multilabel)

    def reliability(self) -> Reliability:
        """The mean confidence of each bin, and its counts."""
        means = np.array([float(total) for total in self.sums]) / np.maximum(self.counts, 1)
        return Reliability(self.counts, self.right, means, self.multilabel)


def reliability(confidence: npt.ArrayLike, right: Bools, multilabel: bool) -> Reliability:
    """Sort answers with these confidences into bins; both arrays have one shape."""
    return Reliable.of(confidence, right, multilabel).reliability()


def best_temperature(logits: F32 | F64, labels: Labels, multilabel: bool) -> float:
    """Find the T for which softmax(z / T), or sigmoids, have the least mean log loss.

    The rows must not be those that the model was trained on. In addition to the mistakes, half an
    answer in all counts as wrong, by Jeffreys' prior. Otherwise rows that are all answered right
    would make the model infinitely sure. The result is from 0.05 to 20, and 1 for fewer than 50
    rows. Logits that are s times as large have an s times as large temperature.

    Args:
        logits: (n, C), of held-out rows.
        labels: the true classes of these rows.
        multilabel: whether a row may have any number of classes.
    """
    z = logits
    if z.ndim != 2 or not np.isfinite(z).all():
        raise ValueError(f"logits must be a finite array (n, C), found shape {z.shape}")
    check_labels(labels, len(z), z.shape[1], multilabel)
    if len(z) < FEWEST_ROWS:
        return 1.0
    loss = _Loss(z, labels, multilabel)
    if not loss.differs:
        return 1.0
    low, high = 1 / HOTTEST, 1 / COOLEST  # of 1 / T, in which the loss is convex
    if loss.slopes(low)[0] >= 0:
        return HOTTEST
    if loss.slopes(high)[0] <= 0:
        return COOLEST
    at = 1.0
    for _ in range(STEPS):
        slope, bend = loss.slopes(at)
        low, high = (at, high) if slope < 0 else (low, at)
        newton = at - slope / bend if bend > 0 else math.inf
        if abs(newton - at) <= TOLERANCE * at or high - low <= TOLERANCE * at:
            break
        at = newton if low < newton < high else math.sqrt(low * high)
    return 1 / at


class _Loss:
    """The mean log loss of logits multiplied by a sharpness, 1 / T.

    The margins d tell how far the logit of a wrong answer is above that of the right one. With one
    class per row, d = z - z[truth], and the loss is log(sum(exp(d / T))). With several, d is z, or
    -z if the row has the class, and the loss is the sum of log(1 + exp(d / T)).
    """

    def __init__(self, z: F32 | F64, labels: Labels, multilabel: bool) -> None:
        self.z, self.labels, self.multilabel = z, labels, multilabel
        rows, classes = z.shape
        answers = rows * classes if multilabel else rows
        others = 1 if multilabel else max(classes - 1, 1)  # that share what counts as wrong
        sums = [(float(d.sum()), bool(d.any())) for d in self._margins()]
        self.differs = any(some for _, some in sums)
        self.pull = WRONG / (answers + 2 * WRONG) * math.fsum(x for x, _ in sums) / others / rows

    def slopes(self, sharpness: float) -> tuple[float, float]:
        """The first and the second derivative by the sharpness."""
        first, second = [], []
        for d in self._margins():
            p = d * sharpness
            make_probabilities(p, self.multilabel)
            p_d = p * d
            if self.multilabel:
                second.append(float(((1 - p) * p_d * d).sum()))
            else:
                second.append(float((p_d * d).sum() - (p_d.sum(axis=1) ** 2).sum()))
            first.append(float(p_d.sum()))
        rows = len(self.z)
        return math.fsum(first) / rows - self.pull, math.fsum(second) / rows

    def _margins(self) -> Iterator[F64]:
        size = max(BLOCK // max(self.z.shape[1], 1), 1)
        for start in range(0, len(self.z), size):
            rows = np.arange(start, min(start + size, len(self.z)))
            z = np.array(self.z[rows], np.float64, order="C")
            own = self.labels.take(rows)
            if self.multilabel:
                yield np.where(own.matrix(z.shape[1]), -z, z)
            else:
                yield z - np.take_along_axis(z, own.labels[:, None], axis=1)
