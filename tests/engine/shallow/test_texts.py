"""From a text to its class, one native call for each member: as bags and the model's scores."""

import pickle
import threading
import weakref

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.core.native.library import runtime
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.shallow.listed import ListedModel
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.texts import classes_of, score_texts
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
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
    return TextClassifier(threads=1, effort="fast", **options).fit(
        [f"w{i} w{i * 7 % 50}" for i in range(400)], labels
    )


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("options", [*OPTIONS, {"embedding_dim": 100}, {"embedding_dim": 3}])
def test_as_the_two_steps(options, members):
    clf = model(members=members, **options)
    bags = text_to_bags(TEXTS, clf.text_config_)
    for texts in (TEXTS, TEXTS[::-1], *([text] for text in TEXTS)):
        z, counts = score_texts(clf.model_, clf.text_config_, texts)
        own = text_to_bags(texts, clf.text_config_)
        assert np.array_equal(z, clf.model_.scores(own))
        assert counts.tolist() == own.lengths.tolist()
    assert len(bags.keys) > 1024  # more than there is space for at first
    chosen = classes_of(clf.model_, clf.text_config_, TEXTS)
    assert chosen == clf.model_.scores(bags).argmax(axis=1).tolist()


@pytest.mark.parametrize("classes", [2, 40])
@pytest.mark.parametrize("options", OPTIONS)
def test_compressed_models(options, classes):
    """Those that keep only some rows, and those with whole tables, the same bits as of bags."""
    texts = [f"w{i} w{i * 7 % 50} good film" for i in range(400)]
    labels = [str(i % classes) for i in range(400)]
    full = TextClassifier(threads=1, effort="fast", members=2, **options).fit(texts, labels)
    unknown = "nothing-of-this-was-seen"
    for clf in (full.compress(texts, size=9_000), full.compress(size=9_000)):
        for some in (TEXTS, texts[:30], *([text] for text in [*TEXTS, *texts[:5], unknown])):
            z, counts = score_texts(clf.model_, clf.text_config_, some)
            own = text_to_bags(some, clf.text_config_)
            assert np.array_equal(z, clf.model_.scores(own))
            assert counts.tolist() == own.lengths.tolist()
        bags = text_to_bags(texts[:64], clf.text_config_)
        chosen = classes_of(clf.model_, clf.text_config_, texts[:64])
        assert chosen == clf.model_.scores(bags).argmax(axis=1).tolist()
        assert len({*chosen}) > 1
        clf.partial_fit(["w1 good"] * 9, ["a new label"] * 9)
        z, _ = score_texts(clf.model_, clf.text_config_, texts[:9])
        assert np.array_equal(z, clf.model_.scores(text_to_bags(texts[:9], clf.text_config_)))


def test_an_ensemble_with_a_member_of_some_rows():
    config, rng = TextConfig(), np.random.default_rng(0)
    tensors = {
        "E": rng.standard_normal((9, 3), np.float32),
        "W": rng.standard_normal((4, 3), np.float32),
        "bias": rng.standard_normal(4, np.float32),
    }
    rows = np.arange(0, 63, 7)
    listed = ListedModel.from_rows(HashSpec(64, 64, 1, seed=5), rows, tensors)
    other = ShallowModel(HashSpec(500, 50, 2, seed=1), 16, 4, seed=1)
    bags = text_to_bags(TEXTS, config)
    for members in ([listed, other], [other, listed, other], [listed, listed]):
        z, _ = score_texts(Ensemble(members), config, TEXTS)
        assert np.array_equal(z, Ensemble(members).scores(bags))


@pytest.mark.parametrize("members", [1, 3])
def test_what_is_not_a_list_of_a_few_strings(members):
    clf = model(members=members)
    for texts in (["a", None], ["\ud800"], ("a",), ["a"] * 65, ["x" * (1 << 20) + " y"]):
        assert score_texts(clf.model_, clf.text_config_, texts) is None
        assert classes_of(clf.model_, clf.text_config_, texts) is None
    assert classes_of(clf.model_, clf.text_config_, ["a", " ,"]) is None  # no words
    assert clf.predict(["a", " ,", "w1"]).shape == (3,)
    assert np.allclose(clf.predict_proba([" ,"])[0], clf.prior_)
    assert classes_of(clf.model_, clf.text_config_, []) == []


@pytest.mark.parametrize("multilabel", [False, True])
def test_public_calls_of_an_ensemble(multilabel):
    texts, labels = [f"w{i % 50} w{i * 7 % 50}" for i in range(400)], ("abc" * 200)[:400]
    several = [[a, b] for a, b in zip(labels, labels[::-1], strict=True)]
    clf = TextClassifier(members=3).fit(texts, several if multilabel else [*labels])
    few, many = texts[:64], texts[:65]
    assert score_texts(clf.model_, clf.text_config_, few) is not None
    assert score_texts(clf.model_, clf.text_config_, many) is None
    for call in (clf.predict_proba, clf.decision_function):
        assert np.array_equal(call(few), call(many)[:64])
        assert np.array_equal(call(few[:1]), call(many)[:1])
    assert list(map(tuple, clf.predict(few))) == list(map(tuple, clf.predict(many)))[:64]


def test_members_of_different_sizes():
    sizes = [(16, 2), (100, 1), (3, 4)]
    members = [
        ShallowModel(HashSpec(500, 50, k, seed=i), d, 4, seed=i) for i, (d, k) in enumerate(sizes)
    ]
    config, ensemble = TextConfig(), Ensemble(members)
    z, _ = score_texts(ensemble, config, TEXTS)
    assert np.array_equal(z, ensemble.scores(text_to_bags(TEXTS, config)))
    assert score_texts(Ensemble(members, "probabilities"), config, TEXTS) is None
    uneven = Ensemble([members[0], ShallowModel(HashSpec(500, 50), 16, 5)])
    assert score_texts(uneven, config, ["a"]) is None
    identity = ShallowModel(HashSpec(500, 500, 1, "identity"), 16, 4)
    assert score_texts(Ensemble([members[0], identity]), config, ["a"]) is None


@pytest.mark.parametrize("members", [1, 3])
def test_a_model_is_freed_at_once(members):
    """Its buffers do not hold it: tables are large, and garbage is collected late."""
    clf = model(members=members)
    clf.predict(["w1"])
    gone = weakref.ref(clf.model_), weakref.ref(clf.model_.parts[0])
    del clf
    assert [found() for found in gone] == [None, None]


@pytest.mark.parametrize("members", [1, 3])
def test_new_tables_are_used(members):
    clf = model(members=members)
    clf.predict(["w1"])
    clf.partial_fit(["w1 new"] * 50, ["a new label"] * 50)
    bags = text_to_bags(["w1 new"], clf.text_config_)
    assert np.array_equal(clf._scored(["w1 new"])[0], clf.model_.scores(bags))
    copy = pickle.loads(pickle.dumps(clf))
    assert copy.predict(["w1 new"]).tolist() == clf.predict(["w1 new"]).tolist()


@pytest.mark.parametrize("members", [1, 3])
def test_many_threads(members):
    clf = model(members=members)
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
