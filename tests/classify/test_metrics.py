"""Evaluation against scikit-learn's metrics."""

import json
import warnings

import numpy as np
import pytest
from sklearn import metrics

from hashembed import TextClassifier
from hashembed.classify.tally import average_precision, evaluate_answers, text_losses
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import to_probabilities


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
    z = rng.standard_normal((n, classes)).astype(np.float32)
    result = evaluate_answers(
        *(truth, answers.matrix(classes), list(range(classes)), multilabel),
        logits=z,
        probabilities=to_probabilities(z, multilabel),
    )
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


# --- probabilities ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 30, 500])
@pytest.mark.parametrize("digits", [0, 1, 2, 7])
def test_average_precision_as_in_scikit_learn(n, digits):
    """Few digits: many ties, and probabilities of exactly 0 and 1."""
    rng = np.random.default_rng(n)
    p = rng.random((n, 5)).round(digits).astype(np.float32)
    wanted = rng.random((n, 5)) < [0.0, 0.1, 0.5, 0.9, 1.0]
    found = average_precision(wanted, p)
    for c in range(5):
        occurs = wanted[:, c].any()
        want = metrics.average_precision_score(wanted[:, c], p[:, c]) if occurs else 0
        assert found[c] == pytest.approx(want, abs=1e-12)


def test_average_precision_of_a_label_that_the_model_does_not_know():
    wanted = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], bool)
    p = np.array([[1, 0], [0, 1], [0.5, 0.5], [1, 0]], np.float32)
    padded = np.pad(p, [(0, 0), (0, 1)])
    want = metrics.average_precision_score(wanted, padded, average=None)
    np.testing.assert_allclose(average_precision(wanted, p), want)


@pytest.mark.parametrize("scale", [0.1, 1, 5])  # scikit-learn clips at 2^-52
def test_log_loss_as_in_scikit_learn(scale):
    rng = np.random.default_rng(0)
    z = (rng.standard_normal((300, 4)) * scale).astype(np.float32)
    truth = random_labels(rng, 300, 4, False)
    exact = to_probabilities(z.astype(np.float64), False)
    want = metrics.log_loss(truth.labels, exact, labels=range(4))
    assert text_losses(truth, z, False).mean() == pytest.approx(want)
    several = random_labels(rng, 300, 4, True)
    exact = to_probabilities(z.astype(np.float64), True)
    columns = [
        metrics.log_loss(several.matrix(4)[:, c], exact[:, c], labels=[0, 1]) for c in range(4)
    ]
    assert text_losses(several, z, True).mean() == pytest.approx(sum(columns))


def test_log_loss_is_finite():
    """Of what the model held for impossible, and of labels that it does not know."""
    z = np.array([[0, -1e4], [5, 5], [0, 0]], np.float32)
    unknown = np.log(1e6)
    found = text_losses(Labels.single([1, 0, 2]), z, False).mean()
    assert found == pytest.approx((1e4 + np.log(2) + unknown) / 3)
    several = Labels(np.array([0, 2, 3, 1]), np.array([0, 1, 3, 4]))
    z = np.array([[0, 0], [-800, -800], [0, 800]], np.float32)
    found = text_losses(several, z, True).mean()
    assert found == pytest.approx((2 * np.log(2) + 2 * unknown + np.log(2)) / 3)
    assert len(text_losses(Labels.single([]), np.empty((0, 2), np.float32), False)) == 0


@pytest.fixture(scope="module")
def opinions():
    texts = ["good film", "bad film", "so so", "good", "bad", "a film"] * 5
    labels = ["+", "-", "?", "+", "-", "?"] * 5
    return TextClassifier(passes=3, batch_size=4).fit(texts, labels)


def test_probabilities_are_those_of_predict_proba(opinions):
    texts, labels = ["good", "bad film", "so so", "", "film bad"], ["+", "-", "?", "-", "+"]
    result, p = opinions.evaluate(texts, labels), opinions.predict_proba(texts)
    assert result.log_loss == pytest.approx(metrics.log_loss(labels, p), rel=1e-5)
    one_hot = np.array(labels)[:, None] == opinions.classes_
    want = metrics.average_precision_score(one_hot, p, average="macro")
    assert result.macro_average_precision == pytest.approx(want)
    right = p.argmax(axis=1) == [opinions.classes_.tolist().index(label) for label in labels]
    assert result.reliability.counts.sum() == 5
    assert result.reliability.right.sum() == right.sum() == result.right
    limited = opinions.evaluate(texts, labels, top=2)
    for name in ("log_loss", "macro_average_precision", "calibration_error"):
        assert getattr(limited, name) == getattr(result, name)
        assert result.to_dict()[name] == getattr(result, name)
    assert f"log loss {result.log_loss:.4f}   average" in str(result)
    assert f"calibration error {result.calibration_error:.4f}" in result._repr_html_()


def test_a_text_without_words_and_a_class_without_texts():
    """Their probabilities are exactly 1 and 0."""
    clf = TextClassifier(batch_size=2).partial_fit(["good"] * 8, ["+"] * 8, classes=["+", "-"])
    assert clf.predict_proba([""]).tolist() == [[1, 0]]
    result = clf.evaluate(["", ""], ["-", "+"])
    assert result.log_loss == pytest.approx(np.log(1e6) / 2, rel=1e-5)
    assert result.average_precision.tolist() == [0.5, 0.5]
    assert result.calibration_error == 0.5
    assert clf.evaluate([""], ["-"]).calibration_error == 1


def test_probabilities_of_labels_that_the_model_does_not_know(opinions):
    result = opinions.evaluate(["good", "bad"], ["new", "newer"])
    assert result.log_loss == pytest.approx(np.log(1e6))
    assert result.average_precision.tolist() == [0, 0, 0, 0.5, 0.5]
    sure = opinions.predict_proba(["good", "bad"]).max(axis=1)
    assert result.calibration_error == pytest.approx(sure.mean())
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("several", [False, True])
def test_probabilities_of_no_texts_and_of_one_class(several, tmp_path):
    clf = TextClassifier(passes=5, batch_size=2)
    clf.fit(["good", "bad"] * 5, [["+"], []] * 5 if several else ["+"] * 10)
    assert len(clf.classes_) == 1
    none = clf.evaluate([], np.empty(0, str))
    assert (none.texts, none.log_loss, none.calibration_error) == (0, 0, 0)
    assert none.macro_average_precision == 0
    json.dumps(none.to_dict(), allow_nan=False)
    assert "0 texts" in str(none)
    none.plot_reliability(tmp_path / "none.png")
    one = clf.evaluate(["good", ""], [["+"], []] if several else ["+", "+"])
    assert one.macro_average_precision == 1
    assert one.reliability.counts.sum() == 2
    if not several:
        assert (one.log_loss, one.calibration_error) == (0, 0)


def test_blocks_of_texts_change_nothing(monkeypatch, opinions):
    texts, labels = (
        ["good", "", "so so", "bad", "", "film", "x"],
        ["+", "-", "?", "-", "+", "?", "-"],
    )
    whole = opinions.evaluate(texts, labels).to_dict()
    monkeypatch.setattr("hashembed.classify.trained.BLOCK", 6)
    assert opinions.evaluate(texts, labels).to_dict() == whole
