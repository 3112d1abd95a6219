"""`TextClassifier(pretrained=...)`: vectors of unlabelled text beside n-grams."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from hashembed import TextClassifier, WordVectors
from hashembed.classify.header_facts import count_parameters, describe_tables, table_bits
from hashembed.classify.pretrained import regression
from hashembed.classify.pretrained.fitting import FOLDS, MOST_IN_FOLDS, Rows, folds_of
from hashembed.classify.pretrained.mixing import choose_mix
from hashembed.classify.pretrained.regression import Linear, Problem, fit_logistic
from hashembed.classify.pretrained.sources import defaults_for
from hashembed.core.tensor_layout import read_layout
from hashembed.engine.labels import Labels
from hashembed.engine.tensor_file import ModelFileError, read_header
from hashembed.web.page import PageText, page

TOPICS = {
    "animals": ["cat", "dog", "horse", "cow", "sheep", "goat", "pig", "hen", "duck", "fox"],
    "food": ["bread", "cheese", "butter", "milk", "apple", "pear", "plum", "soup", "salt", "rice"],
    "travel": ["train", "ship", "plane", "road", "ticket", "hotel", "beach", "map", "visa", "port"],
}
FAST = {"effort": "fast", "threads": 1, "passes": 5}


def texts_about(count, seed):
    """Texts of six words of one topic, and two words of none."""
    rng = np.random.default_rng(seed)
    labels = [str(topic) for topic in rng.choice(sorted(TOPICS), count)]
    common = ["the", "and", "some", "with", "very"]
    return [
        " ".join([*rng.choice(TOPICS[label], 6), *rng.choice(common, 2)]) for label in labels
    ], labels


@pytest.fixture(scope="module")
def vectors():
    unlabelled, _ = texts_about(3000, 1)
    return WordVectors(embedding_dim=16, passes=8, window=8, threads=1, sample=0.01).fit(unlabelled)


@pytest.fixture(scope="module")
def few():
    """Two texts of each topic, which have few of its words."""
    texts, labels = [], []
    for topic, words in TOPICS.items():
        texts += [f"{words[0]} {words[1]}", f"{words[2]} {words[3]}", f"{words[1]} {words[2]}"]
        labels += [topic] * 3
    return texts, labels


@pytest.fixture(scope="module")
def trained(vectors, few):
    return TextClassifier(**FAST, pretrained=vectors).fit(*few)


@pytest.fixture(scope="module")
def new():
    return texts_about(300, 2)


def test_vectors_know_words_that_no_labelled_text_has(trained, few):
    texts = [" ".join(words[6:]) for words in TOPICS.values()]
    assert trained.predict(texts).tolist() == list(TOPICS)
    assert 0 < trained.vectors_.share < 1


def test_they_help_with_few_labels(trained, few):
    plain = TextClassifier(**FAST).fit(*few)
    assert plain.vectors_ is None
    pairs = [(f"{a} {b}", t) for t, words in TOPICS.items() for a in words[4:] for b in words[4:]]
    texts, labels = zip(*pairs, strict=True)  # of words that no labelled text has
    assert trained.score(list(texts), list(labels)) > 0.95
    assert plain.score(list(texts), list(labels)) < 0.7


def test_probabilities_and_logits_agree(trained, new):
    p = trained.predict_proba(new[0])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (trained.classes_[p.argmax(axis=1)] == trained.predict(new[0])).all()
    assert trained.predict(new[0][:1])[0] == trained.predict(new[0])[0]
    assert trained.predict(iter(new[0][:3])).tolist() == trained.predict(new[0][:3]).tolist()
    top = trained.predict_top(new[0][:2], 1)
    assert [found[0][0] for found in top] == trained.predict(new[0][:2]).tolist()
    assert trained.evaluate(*new).accuracy == pytest.approx(trained.score(*new))


def test_texts_without_words_get_the_prior(trained):
    np.testing.assert_array_equal(trained.predict_proba(["", "?!"]), [trained.prior_] * 2)


def test_same_bits_for_any_number_of_threads(vectors, few, new):
    models = [TextClassifier(**{**FAST, "threads": t}, pretrained=vectors) for t in (1, 3)]
    one, three = (model.fit(*few) for model in models)
    np.testing.assert_array_equal(one.decision_function(new[0]), three.decision_function(new[0]))
    np.testing.assert_array_equal(one.vectors_.linear.W, three.vectors_.linear.W)


# --- explanations ---


@given(st.lists(st.sampled_from(["cat", "Dog", "bread", "!", "--", "xyzzy", "the"]), max_size=9))
@settings(max_examples=40, deadline=None)
def test_explanations_add_up_to_the_logits(trained, words):
    text = " ".join(words)
    found = trained.explain(text)
    np.testing.assert_allclose(found.logits, trained._logits([text])[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.unexplained, 0, atol=1e-9)
    np.testing.assert_allclose(
        found.word_contributions.sum(axis=0) + found.bias, found.logits, atol=1e-9
    )
    str(found)
    found.to_dict()


def test_words_that_repeat_are_explained(vectors, few):
    once = TextClassifier(**FAST, pretrained=vectors, repeats="once", ngrams=(1, 1)).fit(*few)
    text = "cat cat bread, duck"
    found = once.explain(text)
    np.testing.assert_allclose(found.logits, once._logits([text])[0], rtol=1e-4, atol=1e-5)
    assert [n.text for n in found.ngrams].count("cat") == 2
    assert len(found.importances) == len(found.ngrams)


# --- files ---


@pytest.mark.parametrize("options", [{}, {"bits": 16}, {"bits": 4}, {"for_training": True}])
def test_saved_and_loaded(trained, new, tmp_path, options):
    path = tmp_path / "m.safetensors"
    trained.save(path, **options)
    loaded = TextClassifier.load(path)
    assert read_header(path)["format"] == 3
    close = 0.4 if options.get("bits") == 4 else 0.05
    np.testing.assert_allclose(
        loaded.decision_function(new[0]), trained.decision_function(new[0]), atol=close
    )
    if options.get("for_training"):
        np.testing.assert_array_equal(
            loaded.decision_function(new[0]), trained.decision_function(new[0])
        )
    loaded.save(tmp_path / "again.safetensors", **options)
    if not options.get("bits"):
        again = TextClassifier.load(tmp_path / "again.safetensors")
        np.testing.assert_array_equal(
            again.decision_function(new[0]), loaded.decision_function(new[0])
        )


def test_a_loaded_model_can_be_trained_again(trained, few, new, tmp_path):
    trained.save(tmp_path / "m.safetensors")
    loaded = TextClassifier.load(tmp_path / "m.safetensors").fit(*few)
    assert loaded.vectors_ is not None
    assert loaded.score(*new) == pytest.approx(trained.score(*new), abs=0.02)


def test_models_without_vectors_have_the_old_format(few, tmp_path):
    TextClassifier(**FAST).fit(*few).save(tmp_path / "m.safetensors")
    assert read_header(tmp_path / "m.safetensors")["format"] == 1
    assert TextClassifier.load(tmp_path / "m.safetensors").vectors_ is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, m: t.pop("vectors.W"), "has no tensor 'vectors.W'"),
        (lambda t, m: t.update({"vectors.bias": np.zeros(9)}), "has no tensor 'vectors.bias'"),
        (lambda t, m: t.pop("vectors.E"), "has no tensor 'E'"),
        (lambda t, m: m["vectors"].update(share=2.0), "has 2.0 as the share of its vectors"),
        (lambda t, m: m["vectors"].update(num_buckets=7), "has a tensor 'E' of shape"),
        (lambda t, m: m.pop("vectors"), "has an unknown tensor: 'vectors."),
        (
            lambda t, m: [t.pop(n) for n in list(t) if n.startswith("vectors.")],
            "has no tensors of the vectors that its header describes",
        ),
    ],
)
def test_hostile_files_are_refused(trained, tmp_path, change, said):
    from hashembed.classify.model_file import KIND, content_of
    from hashembed.engine.tensor_file import save_tensors

    tensors, meta, version = content_of(trained, False, None)
    tensors, meta = dict(tensors), {**meta, "vectors": dict(meta["vectors"])}
    change(tensors, meta)
    path = tmp_path / "m.safetensors"
    save_tensors(path, KIND, tensors, meta, version)
    with pytest.raises(ModelFileError, match=said):
        TextClassifier.load(path)


def test_the_layout_names_the_vectors(trained, tmp_path):
    trained.save(tmp_path / "m.safetensors")
    with open(tmp_path / "m.safetensors", "rb") as file:
        names = read_layout(file).places
    assert {"vectors.E", "vectors.P", "vectors.W", "vectors.bias"} <= names.keys()


def test_the_header_tells_of_vectors(trained, tmp_path):
    trained.save(tmp_path / "m.safetensors", bits=16)
    header = read_header(tmp_path / "m.safetensors")
    share = f"{trained.vectors_.share:.0%}"
    told = describe_tables(header["meta"])
    assert f"and pretrained vectors with d = 16, {share} of the logits" in told
    layer = trained.vectors_.linear
    assert count_parameters(header) == trained.model_.num_parameters + layer.W.size + 3
    assert table_bits(header) == "16"


def test_pickled_and_cloned(trained, few, new):
    copy = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(copy.decision_function(new[0]), trained.decision_function(new[0]))
    again = clone(trained).fit(*few)
    np.testing.assert_array_equal(
        again.decision_function(new[0]), trained.decision_function(new[0])
    )


def test_vectors_from_a_file(vectors, few, new, trained, tmp_path):
    vectors.save(tmp_path / "v.safetensors")
    model = TextClassifier(**FAST, pretrained=str(tmp_path / "v.safetensors")).fit(*few)
    np.testing.assert_allclose(
        model.decision_function(new[0]), trained.decision_function(new[0]), atol=0.05
    )


# --- other ways to train ---


def test_partial_fit_learns_new_classes(vectors, few, new):
    model = TextClassifier(**FAST, pretrained=vectors).fit(*few)
    before = model._logits(new[0])
    model.partial_fit(["sun rain wind"] * 5, ["weather"] * 5)
    assert model.classes_.tolist()[-1] == "weather"
    assert model._logits(new[0]).shape == (len(new[0]), 4)
    assert model.predict(["rain wind"])[0] == "weather"
    assert before.shape[1] == 3
    text = "rain and cats"
    np.testing.assert_allclose(model.explain(text).logits, model._logits([text])[0], atol=1e-4)


def test_several_labels(vectors, few, new):
    texts = [f"{a} {b}" for a, b in zip(few[0], few[0][::-1], strict=True)]
    labels = [sorted({a, b}) for a, b in zip(few[1], few[1][::-1], strict=True)]
    model = TextClassifier(**FAST, pretrained=vectors).fit(texts, labels)
    assert model.predict_proba(new[0]).shape == (len(new[0]), 3)
    assert isinstance(model.predict(new[0][:1])[0], tuple)
    with pytest.raises(ValueError, match="pretrained= and class_weight= exclude each other"):
        TextClassifier(**FAST, pretrained=vectors, class_weight="balanced").fit(texts, labels)


@pytest.mark.parametrize(
    "how",
    [
        {"validation_fraction": 0.2},
        {"members": 3},
        {"class_weight": "balanced"},
        {"class_weight": {"food": 3.0}, "members": 2},
        {"ngrams": (2, 2)},
    ],
)
def test_with_other_arguments(vectors, how, new):
    model = TextClassifier(**FAST, pretrained=vectors, **how).fit(*texts_about(120, 5))
    assert model.score(*new) > 0.9


def test_validation_data_decides(vectors, few, new):
    model = TextClassifier(**FAST, pretrained=vectors)
    model.fit(*few, validation=(new[0][:50], new[1][:50]))
    assert model.calibration_.rows == 50
    assert model.score(new[0][50:], new[1][50:]) > 0.9


@pytest.mark.parametrize("members", [1, 4])
def test_many_texts(vectors, new, members):
    texts, labels = texts_about(MOST_IN_FOLDS + 200, 7)
    model = TextClassifier(**FAST, pretrained=vectors, members=members).fit(texts, labels)
    assert model.score(*new) > 0.97


def test_useless_vectors_are_left_out(tmp_path):
    noise = WordVectors(embedding_dim=4, passes=1, min_count=1, subwords=None, sample=1.0)
    noise.fit(["u v w x y z"] * 20)
    texts, labels = texts_about(900, 3)
    model = TextClassifier(**FAST, pretrained=noise).fit(texts, labels)
    assert model.vectors_ is None
    model.save(tmp_path / "m.safetensors")
    assert read_header(tmp_path / "m.safetensors")["format"] == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, t, y: m.partial_fit(t, y), "needs all texts at once to begin with"),
        (
            lambda m, t, y: m.fit_batches([(t, y), (t, y)]),
            "needs all texts in the memory of one machine",
        ),
        (
            lambda m, t, y: m.fit_batches([(t, y)], cache_dir="."),
            "needs all texts in the memory of one machine",
        ),
        (lambda m, t, y: m.set_params(pretrained=WordVectors()).fit(t, y), "must be trained"),
        (lambda m, t, y: m.fit(t, y).compress(t), "cannot be compressed"),
        (lambda m, t, y: page(m.fit(t, y), PageText()), "does not run in a page"),
    ],
)
def test_refused_with_a_sentence(vectors, few, call, said):
    with pytest.raises(ValueError, match=said):
        call(TextClassifier(**FAST, pretrained=vectors), *few)


def test_a_wrong_type_is_refused(few):
    with pytest.raises(TypeError, match="pretrained must be WordVectors or the path of a file"):
        TextClassifier(**FAST, pretrained=3).fit(*few)


# --- the layer on top, and the mix ---


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("n", [1, 7, 300, 601])
def test_regression_is_that_of_scikit_learn(classes, n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, classes, n)
    weights = rng.uniform(0.5, 2, n).astype(np.float32)
    present = len(set(y.tolist()))
    found = fit_logistic(Problem.of(X, np.eye(classes)[y], weights, False, 1), 0.5)
    if present < classes:
        assert np.isfinite(found.W).all()
        return
    # Two classes share one vector there, so the penalty counts twice.
    peer = LogisticRegression(C=4 if classes == 2 else 2, tol=1e-8, max_iter=5000).fit(
        X, y, weights
    )
    z = found(X)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), peer.predict_proba(X), atol=2e-3)


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    for multilabel in (False, True):
        truth = rng.integers(0, 2, (9, 4)) if multilabel else np.eye(4)[rng.integers(0, 4, 9)]
        problem = Problem.of(rng.normal(size=(9, 5)), truth, None, multilabel, 1)
        at, step = rng.normal(size=(4, 6)), rng.normal(size=(4, 6)) * 1e-6
        slope = (problem.value(at + step, 0.3)[0] - problem.value(at - step, 0.3)[0]) / 2
        assert slope == pytest.approx((problem.value(at, 0.3)[1] * step).sum(), rel=1e-4)


@pytest.mark.parametrize("multilabel", [False, True])
def test_regression_has_the_same_bits_for_any_number_of_threads(monkeypatch, multilabel):
    monkeypatch.setattr(regression, "NUMBERS_FOR_ONE_THREAD", 0)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1037, 5)).astype(np.float32), rng.integers(0, 3, 1037)
    found = []
    for threads in (1, 2, 5):
        problem = Problem.of(X, np.eye(3)[y], None, multilabel, threads)
        layer = fit_logistic(problem, 0.1)
        found.append(np.column_stack([layer.W, layer.bias, layer(X[:3], threads)]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_logits_are_products():
    rng = np.random.default_rng(0)
    X, W, bias = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(2, 3)), np.ones(2)
    np.testing.assert_allclose(Linear(W, bias)(X), X @ W.T + 1, rtol=1e-5, atol=1e-6)


def test_the_mix_follows_what_is_right():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    good = (2 * np.eye(3)[y] + rng.normal(size=(400, 3))).astype(np.float32)
    bad = rng.normal(size=(400, 3)).astype(np.float32)
    labels = Labels.single(y)
    assert choose_mix(good, bad, labels, False, None).share < 0.1
    assert choose_mix(bad, good, labels, False, None).share > 0.9
    other = (2 * np.eye(3)[y] + rng.normal(size=(400, 3))).astype(np.float32)
    even = choose_mix(good, other, labels, False, None)
    assert 0.1 < even.share < 0.9
    few_rows = choose_mix(good[:3], bad[:3], Labels.single(y[:3]), False, None)
    assert 0.1 < few_rows.share < 0.9


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 5))
@settings(deadline=None)
def test_folds_hold_out_every_row_once(n, classes, seed):
    labels = Labels.single(np.random.default_rng(seed).integers(0, classes, n))
    rows = Rows(np.zeros((n, 2), np.float32), labels, None, classes, False, seed, 1)
    folds = folds_of(rows)
    assert sorted(np.concatenate(folds).tolist()) == list(range(n))
    assert len(folds) == min(FOLDS, n)
    assert all(len(fold) for fold in folds)


def test_defaults_follow_the_size():
    small, large = defaults_for(600), defaults_for(6_000_000_000)
    assert small == {"min_count": 2, "passes": 50, "sample": 0.05}
    assert large == {"min_count": 5, "passes": 3, "sample": 1e-4}
