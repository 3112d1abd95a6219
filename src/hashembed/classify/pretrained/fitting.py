"""Fits the part of a classifier that uses pretrained vectors, beside its trained n-grams."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hashembed.classify.pretrained.mixing import Mix, choose_mix, total_loss
from hashembed.classify.pretrained.part import VectorPart, coded
from hashembed.classify.pretrained.regression import Linear, Problem, fit_logistic
from hashembed.classify.pretrained.sources import model_of, unit_means
from hashembed.core.arrays import F32, I64
from hashembed.engine.labels import Labels
from hashembed.vectors.model import VectorModel

PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)  # from strong to weak: each starts from the last
FOLDS = 5
MOST_IN_FOLDS = 3_000  # rows; of more, some are held out once
MOST_HELD_OUT = 2_000
MOST_TRUTHS = 500_000  # rows times classes that the layer on top learns from

# Trains the n-grams on some rows -> the logits of others.
TrainNGrams = Callable[[I64, I64], F32]


@dataclass(frozen=True)
class Features:
    """Vectors, and the features of texts: to train on (n, d), and held out for validation."""

    model: VectorModel
    X: F32
    held: F32 | None = None

    @classmethod
    def of(cls, source: Any, texts: Any, threads: int | None) -> "Features":
        """The features of texts, from `WordVectors` or a file of them."""
        model = coded(model_of(source, threads))
        return cls(model, unit_means(model, texts))

    def divided(self, kept: I64, held: I64) -> "Features":
        """With some rows held out."""
        return Features(self.model, self.X[kept], self.X[held])

    @property
    def in_folds(self) -> bool:
        """Whether all rows are held out in turn."""
        return self.held is None and len(self.X) <= MOST_IN_FOLDS


@dataclass(frozen=True)
class Rows:
    """What to learn: features (n, d), labels and weights of the training rows."""

    X: F32
    labels: Labels
    weights: F32 | None
    classes: int
    multilabel: bool
    seed: int
    threads: int | None

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: I64) -> "Rows":
        """Some of them."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, X=self.X[rows], labels=self.labels.take(rows), weights=weights)

    def problem(self) -> Problem:
        """For logistic regression: all rows, or a sample of very many."""
        most = max(MOST_TRUTHS // self.classes, MOST_HELD_OUT)
        if len(self) > most:
            return self.take(np.sort(self.shuffled()[:most])).problem()
        truth = self.labels.matrix(self.classes)
        return Problem.of(self.X, truth, self.weights, self.multilabel, self.threads)

    def shuffled(self) -> I64:
        """The numbers of the rows in random order."""
        rng = np.random.default_rng([self.seed & (2**63 - 1), 0x7EC])
        return np.asarray(rng.permutation(len(self)), np.int64)


@dataclass(frozen=True)
class HeldOut:
    """Rows that were not trained on, and their logits of n-grams."""

    X: F32
    labels: Labels
    ngrams: F32
    weights: F32 | None = None


@dataclass(frozen=True)
class Fitted:
    """The layer on top, the mix, and the mixed logits of the rows that decided."""

    layer: Linear
    mix: Mix
    logits: F32
    labels: Labels


def folds_of(rows: Rows) -> list[I64]:
    """Rows to hold out, part by part: all of them in turn, or some of very many.

    With one class a row, each part has its share of every class.
    """
    order = rows.shuffled()
    if len(rows) > MOST_IN_FOLDS:
        return [np.sort(order[: min(MOST_HELD_OUT, len(rows) // FOLDS)])]
    if not rows.multilabel:
        order = order[np.argsort(rows.labels.labels[order], kind="stable")]
    return [np.sort(order[i::FOLDS]) for i in range(min(FOLDS, len(rows)))]


def fit_in_folds(rows: Rows, train: TrainNGrams) -> Fitted:
    """Choose by models that are trained on a part of the rows."""
    folds = folds_of(rows)
    everything, ngrams, found = np.arange(len(rows)), list[F32](), list[list[F32]]()
    for fold in folds:
        kept = np.delete(everything, fold)
        ngrams.append(train(kept, fold))
        found.append(_path(rows.take(kept), rows.X[fold]))
    together = rows.take(np.concatenate(folds))
    logits = [np.concatenate(of_fold) for of_fold in zip(*found, strict=True)]
    best = int(np.argmin([_loss(z, together) for z in logits]))
    known, weights = together.labels, together.weights
    own = np.concatenate(ngrams)
    mix = choose_mix(own, logits[best], known, rows.multilabel, weights)
    return Fitted(_final(rows, best), mix, mix(own, logits[best]), known)


def fit_with_held_out(rows: Rows, held: HeldOut) -> Fitted:
    """Choose by rows that the n-grams were not trained on."""
    logits = _path(rows, held.X)
    judge = replace(rows, X=held.X, labels=held.labels, weights=held.weights)
    best = int(np.argmin([_loss(z, judge) for z in logits]))
    mix = choose_mix(held.ngrams, logits[best], held.labels, rows.multilabel, held.weights)
    return Fitted(_final(rows, best), mix, mix(held.ngrams, logits[best]), held.labels)


def part_of(features: Features, found: Fitted) -> VectorPart | None:
    """The part as it is added to the logits of n-grams; None if it would not help."""
    layer, mix = found.layer, found.mix
    if not mix.share:
        return None
    scaled = Linear(layer.W * mix.vectors, layer.bias * mix.vectors)
    return VectorPart(features.model, scaled, mix.share)


def _path(rows: Rows, X: F32) -> list[F32]:
    """The logits of features X, for each penalty."""
    problem, found, layer = rows.problem(), list[F32](), None
    for penalty in PENALTIES:
        layer = fit_logistic(problem, penalty, layer)
        found.append(layer(X, rows.threads))
    return found


def _final(rows: Rows, best: int) -> Linear:
    return fit_logistic(rows.problem(), PENALTIES[best])


def _loss(z: F32, rows: Rows) -> float:
    return total_loss(z, rows.labels, rows.multilabel, rows.weights)
