"""Tallies of parts add up to that of the whole, bit for bit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from hashembed import TextClassifier
from hashembed.classify import tally
from hashembed.classify.tally import tally_answers
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import to_probabilities

WORDS = [f"w{i}" for i in range(40)]


def sample(seed, texts=300, classes=4):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(texts, classes)).astype(np.float32)
    return z, rng.integers(classes + 2, size=texts)


def tally_of(z, truth, names):
    """Of some rows; labels from the number of columns on are unknown to the model."""
    known = z.shape[1]
    strange = sorted({*truth[truth >= known].tolist()})
    numbers = np.where(truth < known, truth, known + np.searchsorted(strange, truth))
    classes = [*names, *(f"strange {s}" for s in strange)]
    p = to_probabilities(z, False)
    answers = np.eye(known, dtype=bool)[z.argmax(axis=1)]
    return tally_answers(Labels.single(numbers), answers, classes, False, logits=z, probabilities=p)


def fields(evaluation):
    return evaluation.to_dict()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.lists(st.integers(0, 300), max_size=5), st.randoms())
def test_parts_add_up(seed, cuts, random):
    z, truth = sample(seed)
    names = [f"c{i}" for i in range(z.shape[1])]
    whole = tally_of(z, truth, names).evaluation()
    order = np.random.default_rng(seed).permutation(len(z))
    edges = [0, *sorted(cuts), len(z)]
    parts = [order[a:b] for a, b in pairwise(edges)]
    random.shuffle(parts)
    total = None
    for rows in parts:
        part = tally_of(z[rows], truth[rows], names)
        total = part if total is None else total + part
    assert fields(total.evaluation()) == fields(whole)


def test_rounded_probabilities_of_many_texts(monkeypatch):
    z, truth = sample(1, 4000)
    names = [f"c{i}" for i in range(z.shape[1])]
    exact = tally_of(z, truth, names).evaluation()
    monkeypatch.setattr(tally, "MOST_SCORES", 3000)
    whole = tally_of(z, truth, names)
    assert not whole.scores.parts  # nothing is held
    parts = tally_of(z[:100], truth[:100], names) + tally_of(z[100:], truth[100:], names)
    assert fields(parts.evaluation()) == fields(whole.evaluation())
    found = whole.evaluation()
    np.testing.assert_allclose(found.average_precision, exact.average_precision, atol=2e-3)
    assert (found.average_precision != exact.average_precision).any()
    bits = to_probabilities(z, False).view(np.uint32) >> tally.ROUNDED << tally.ROUNDED
    p = bits.view(np.float32)
    for c in range(z.shape[1]):
        want = average_precision_score(truth == c, p[:, c])
        assert found.average_precision[c] == pytest.approx(want, abs=1e-12)


def test_different_kinds_do_not_add():
    z, truth = sample(2)
    names = [f"c{i}" for i in range(4)]
    one = tally_of(z, truth, names)
    with pytest.raises(ValueError, match="known"):
        one + tally_of(z[:, :3], truth % 3, names[:3])


@pytest.mark.parametrize("multilabel", [False, True])
def test_of_a_classifier(multilabel):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(200)]
    labels = ["a" if "w1" in text.split() else "b" for text in texts]
    if multilabel:
        labels = [
            [label, "long"] if len(text) > 18 else [label]
            for label, text in zip(labels, texts, strict=True)
        ]
    clf = TextClassifier(effort="fast").fit(texts, labels)
    labels[3] = ["new"] if multilabel else "new"
    for options in ({}, {"top": 2}, {"threshold": 0.4}):
        whole = clf.evaluate(texts, labels, **options)
        parts = [
            clf.tally(texts[i : i + 60], labels[i : i + 60], **options) for i in (0, 60, 120, 180)
        ]
        total = parts[2] + parts[0] + (parts[3] + parts[1])
        assert fields(total.evaluation()) == fields(whole)
