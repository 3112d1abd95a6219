"""What `TextClassifier.fit` does with pretrained vectors."""

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hashembed.classify.answers import THRESHOLD
from hashembed.classify.calibrating import SURER, Calibration, best_threshold
from hashembed.classify.documents import Documents
from hashembed.classify.pretrained.fitting import (
    Features,
    Fitted,
    HeldOut,
    Rows,
    fit_in_folds,
    fit_with_held_out,
    part_of,
)
from hashembed.classify.pretrained.sources import unit_means
from hashembed.classify.targets import Targets
from hashembed.classify.trained import TrainedClassifier
from hashembed.core.arrays import F32, I64
from hashembed.core.wording import given
from hashembed.engine.defaults import TrainConfig
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.loop import fit


@dataclass(frozen=True)
class Trained:
    """A classifier whose n-grams are trained, how, and on what."""

    clf: TrainedClassifier
    config: TrainConfig
    train: Documents
    held_out: Documents | None
    left_out: list[I64]  # rows that a member was not trained on, for each of them


def features_of(
    clf: TrainedClassifier, texts: Any, targets: Targets, validation: tuple[Any, Any] | None
) -> Features:
    """The features of all texts, those for validation included."""
    if targets.multilabel and clf.class_weight is not None:
        raise ValueError(
            f"{given('pretrained')} and {given('class_weight')} exclude each other for texts with "
            "several labels: leave one of them out"
        )
    features = Features.of(clf.pretrained, texts, clf.threads)
    if validation is None:
        return features
    return replace(features, held=unit_means(features.model, validation[0]))


def add_vectors(run: Trained, features: Features) -> None:
    """Add the part with vectors to the trained model, and bring both to their best scales."""
    clf = run.clf
    rows = Rows(
        features.X,
        run.train.labels,
        run.train.weights,
        len(clf.classes_),
        clf.engine_plan_.multilabel,
        clf.seed,
        clf.threads,
    )
    # Single members are less sure than their mean, which the model gives.
    single = isinstance(clf.model_, Ensemble) and run.held_out is None
    found = _fitted(run, rows, features)
    mix, sureness = found.mix, SURER if single else 1.0
    clf.model_.scale_logits(mix.ngrams / sureness)
    clf.vectors_ = part_of(features, found)
    if clf.class_weight is None:
        threshold = THRESHOLD
        if rows.multilabel:
            threshold = best_threshold(found.logits, found.labels, clf.metric)
        clf.calibration_ = Calibration(mix.temperature * sureness, threshold, mix.rows)
    if clf.verbose:
        print(f"Pretrained vectors: {mix.share:.0%} of the logits.", file=sys.stderr)


def _fitted(run: Trained, rows: Rows, features: Features) -> Fitted:
    """By validation rows, by rows that members left out, or by training on parts of the rows."""
    model, bags, left_out = run.clf.model_, run.train.bags, run.left_out
    if run.held_out is not None:
        assert features.held is not None
        held, ngrams = run.held_out, model.scores(run.held_out.bags)
        return fit_with_held_out(rows, HeldOut(features.held, held.labels, ngrams, held.weights))
    if left_out and isinstance(model, Ensemble):
        parts = zip(model.members, left_out, strict=True)
        ngrams = np.concatenate([member.scores(bags.take(own)) for member, own in parts])
        out = np.concatenate(left_out)
        judge = rows.take(out)
        held_out = HeldOut(judge.X, judge.labels, ngrams, judge.weights)
        return fit_with_held_out(rows.take(np.delete(np.arange(len(rows)), out)), held_out)
    return fit_in_folds(rows, lambda kept, held: _trained_on(run, kept, held))


def _trained_on(run: Trained, kept: I64, held: I64) -> F32:
    """The logits of some rows, by a single member that is trained on others."""
    clf, documents = run.clf, run.train.take(kept)
    member = replace(clf.engine_plan_, members=1).make(len(clf.classes_), clf.threads)
    config = replace(run.config, patience=None)
    fit(member, documents.bags, documents.labels, config, weights=documents.weights)
    return member.scores(run.train.bags.take(held))
