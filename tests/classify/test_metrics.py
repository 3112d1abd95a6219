"""Evaluation against scikit-learn's metrics."""

import json
import warnings

import numpy as np
import pytest
from sklearn import metrics

from hashembed import TextClassifier
from hashembed.classify.metrics import evaluate_answers
from hashembed.engine.labels import Labels


def random_labels(rng, n, classes, multilabel):
    if not multilabel:
        return Labels.single(rng.integers(0, classes, n))
    matrix = rng.random((n, classes)) < 0.3
    rows, columns = np.nonzero(matrix)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return Labels(columns.astype(np.int64), offsets.astype(np.int64))


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize(("n", "classes"), [(1, 2), (50, 3), (1000, 40), (7, 20)])
def test_as_scikit_learn_counts(n, classes, multilabel):
    rng = np.random.default_rng(n)
    truth, answers = (random_labels(rng, n, classes, multilabel) for _ in range(2))
    result = evaluate_answers(truth, answers.matrix(classes), list(range(classes)), multilabel)
    y, p = truth.matrix(classes), answers.matrix(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = metrics.precision_recall_fscore_support(y, p, zero_division=0)
        micro = metrics.f1_score(y, p, average="micro", zero_division=0)
    for got, expected in zip(
        (result.precision, result.recall, result.f1, result.truly), want, strict=True
    ):
        np.testing.assert_allclose(got, expected)
    assert result.accuracy == pytest.approx(metrics.accuracy_score(y, p))
    assert result.micro_f1 == pytest.approx(micro)
    occurs = y.any(axis=0) | p.any(axis=0)
    assert result.macro_f1 == pytest.approx(want[2][occurs].mean() if occurs.any() else 0)
    if not multilabel:
        expected = metrics.confusion_matrix(truth.labels, answers.labels, labels=range(classes))
        assert np.array_equal(result.confusion, expected)
    json.dumps(result.to_dict())


def test_labels_that_the_model_does_not_know_are_wrong(tmp_path):
    clf = TextClassifier(passes=5, batch_size=2).fit(["good", "bad"] * 5, ["+", "-"] * 5)
    result = clf.evaluate(["good", "bad", "good", "so so"], ["+", "-", "-", "?"])
    assert result.classes == ["+", "-", "?"]
    assert result.accuracy == 0.5
    assert result.recall.tolist() == [1, 0.5, 0]
    assert clf.score(["good", "so so"], ["+", "?"]) == 0.5
    assert clf.score(["good", "so so"], ["+", "?"], sample_weight=[3, 1]) == 0.75
    result.plot(tmp_path / "confusion.png")
    several = TextClassifier(batch_size=2).fit(["good", "bad"] * 5, [["+"], ["-"]] * 5)
    several.evaluate(["good"], [["+"]]).plot(tmp_path / "f1.svg")
    assert {p.name for p in tmp_path.iterdir()} == {"confusion.png", "f1.svg"}
    with pytest.raises(ValueError, match="found lists of labels, but the model was"):
        clf.evaluate(["good"], [["+"]])
    with pytest.raises(ValueError, match="found 1 texts, but 2 labels"):
        clf.evaluate(["good"], ["+", "-"])
