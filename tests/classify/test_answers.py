"""Thresholds, the likeliest few, and labels in the form of the model."""

import numpy as np
import pytest
from sklearn import metrics

from hashembed import TextClassifier
from hashembed.classify.answers import chosen, limits
from hashembed.cli import demo_task as demo

TEXTS = ["red", "blue", "red blue", "green"] * 10
LISTS = [["r"], ["b"], ["r", "b"], []] * 10
SETTINGS = {"batch_size": 4, "passes": 10, "num_embeddings": 1000}


@pytest.fixture(scope="module")
def several():
    return TextClassifier(**SETTINGS).fit(TEXTS, LISTS)


@pytest.fixture(scope="module")
def sentences():
    """Every eighth sentence, and its language."""
    table = demo.read_sentences()
    rows = list(range(0, len(table), 8))
    return table["text"].take(rows).to_pylist(), table["language"].take(rows).to_pylist()


@pytest.fixture(scope="module")
def languages(sentences):
    return TextClassifier(ngrams=(1, 1), subwords=(2, 3), batch_size=32).fit(*sentences)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("threshold", [None, 0, 0.2, 0.5, 1])
@pytest.mark.parametrize("top", [None, 1, 2, 3, 9])
def test_what_is_chosen(multilabel, threshold, top):
    z = np.random.default_rng(0).normal(0, 2, (50, 3)).astype(np.float32)
    e = np.exp(z.astype(np.float64))
    p = e / (1 + e) if multilabel else e / e.sum(axis=1, keepdims=True)
    wanted = [
        {c for c in sorted(range(3), key=lambda c: -row[c])[:top] if row[c] > (threshold or 0)}
        for row in p
    ]
    found = chosen(z, multilabel, threshold, top)
    assert [set(np.flatnonzero(row)) for row in found] == wanted


def test_what_a_model_gives_by_itself():
    assert limits(True, None, None) == (0.5, None)
    assert limits(False, None, None) == (None, 1)
    assert limits(True, None, 2) == (None, 2)
    assert limits(False, 0.3, None) == (0.3, None)
    for bad in (-0.1, 1.5, float("nan"), "0.5", True):
        with pytest.raises(ValueError, match="threshold must be a probability from 0 to 1, found"):
            limits(True, bad, None)
    with pytest.raises(ValueError, match="top must be a whole number from 1"):
        limits(True, None, 0)


def test_a_threshold_for_several_labels(several):
    p = several.predict_proba(TEXTS[:4])
    want = [tuple(several.classes_[row > 0.5]) for row in p]
    assert several.predict(TEXTS[:4]).tolist() == want == [("r",), ("b",), ("b", "r"), ()]
    assert several.predict(TEXTS[:4], threshold=0.0).tolist() == [("b", "r")] * 4
    assert several.predict(TEXTS[:4], threshold=1.0).tolist() == [()] * 4
    some = float(np.sort(p.ravel())[3])
    assert several.predict(TEXTS[:4], threshold=some).tolist() == [
        tuple(several.classes_[row > some]) for row in p
    ]


def test_a_threshold_where_there_is_one_class(languages):
    with pytest.raises(ValueError, match=r"exactly one label: use predict_top\(texts, 1, thr"):
        languages.predict(["Wo ist"], threshold=0.5)


def test_the_likeliest_few(languages, sentences):
    texts = [*sentences[0][:20], ""]
    p = languages.predict_proba(texts)
    found = languages.predict_top(texts, 3)
    for row, best in zip(p, found, strict=True):
        order = np.argsort(-row, kind="stable")[:3]
        assert [label for label, _ in best] == languages.classes_[order].tolist()
        assert [chance for _, chance in best] == row[order].tolist()
    assert [best[0][0] for best in found] == languages.predict(texts).tolist()
    assert type(found[0][0][0]) is str
    assert type(found[0][0][1]) is float
    assert len(languages.predict_top(["x"], None)[0]) == 16
    assert len(languages.predict_top(["x"])[0]) == 5
    likely = languages.predict_top(texts, None, threshold=0.3)
    assert [dict(best) for best in likely] == [
        {c: x for c, x in zip(languages.classes_.tolist(), row.tolist(), strict=True) if x > 0.3}
        for row in p
    ]
    assert languages.predict_top(texts, 1, threshold=1.0) == [[]] * 21
    assert languages.predict_top([], 2) == []


def test_evaluation_by_threshold_and_top(languages, several, sentences):
    texts, labels = sentences
    p, classes = languages.predict_proba(texts), languages.classes_
    best = languages.evaluate(texts, labels, top=3)
    assert best.accuracy == pytest.approx(
        metrics.top_k_accuracy_score(labels, p, k=3, labels=classes)
    )
    assert best.micro_recall == best.accuracy
    assert best.micro_precision == pytest.approx(best.accuracy / 3)
    assert best.confusion is None
    assert best.answered == len(texts)
    sure = languages.evaluate(texts, labels, threshold=0.9)
    answered = p.max(axis=1) > 0.9
    right = classes[p.argmax(axis=1)] == np.array(labels)
    assert 0 < sure.answered == answered.sum() < len(texts)
    assert sure.micro_precision == pytest.approx(right[answered].mean())
    assert sure.accuracy == pytest.approx((right & answered).mean())
    assert "above 0.9" in str(sure)
    for threshold in (0.1, 0.5, 0.9):
        result = several.evaluate(TEXTS, LISTS, threshold=threshold)
        given = several.predict(TEXTS, threshold=threshold)
        exact = [set(a) == set(b) for a, b in zip(given, LISTS, strict=True)]
        assert result.accuracy == np.mean(exact)
    assert several.evaluate(TEXTS, LISTS, top=1).micro_precision == 0.75
    assert several.evaluate(TEXTS, LISTS).to_dict()["threshold"] is None


def test_single_labels_for_a_model_of_several(several, tmp_path):
    """A file whose lines all have one label is data for a multi-label model, too."""
    texts, labels = ["red", "blue", "blue"], ["r", "b", "r"]
    assert several.evaluate(texts, labels).accuracy == pytest.approx(2 / 3)
    assert several.score(texts, labels) == pytest.approx(2 / 3)
    assert several.score(texts, labels, sample_weight=[0, 1, 1]) == 0.5
    validated = TextClassifier(**SETTINGS).fit(TEXTS, LISTS, validation=(texts, labels))
    assert validated.history_.epochs[-1].validation_accuracy == pytest.approx(2 / 3)
    copy = TextClassifier(**SETTINGS).fit(TEXTS, LISTS).partial_fit(["grey"] * 8, ["g"] * 8)
    assert copy.classes_.tolist() == ["b", "r", "g"]
    assert copy.class_counts_.tolist() == [20, 20, 8]
    batches = [(["red"] * 4, ["r"] * 4), (TEXTS, LISTS)]
    assert TextClassifier(**SETTINGS).fit_batches(batches).predict(["red blue"])[0] == ("b", "r")


def test_labels_of_another_type_get_a_sentence(several):
    with pytest.raises(TypeError, match=r"labels so far are str.* found int.*astype\(str\)"):
        several.evaluate(["red"], [1])
    numbers = TextClassifier(**SETTINGS).fit(["a", "b"], [0, 1])
    for call in (numbers.evaluate, numbers.score, numbers.partial_fit):
        with pytest.raises(TypeError, match=r"labels so far are int.* found str.*astype\(int\)"):
            call(["a"], ["1"])


def test_several_labels_for_a_model_of_one_get_a_sentence(languages):
    for call in (languages.evaluate, languages.score, languages.partial_fit):
        with pytest.raises(ValueError, match=r"text 1 has 'German' and 'Dutch'.*give one"):
            call(["x"], [["German", "Dutch"]])
