"""One native call from a text to its class: as text_to_bags and the scores of the model."""

import pickle
import threading

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.core.native.library import runtime
from hashembed.engine.shallow.texts import classes_of, score_texts
from hashembed.text.pipeline import text_to_bags

TEXTS = [
    "a good film",
    "bad",
    "Straße, ß & ΟΔΟΣ!",
    "日本 語",
    "x" * 5000,
    "many words " * 4000,
    "\x00",
]
OPTIONS = [{}, {"subwords": (2, 5), "punctuation": "keep"}, {"ngrams": (1, 9), "lowercase": False}]

pytestmark = pytest.mark.skipif(runtime().library is None, reason=runtime().why)


def model(**options):
    labels = [str(i % 40) for i in range(400)]
    return TextClassifier(threads=1, **options).fit(
        [f"w{i} w{i * 7 % 50}" for i in range(400)], labels
    )


@pytest.mark.parametrize("options", [*OPTIONS, {"embedding_dim": 100}, {"embedding_dim": 3}])
def test_as_the_two_steps(options):
    clf = model(**options)
    bags = text_to_bags(TEXTS, clf.text_config_)
    for texts in (TEXTS, TEXTS[::-1], *([text] for text in TEXTS)):
        z, counts = score_texts(clf.model_, clf.text_config_, texts)
        own = text_to_bags(texts, clf.text_config_)
        assert np.array_equal(z, clf.model_.scores(own))
        assert counts.tolist() == own.lengths.tolist()
    assert len(bags.keys) > 1024  # more than there is space for at first
    chosen = classes_of(clf.model_, clf.text_config_, TEXTS)
    assert chosen == clf.model_.scores(bags).argmax(axis=1).tolist()


def test_what_is_not_a_list_of_a_few_strings():
    clf = model()
    for texts in (["a", None], ["\ud800"], ("a",), ["a"] * 65, ["x" * (1 << 20) + " y"]):
        assert score_texts(clf.model_, clf.text_config_, texts) is None
        assert classes_of(clf.model_, clf.text_config_, texts) is None
    assert classes_of(clf.model_, clf.text_config_, ["a", " ,"]) is None  # no words
    assert clf.predict(["a", " ,", "w1"]).shape == (3,)
    assert np.allclose(clf.predict_proba([" ,"])[0], clf.prior_)
    assert classes_of(clf.model_, clf.text_config_, []) == []


def test_new_tables_are_used():
    clf = model()
    clf.predict(["w1"])
    clf.partial_fit(["w1 new"] * 50, ["a new label"] * 50)
    bags = text_to_bags(["w1 new"], clf.text_config_)
    assert np.array_equal(clf._scored(["w1 new"])[0], clf.model_.scores(bags))
    copy = pickle.loads(pickle.dumps(clf))
    assert copy.predict(["w1 new"]).tolist() == clf.predict(["w1 new"]).tolist()


def test_many_threads():
    clf = model()
    texts = [f"w{i} w{i * 3 % 50}" for i in range(300)]
    want = clf.predict(texts).tolist()
    wrong = []

    def work():
        wrong.extend(
            t for t, label in zip(texts, want, strict=True) if clf.predict([t])[0] != label
        )

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
