"""Ensembles of shallow models that average logits: they are linear, and can do what one can."""

import copy
import pickle

import numpy as np
import pytest
from tests import golden

from hashembed import TextClassifier
from hashembed.classify.explain.text import explain_by_occlusion
from hashembed.classify.trained import NotShallowError
from hashembed.engine.linear import linear
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.text.pipeline import text_to_bags

WORDS = {"good": "+", "fine": "+", "bad": "-", "poor": "-", "dull": "0"}
TEXTS = [f"{word} film number{i % 7} {['it', 'was'][i % 2]}" for i in range(60) for word in WORDS]
LABELS = [label for _ in range(60) for label in WORDS.values()]
SEVERAL = [[label, "even"][: 1 + i % 2] for i, label in enumerate(LABELS)]
SMALL = {"num_embeddings": 2000, "num_buckets": 200, "threads": 1, "effort": "fast"}
ASKED = "a good film, it was not bad"


def trained(multilabel=False, **options):
    clf = TextClassifier(**{"members": 3, **SMALL, **options})
    return clf.fit(TEXTS, SEVERAL if multilabel else LABELS)


def older():
    return TextClassifier.load(golden.FOLDER / "members_older.safetensors")


@pytest.mark.parametrize("multilabel", [False, True])
def test_explanations_are_exact(multilabel):
    clf = trained(multilabel)
    found = clf.explain(ASKED)
    assert found.exact
    assert len(found.ngrams) == 13
    z = clf.model_.scores(text_to_bags([ASKED], clf.text_config_))[0]
    np.testing.assert_allclose(found.bias + found.contributions.sum(axis=0), z, atol=1e-5)
    np.testing.assert_allclose(found.logits, z, atol=1e-5)
    np.testing.assert_allclose(found.probabilities, clf.predict_proba([ASKED])[0], atol=1e-5)
    occluded = explain_by_occlusion(
        clf.model_.scores, clf.text_config_, clf.classes_, ASKED, multilabel=multilabel
    )
    np.testing.assert_allclose(found.contributions, occluded.contributions, atol=1e-5)
    np.testing.assert_allclose(found.bias, occluded.bias, atol=1e-6)
    keys = text_to_bags([ASKED], clf.text_config_).keys
    norms = [
        np.linalg.norm(m.importance_weights[m.spec(keys)[0]].astype(np.float64), axis=1)
        for m in clf.model_.members
    ]
    np.testing.assert_allclose(found.importances, np.mean(norms, axis=0), rtol=1e-12)
    assert np.ptp(norms, axis=0).min() > 0


def test_an_ensemble_of_one_model_many_times_is_that_model():
    """All means, of logits, explanations and tables of n-grams, must then be the model's own."""
    one, three = trained(members=1), trained()
    first = one.model_.state()
    for member in three.model_.members:
        member.load_state(first)
        member.spec, member.memory = one.model_.spec, one.model_.memory
    assert np.array_equal(three.predict_proba(TEXTS), one.predict_proba(TEXTS))
    ours, theirs = three.explain(ASKED), one.explain(ASKED)
    np.testing.assert_allclose(ours.contributions, theirs.contributions, rtol=1e-12)
    np.testing.assert_allclose(ours.importances, theirs.importances, rtol=1e-12)
    ours, theirs = (clf.important_ngrams(TEXTS, top=5, min_count=1) for clf in (three, one))
    assert [word.text for word in ours.most] == [word.text for word in theirs.most]
    assert ours.same_row == pytest.approx(theirs.same_row)
    assert [w.collision for w in ours.most] == pytest.approx([w.collision for w in theirs.most])


@pytest.mark.parametrize("by", ["weight", "evidence"])
def test_words(by):
    clf = trained()
    table = clf.important_ngrams(TEXTS, top=12, min_count=10, by=by)
    found = {word.text: word for word in table.most}
    assert {"good", "bad"} <= found.keys()
    assert found["good"].speaks_for == "+"
    explained = clf.explain("good")
    assert found["good"].weight == pytest.approx(explained.importances[0])
    assert found["good"].evidence == pytest.approx(explained.evidence[0].max())
    assert all(word.shares_row_with is None for word in [*table.most, *table.least])
    values = [word.weight if by == "weight" else word.evidence for word in table.most]
    assert values == sorted(values, reverse=True)
    assert table.members == 3
    assert "importance weights in a member; for" in " ".join(str(table).split())
    assert "The same vector in all members:" in " ".join(str(table).split())
    assert table.to_dict()["members"] == 3


def test_chances_in_members_and_in_all_of_them():
    """K = 4, B = 2 and k = 1: a pair of n-grams shares its vector with a chance of 1/8."""
    sizes = {"num_embeddings": 4, "num_buckets": 2, "num_hashes": 1}
    texts = ["a b c d e"] * 20
    for members in (1, 2, 3):
        clf = TextClassifier(ngrams=(1, 1), subwords=None, members=members, **sizes).fit(
            texts, ["x", "y"] * 10
        )
        table = clf.important_ngrams(texts)
        assert table.distinct == 5
        assert table.same_row == pytest.approx(1 - (3 / 4) ** 4)
        assert table.same_vector == pytest.approx(1 - (1 - 1 / 8**members) ** 4)
    assert trained(members=80).important_ngrams(TEXTS).same_vector == 0.0


@pytest.mark.parametrize("multilabel", [False, True])
def test_new_labels(multilabel):
    clf = trained(multilabel)
    before = clf.decision_function([ASKED])
    bias = clf.model_.members[1].tables.bias.min()
    clf.model_.grow(len(clf.classes_))
    new = [["new"] if multilabel else "new"] * 30
    clf.partial_fit(["brand new thing"] * 30, new)
    assert clf.classes_.tolist()[-1] == "new"
    assert all(len(m.tables.bias) == before.shape[1] + 1 for m in clf.model_.members)
    assert clf.model_.members[1].tables.bias[-1] > bias
    clf.partial_fit(["brand new thing"] * 300, new * 10)
    likely = clf.predict(["brand new thing"])[0]
    assert "new" in likely if multilabel else likely == "new"
    assert clf.explain("brand new thing").exact


def test_a_class_added_changes_no_other_logit():
    clf = trained()
    bags = text_to_bags(TEXTS, clf.text_config_)
    before = clf.model_.scores(bags)
    clf.model_.grow(5)
    assert np.array_equal(clf.model_.scores(bags)[:, :3], before)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_a_saved_ensemble_learns_on_at_the_mean_rates(bits, multilabel, tmp_path):
    clf = trained(multilabel)
    clf.save(tmp_path / "m", bits=bits)
    loaded = TextClassifier.load(tmp_path / "m", threads=1)
    assert loaded.engine_plan_.votes == "logits"
    np.testing.assert_allclose(
        loaded.predict_proba(TEXTS[:20]),
        clf.predict_proba(TEXTS[:20]),
        atol={16: 0.002, 8: 0.03, 4: 0.3}[bits],
    )
    for ours, theirs in zip(loaded.model_.members, clf.model_.members, strict=True):
        for name, mean in theirs.mean_squares().items():
            assert mean > 0
            np.testing.assert_allclose(ours.state()[name], mean, rtol=1e-6)
    assert loaded.explain(ASKED).exact
    loaded.partial_fit(["brand new thing"] * 20, [["new"] if multilabel else "new"] * 20)
    assert len(loaded.classes_) == len(clf.classes_) + 1


def test_saved_for_training_it_goes_on_bit_for_bit(tmp_path):
    clf = trained()
    clf.save(tmp_path / "m", for_training=True)
    loaded = TextClassifier.load(tmp_path / "m", threads=1)
    for one in (clf, loaded):
        one.partial_fit([*TEXTS, "brand new"], [*LABELS, "new"])
    assert golden.digest(loaded) == golden.digest(clf)
    assert np.array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_the_same_bits_for_any_number_of_threads():
    one, two = trained(threads=1), trained(threads=2)
    assert np.array_equal(one.predict_proba(TEXTS * 20), two.predict_proba(TEXTS * 20))
    assert np.array_equal(one.predict_proba([ASKED]), two.predict_proba([ASKED]))


def test_copies_have_tables_of_their_own():
    clf = trained()
    want = clf.predict_proba([ASKED])
    for made in (copy.deepcopy(clf), pickle.loads(pickle.dumps(clf))):
        made.partial_fit(["good"] * 50, ["-"] * 50)
        assert not np.array_equal(made.predict_proba([ASKED]), want)
        assert np.array_equal(clf.predict_proba([ASKED]), want)


def test_an_older_ensemble_averages_probabilities(tmp_path):
    """It is not linear. Saved again it stays what it is."""
    clf = older()
    assert linear(clf.model_) is None
    assert not clf.explain("w1 w2").exact
    for call in (lambda: clf.important_ngrams(["w1"]), lambda: clf.partial_fit(["w1"], ["new"])):
        with pytest.raises(NotShallowError, match="is an ensemble that averages probabilities"):
            call()
    clf.save(tmp_path / "m", for_training=True)
    again = TextClassifier.load(tmp_path / "m")
    assert again.engine_plan_.votes == "probabilities"
    texts = golden.texts(5)
    assert np.array_equal(again.predict_proba(texts), clf.predict_proba(texts))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"E_square": 1.0}, "has no mean_squares of .* of each member"),
        ({"0.E_square": -1.0}, "has -1.0 as the mean 0.E_square"),
    ],
)
def test_files_that_lie(change, words, tmp_path):
    trained().save(tmp_path / "m")
    tensors, meta = load_tensors(tmp_path / "m", "TextClassifier")
    meta["mean_squares"] |= change
    save_tensors(tmp_path / "m", "TextClassifier", tensors, meta)
    with pytest.raises(ModelFileError, match=words):
        TextClassifier.load(tmp_path / "m")
    meta["engine"]["votes"] = {}
    save_tensors(tmp_path / "m", "TextClassifier", tensors, meta)
    with pytest.raises(ModelFileError, match="votes must be one of 'logits', 'probabilities'"):
        TextClassifier.load(tmp_path / "m")
