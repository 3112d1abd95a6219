"""Trials are scored as the model is trained: with the weights of texts and classes."""

import numpy as np
import pytest
from sklearn import metrics

from hashembed import TextClassifier
from hashembed.classify.choose.trial import (
    METRICS,
    TEMPERATURES,
    THRESHOLDS,
    Score,
    mean_score,
    score,
)
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import to_probabilities

CLASSES = 4


def logits(n, seed=0):
    """Logits with ties, so that equal probabilities occur."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, CLASSES)).round(1).astype(np.float32)


def labels(n, multilabel, class_weights=None):
    rng = np.random.default_rng(1)
    if not multilabel:
        return Labels.single(rng.integers(0, CLASSES - 1, n))  # the last class never occurs
    counts = rng.integers(0, 3, n)
    found = [np.sort(rng.choice(CLASSES, count, replace=False)) for count in counts]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
    return Labels(numbers, offsets.astype(np.int64), class_weights)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("n", [1, 2, 50])
def test_a_weight_is_a_number_of_copies(metric, multilabel, n):
    z, truth = logits(n), labels(n, multilabel)
    times = np.random.default_rng(2).integers(0, 4, n)
    times[0] = 2
    copies = np.repeat(np.arange(n), times)
    want = score(z[copies], truth.take(copies), multilabel, metric)
    found = score(z, truth, multilabel, metric, times.astype(np.float32))
    assert (found.error, found.loss) == pytest.approx((want.error, want.loss), abs=1e-9)
    tiny = score(z, truth, multilabel, metric, times.astype(np.float32) * np.float32(2**-30))
    assert (tiny.error, tiny.loss) == pytest.approx((found.error, found.loss), abs=1e-9)
    alike = score(z, truth, multilabel, metric, np.ones(n, np.float32))
    plain = score(z, truth, multilabel, metric)
    assert (alike.error, alike.loss) == pytest.approx((plain.error, plain.loss), abs=1e-9)


def test_as_in_scikit_learn():
    n = 60
    z, truth = logits(n), labels(n, False)
    weights = np.random.default_rng(3).random(n).astype(np.float32)
    y, said = truth.labels, z.argmax(axis=1)
    p = to_probabilities(z, False)  # has the same ties
    options = {"sample_weight": weights}
    precisions = [
        metrics.average_precision_score(y == c, p[:, c], **options) for c in range(CLASSES - 1)
    ]
    f1 = metrics.f1_score(y, said, average="macro", labels=range(CLASSES), **options)
    for metric, want in {
        "accuracy": metrics.accuracy_score(y, said, **options),
        "f1": f1,
        "average_precision": np.mean(precisions),
    }.items():
        assert 1 - score(z, truth, False, metric, weights).error == pytest.approx(want, abs=1e-6)
    losses = []
    for t in TEMPERATURES:
        softer = np.exp(z / t) / np.exp(z / t).sum(axis=1, keepdims=True)
        losses.append(metrics.log_loss(y, softer, labels=range(CLASSES), **options))
    assert score(z, truth, False, "log_loss", weights).loss == pytest.approx(min(losses), abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_of_several_labels(weighted):
    """One answer at a time: the weight of yes, of no, and of the text."""
    n = 40
    given = np.random.default_rng(4).random((2, CLASSES)).astype(np.float32)
    z, truth = logits(n), labels(n, True, given)
    weights = np.random.default_rng(5).random(n).astype(np.float32) if weighted else None
    own = np.ones(n) if weights is None else weights.astype(np.float64)
    has = truth.matrix(CLASSES)
    losses, tried = dict.fromkeys(TEMPERATURES, 0.0), len(THRESHOLDS)
    hits, both = np.zeros((tried, CLASSES)), np.zeros((tried, CLASSES))
    for i in range(n):
        for c in range(CLASSES):
            cell = own[i] * float(given[0 if has[i, c] else 1, c])
            for t in TEMPERATURES:
                p = 1 / (1 + np.exp(-float(z[i, c]) / t))
                losses[t] -= cell * np.log(p if has[i, c] else 1 - p)
            for x, t in enumerate(THRESHOLDS):
                said = 1 / (1 + np.exp(-float(z[i, c]))) > t
                hits[x, c] += cell * (has[i, c] and said)
                both[x, c] += cell * (int(has[i, c]) + int(said))
    want = min(losses.values()) / own.sum()
    found = {metric: score(z, truth, True, metric, weights) for metric in METRICS}
    assert all(one.loss == pytest.approx(want, rel=1e-5) for one in found.values())
    micro, macro = 2 * hits.sum(axis=1) / both.sum(axis=1), np.nanmean(2 * hits / both, axis=1)
    assert found["accuracy"].error == pytest.approx(1 - micro.max())
    assert found["f1"].error == pytest.approx(1 - macro.max())
    precisions = [
        metrics.average_precision_score(
            has[:, c], z[:, c], sample_weight=own * np.where(has[:, c], given[0, c], given[1, c])
        )
        for c in range(CLASSES)
    ]
    assert found["average_precision"].error == pytest.approx(1 - np.mean(precisions), abs=1e-6)


def test_folds_count_by_their_weight():
    folds = [Score(0.1, 1.0), Score(0.5, 3.0), Score(0.0, 0.0)]
    assert mean_score(folds, [3e-9, 1e-9, 0.0]) == Score(pytest.approx(0.2), pytest.approx(1.5))
    assert mean_score(folds, [0.0, 0.0, 0.0]) == Score(0.0, 0.0)


def test_a_fold_without_weight_has_a_score():
    for metric in METRICS:
        for multilabel in (False, True):
            nothing = np.zeros(9, np.float32)
            found = score(logits(9), labels(9, multilabel), multilabel, metric, nothing)
            assert np.isfinite([found.error, found.loss]).all()


def clear_and_noisy(n):
    """Texts whose first word tells the label; every second label is wrong at random."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, n)
    texts = [f"w{label} x{rng.integers(0, 9)}" for label in truth]
    noisy = np.arange(n) % 2 == 1
    return texts, np.where(noisy, (truth + 1 + rng.integers(0, 2, n)) % 3, truth), noisy


@pytest.mark.parametrize("metric", METRICS)
def test_rows_without_weight_do_not_count_in_the_race(metric):
    texts, given, noisy = clear_and_noisy(400)
    weights = np.where(noisy, 0.0, 1.0)
    search = TextClassifier(metric=metric).fit(texts, given, weights).search_
    for trial in search.trials:
        assert trial.scores[-1].error < 0.05
        assert trial.held_out == 400


def test_class_weights_count_in_the_race():
    """The class "?" has the same words as the others, and no weight."""
    texts, _, noisy = clear_and_noisy(400)
    given = np.where(noisy, "?", [text.split()[0] for text in texts])
    search = TextClassifier(class_weight={"?": 0.0}).fit(texts, given).search_
    assert all(trial.scores[-1].error < 0.05 for trial in search.trials)
    several = [[t.split()[0], *("?",) * int(odd)] for t, odd in zip(texts, noisy, strict=True)]
    search = TextClassifier(class_weight={"?": 0.0}).fit(texts, several).search_
    assert all(trial.scores[-1].error < 0.05 for trial in search.trials)
