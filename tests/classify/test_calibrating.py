"""Calibration after training: rows left out, temperatures, thresholds, and who is spared them."""

import copy

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.classify.calibrating import (
    MOST_ROWS,
    Calibration,
    best_threshold,
    leaving_rows_out,
)
from hashembed.classify.targets import encode
from hashembed.engine.ensemble import Ensemble, member_seeds
from hashembed.engine.labels import Labels
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec

WORDS = ["good", "fine", "bad", "poor", "film", "book", "song", "the", "a", "very"]


def reviews(n, noise=0.3, seed=0):
    """Texts whose label is often, but not always, what their first word says.

    The other words can only be learned by heart.
    """
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, n)
    texts = [
        " ".join([WORDS[f], *(f"w{i}" for i in rng.integers(0, 5_000, 5))]) for f in first.tolist()
    ]
    wrong = rng.random(n) < noise
    return texts, np.where((first < 2) ^ wrong, "+", "-").tolist()


def tags(n, seed=0):
    """Texts with several labels that are never likely: a word makes a label a third likely."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        words = rng.choice(len(WORDS), 3, replace=False)
        rare = [f"w{i}" for i in rng.integers(0, 5_000, 3)]
        texts.append(" ".join([WORDS[w] for w in words] + rare))
        labels.append([f"tag {w}" for w in words if rng.random() < 0.4])
    return texts, labels


def ensemble(members, classes=2):
    seeds = member_seeds(0, members)
    return Ensemble([ShallowModel(HashSpec(64, 16, seed=s), 4, classes, seed=s) for s in seeds])


def test_every_member_leaves_out_other_rows():
    model = ensemble(4)
    with leaving_rows_out(model, 2_000, 7) as rows:
        assert [len(own) for own in rows] == [60] * 4
        assert len(np.unique(np.concatenate(rows))) == 240
        assert model.left_out is rows
    with leaving_rows_out(ensemble(4), 2_000, 7) as again:
        assert all((a == b).all() for a, b in zip(rows, again, strict=True))


def test_rows_are_left_out_within_limits():
    with leaving_rows_out(ensemble(4), 10**6, 0) as rows:
        assert sum(map(len, rows)) == MOST_ROWS
    with leaving_rows_out(ensemble(4), 400, 0) as rows:
        assert rows == []  # 48 are too few
    with leaving_rows_out(ensemble(4).members[0], 10**6, 0) as rows:
        assert rows == []


def test_after_an_interrupted_training_all_rows_count_again():
    texts, labels = reviews(2_000)

    def interrupt(progress):
        raise KeyboardInterrupt

    clf = TextClassifier(members=2, passes=1, effort="fast")
    with pytest.raises(KeyboardInterrupt):
        clf.fit(texts, labels, callbacks=[interrupt])
    assert not clf.model_.left_out
    clf.partial_fit(texts[:3], labels[:3])


def test_a_member_does_not_learn_from_rows_it_leaves_out():
    """What it leaves out can have any label."""
    rng = np.random.default_rng(3)
    bags = Bags(rng.integers(-(2**62), 2**62, 60), np.arange(0, 61, 3))
    truth = rng.integers(0, 2, 20)
    order, rates = rng.permutation(20), np.full(5, 0.1, np.float32)
    states = []
    for changed in (False, True):
        model = ensemble(2)
        model.left_out = [np.array([3, 8]), np.array([11])]
        labels = truth.copy()
        if changed:
            labels[[3, 8]] ^= 1
        losses = model.train(bags, Labels.single(labels), order, rates, batch_size=4)
        assert losses.shape == (20,)
        states.append(copy.deepcopy(model.state()))
    same = {name for name in states[0] if (states[0][name] == states[1][name]).all()}
    assert same >= {name for name in states[0] if name.startswith("0.")}
    assert not same & {"1.E", "1.W", "1.bias"}


def test_the_loss_is_a_mean_over_rows_that_were_trained_on():
    bags = Bags(np.arange(40), np.arange(0, 41, 2))
    labels = Labels.single(np.zeros(20, np.int64))
    rates = np.full(1, 1e-9, np.float32)
    order = np.arange(20)[::-1].copy()
    plain = ensemble(2).train(bags, labels, order, rates, batch_size=20).mean()
    model = ensemble(2)
    model.left_out = [np.arange(5), np.arange(5, 12)]
    assert model.train(bags, labels, order, rates, batch_size=20).mean() == pytest.approx(
        plain, rel=0.02
    )


@pytest.mark.parametrize("multilabel", [False, True])
def test_probabilities_are_calibrated(multilabel):
    texts, labels = (tags if multilabel else reviews)(4_000)
    more, truth = (tags if multilabel else reviews)(4_000, seed=1)
    options = {"members": 3, "passes": 8, "ngrams": (1, 1), "effort": "fast", "learning_rate": 0.5}
    clf = TextClassifier(**options).fit(texts, labels)
    found = clf.calibration_
    assert found.rows == 360
    scaled = clf.evaluate(more, truth)
    clf.model_.scale_logits(found.temperature)  # as it was
    plain = clf.evaluate(more, truth)
    assert scaled.log_loss < plain.log_loss
    assert scaled.reliability.error < plain.reliability.error / 2


def test_validation_rows_calibrate_a_single_model():
    texts, labels = reviews(1_500)
    options = {"members": 1, "passes": 10, "effort": "fast", "learning_rate": 1.0, "ngrams": (1, 1)}
    plain = TextClassifier(**options).fit(texts, labels)
    assert plain.calibration_ is None
    clf = TextClassifier(**options).fit(texts, labels, validation=reviews(500, seed=1))
    assert clf.calibration_.rows == 500
    more = reviews(2_000, seed=2)
    assert clf.evaluate(*more).log_loss < plain.evaluate(*more).log_loss


def test_class_weights_are_not_calibrated_away():
    texts, labels = reviews(2_000)
    clf = TextClassifier(members=2, passes=1, effort="fast", class_weight="balanced")
    assert clf.fit(texts, labels).calibration_ is None


def test_thresholds_make_better_answers():
    texts, labels = tags(4_000)
    clf = TextClassifier(members=3, passes=3, effort="fast", ngrams=(1, 1)).fit(texts, labels)
    assert clf.threshold_ == clf.calibration_.threshold < 0.5
    more = tags(3_000, seed=1)
    best, usual = clf.evaluate(*more), clf.evaluate(*more, threshold=0.5)
    assert best.micro_f1 > usual.micro_f1 + 0.05
    assert clf.predict(more[0]).tolist() == clf.predict(more[0], threshold=clf.threshold_).tolist()


def test_the_best_threshold():
    truth = encode([["a"], ["a"], [], ["b"]], np.array(["a", "b"]), "lists").labels
    chances = np.array([[0.31, 0.1], [0.45, 0.2], [0.2, 0.1], [0.1, 0.6]])
    z = np.log(chances / (1 - chances)).astype(np.float32)
    assert 0.2 < best_threshold(z, truth, "accuracy") < 0.31
    assert best_threshold(z, truth, "accuracy") == 0.3  # of those, the closest to a half


def test_saved_and_loaded(tmp_path):
    texts, labels = tags(2_000)
    clf = TextClassifier(members=2, passes=1, effort="fast").fit(texts, labels)
    clf.save(tmp_path / "m")
    loaded = TextClassifier.load(tmp_path / "m")
    assert loaded.calibration_ == clf.calibration_
    assert loaded.threshold_ == clf.threshold_


@pytest.mark.parametrize(
    "bad",
    [{"threshold": 1.0}, {"threshold": 0}, {"temperature": -1.0}, {"rows": 1.5}, {"rows": None}],
)
def test_a_damaged_calibration_is_refused(bad):
    good = {"temperature": 1.2, "threshold": 0.3, "rows": 100}
    assert Calibration.from_dict(good).to_dict() == good
    with pytest.raises((TypeError, ValueError)):
        Calibration.from_dict(good | bad)
