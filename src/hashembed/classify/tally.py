"""What an evaluation counts. The tallies of parts of the texts add up to that of all texts.

Counts are whole numbers, and sums of floats are exact, so that an evaluation does not depend on how
the texts were divided, nor on the order of the parts.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.classify.calibration import Reliable
from hashembed.classify.metrics import Evaluation
from hashembed.core.arrays import F32, F64, I64, Bools
from hashembed.core.exact_sum import ExactSum, merged
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_losses

COLUMNS = 16  # classes whose probabilities are copied at a time: one by one takes longer
UNKNOWN = 1e-6  # what the probability of a label counts as that the model does not know
MOST_SCORES = 1 << 26  # probabilities that are held; of more, only rounded ones are counted
ROUNDED = 15  # bits of a float32 that rounding drops: its mantissa keeps 8

_NONE: I64 = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of right and wrong answers, for some texts. Unknown classes come last."""

    classes: list[Any]
    known: int  # classes that the model knows: the first of `classes`
    multilabel: bool
    threshold: float | None
    top: int | None
    texts: int
    right: int
    answered: int
    truly: I64  # (C,), texts that have the class
    said: I64  # (C,), texts to which the model gave the class
    hits: I64  # (C,), texts with both
    confusion: I64 | None  # (C, C), truth by answer
    loss: ExactSum
    scores: "Scores"
    reliable: Reliable

    def __add__(self, other: "Tally") -> "Tally":
        """The tally of both parts."""
        for name in ("known", "multilabel", "threshold", "top"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"tallies of different kinds: {name} differs")
        strange = sorted({*self.classes[self.known :], *other.classes[other.known :]})
        one, two = self._widened(strange), other._widened(strange)
        both = None
        if one.confusion is not None and two.confusion is not None:
            both = one.confusion + two.confusion
        return replace(
            one,
            texts=one.texts + two.texts,
            right=one.right + two.right,
            answered=one.answered + two.answered,
            truly=one.truly + two.truly,
            said=one.said + two.said,
            hits=one.hits + two.hits,
            confusion=both,
            loss=merged([one.loss], [two.loss])[0],
            scores=one.scores + two.scores,
            reliable=one.reliable + two.reliable,
        )

    def _widened(self, strange: list[Any]) -> "Tally":
        """The same with these classes after the known ones."""
        place = {c: self.known + i for i, c in enumerate(strange)}
        rows = [*range(self.known), *(place[c] for c in self.classes[self.known :])]
        size = self.known + len(strange)

        def spread(counts: I64) -> I64:
            out = np.zeros(size, np.int64)
            out[rows] = counts
            return out

        confusion = None
        if self.confusion is not None:
            confusion = np.zeros((size, size), np.int64)
            confusion[np.ix_(rows, rows)] = self.confusion
        return replace(
            self,
            classes=[*self.classes[: self.known], *strange],
            truly=spread(self.truly),
            said=spread(self.said),
            hits=spread(self.hits),
            confusion=confusion,
        )

    def evaluation(self) -> Evaluation:
        """The measures."""
        precision = self.truly / max(self.texts, 1)  # of a class that the model does not know
        precision[: self.known] = self.scores.average_precision(self.known)
        return Evaluation(
            classes=self.classes,
            texts=self.texts,
            right=self.right,
            truly=self.truly,
            said=self.said,
            hits=self.hits,
            confusion=self.confusion,
            answered=self.answered,
            known=self.known,
            log_loss=float(self.loss) / max(self.texts, 1),
            average_precision=precision,
            reliability=self.reliable.reliability(),
            threshold=self.threshold,
            top=self.top,
        )


def tally_answers(
    truth: Labels,
    answers: Bools,
    classes: list[Any],
    multilabel: bool,
    *,
    logits: F32,
    probabilities: F32,
    threshold: float | None = None,
    top: int | None = None,
) -> Tally:
    """Compare answers (texts, classes of the model) with the truth, which may have more classes.

    logits, probabilities: of the same texts and classes; they do not depend on the limits below.
    threshold, top: how the answers were chosen, for the record.
    """
    size, known = len(classes), answers.shape[1]
    wanted, given = truth.matrix(size), _widened(answers, size)
    confusion = None
    if not multilabel and threshold is None and top in (None, 1):
        cells = truth.labels * size + given.argmax(axis=1)
        confusion = np.bincount(cells, minlength=size * size).reshape(size, size)
    return Tally(
        classes=classes,
        known=known,
        multilabel=multilabel,
        threshold=threshold,
        top=top,
        texts=len(answers),
        right=int(right_texts(truth, answers, size, multilabel).sum()),
        answered=int(given.any(axis=1).sum()),
        truly=wanted.sum(axis=0),
        said=given.sum(axis=0),
        hits=(wanted & given).sum(axis=0),
        confusion=confusion,
        loss=ExactSum().add(text_losses(truth, logits, multilabel)),
        scores=Scores.of(wanted[:, :known], probabilities),
        reliable=_reliable(wanted, logits, probabilities, multilabel),
    )


def evaluate_answers(*parts: Any, **options: Any) -> Evaluation:
    """The measures of some answers; the arguments are those of `tally_answers`."""
    return tally_answers(*parts, **options).evaluation()


def right_texts(truth: Labels, answers: Bools, size: int, multilabel: bool) -> Bools:
    """Which texts (n,) are answered right; `size` is the number of classes in the truth.

    A multi-label answer must have exactly the right classes. With one class per text, the class
    must be among the answers, of which there may be several or none.
    """
    given = _widened(answers, size)
    if multilabel:
        return np.asarray((truth.matrix(size) == given).all(axis=1))
    return given[np.arange(len(given)), truth.labels]


def text_losses(truth: Labels, logits: F32, multilabel: bool) -> F64:
    """Of each text: -log(probability of the truth), which may have more classes.

    The probability of several labels is that of exactly these labels: of having them, and of not
    having the others. A label that the model does not know counts as one in a million, as a class
    does that a text without words cannot have.
    """
    losses = np.empty(len(logits))
    if len(logits) == 0:
        return losses
    known = truth.labels < logits.shape[1]
    rows = np.repeat(np.arange(len(truth)), np.diff(truth.offsets))
    strange = np.bincount(rows[~known], minlength=len(truth))
    counts = np.bincount(rows[known], minlength=len(truth))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    labels = np.ascontiguousarray(truth.labels[known])
    fill_losses(np.ascontiguousarray(logits), labels, offsets, multilabel, losses)
    if not multilabel:
        losses[strange > 0] = 0.0
    return np.asarray(losses - strange * math.log(UNKNOWN))


@dataclass(frozen=True, eq=False)
class Scores:
    """Probabilities of texts and classes, for the average precision.

    parts: probabilities (n, known), and which texts have the class, while they are few. counts: of
        (class, rounded probability, whether the text has the class), in one number, for more.
    """

    total: int
    parts: tuple[tuple[F32, Bools], ...] = ()
    counts: tuple[I64, I64] = field(default_factory=lambda: (_NONE, _NONE))  # codes, how often

    @classmethod
    def of(cls, wanted: Bools, probabilities: F32) -> "Scores":
        """Those of some texts."""
        return cls(probabilities.size, ((probabilities, wanted),))._bounded()

    def __add__(self, other: "Scores") -> "Scores":
        total, parts = self.total + other.total, self.parts + other.parts
        return Scores(total, parts, _added([self.counts, other.counts]))._bounded()

    def _bounded(self) -> "Scores":
        if self.total <= MOST_SCORES:
            return self
        return Scores(self.total, (), _added([self.counts, *map(_rounded, self.parts)]))

    def average_precision(self, known: int) -> F64:
        """Of each class that the model knows, see `average_precision`."""
        if not len(self.counts[0]):
            chances = [p for p, _ in self.parts] or [np.empty((0, known), np.float32)]
            has = [wanted for _, wanted in self.parts] or [np.empty((0, known), np.bool_)]
            return average_precision(np.concatenate(has), np.concatenate(chances))
        codes, counts = self.counts
        of_class, own = codes >> 32, counts * (codes & 1)
        out = np.zeros(known)
        for c in range(known):
            rows = slice(*np.searchsorted(of_class, [c, c + 1]))
            levels, last = np.unique(codes[rows] >> 1, return_index=True)
            said = np.add.reduceat(counts[rows], last) if len(levels) else _NONE
            hits = np.add.reduceat(own[rows], last) if len(levels) else _NONE
            said_above, hits_above = said[::-1].cumsum()[::-1], hits[::-1].cumsum()[::-1]
            if hits.sum():
                out[c] = (hits * (hits_above / np.maximum(said_above, 1))).sum() / hits.sum()
        return out


def _rounded(part: tuple[F32, Bools]) -> tuple[I64, I64]:
    """Codes of (class, rounded probability, whether the text has the class), and how often."""
    p, wanted = part
    found = []
    size = max(MOST_SCORES // 64 // max(p.shape[1], 1), 1)
    for start in range(0, len(p), size):
        rows = slice(start, start + size)
        bits = np.ascontiguousarray(p[rows], np.float32).view(np.uint32).astype(np.int64)
        codes = np.arange(p.shape[1]) << 32 | (bits >> ROUNDED) << 1 | wanted[rows]
        found.append(np.unique(codes, return_counts=True))
    return _added(found)


def _added(parts: list[tuple[I64, I64]]) -> tuple[I64, I64]:
    """The counts of all parts together."""
    codes, where = np.unique(np.concatenate([c for c, _ in parts] or [_NONE]), return_inverse=True)
    counts = np.zeros(len(codes), np.int64)
    np.add.at(counts, where, np.concatenate([n for _, n in parts] or [_NONE]))
    return codes, counts


def average_precision(wanted: Bools, probabilities: F32) -> F64:
    """Of each class: the mean, over its texts, of the precision at their probabilities.

    That is the area below the steps of precision over recall, as scikit-learn computes it. A class
    that the model does not know has the probability 0 everywhere; a class without texts gets 0.
    """
    known = probabilities.shape[1]
    out = wanted.mean(axis=0) if len(wanted) else np.zeros(wanted.shape[1])
    for start in range(0, known, COLUMNS):
        chosen = slice(start, min(start + COLUMNS, known))
        columns = zip(probabilities[:, chosen].T.copy(), wanted[:, chosen].T.copy(), strict=True)
        for c, (p, has) in enumerate(columns, start):
            own, everything = np.sort(p[has]), np.sort(p)
            found = len(own) - np.searchsorted(own, own)  # texts of the class at least as probable
            said = len(p) - np.searchsorted(everything, own)
            out[c] = (found / said).mean() if len(own) else 0.0
    return out


def _reliable(wanted: Bools, logits: F32, p: F32, multilabel: bool) -> Reliable:
    """A multi-label model is judged by the labels that it knows."""
    if multilabel:
        return Reliable.of(p, wanted[:, : p.shape[1]], True)
    if len(p) == 0:
        return Reliable.of(np.empty(0), np.empty(0, np.bool_), False)
    texts, likeliest = np.arange(len(p)), logits.argmax(axis=1)
    return Reliable.of(p[texts, likeliest], wanted[texts, likeliest], False)


def _widened(answers: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.bool_]:
    """Answers padded to `size` classes, which the model never gives."""
    out = np.zeros((len(answers), size), np.bool_)
    out[:, : answers.shape[1]] = answers
    return out
