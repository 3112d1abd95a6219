"""`TextVectorizer`: documents as dense features, among scikit-learn's tools and checks."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from hashembed import TextVectorizer, WordVectors
from hashembed.cli import demo_task as demo

SMALL = {"embedding_dim": 8, "passes": 3, "min_count": 1}


class NumbersAsWords(TextVectorizer):
    """A row of numbers as a text, for scikit-learn's checks; the rest is TextVectorizer's."""

    def __init__(self, *, embedding_dim=8, passes=2, min_count=1, seed=0, threads=1):
        super().__init__(
            embedding_dim=embedding_dim,
            passes=passes,
            min_count=min_count,
            seed=seed,
            threads=threads,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        tags.input_tags.string = False
        return tags

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in NumbersAsWords.__init__.__kwdefaults__}

    def _texts(self, X, reset):
        X = validate_data(self, X, reset=reset, dtype="numeric")
        steps = np.round(4 * X).astype(np.int64)
        return [" ".join(f"f{j}x{v}" for j, v in enumerate(row)) for row in steps.tolist()]

    def fit(self, X, y=None):
        return super().fit(self._texts(X, True))

    def transform(self, X):
        self._check_fitted()
        return super().transform(self._texts(X, False))


def the_checks():
    with warnings.catch_warnings():  # that we do not inherit from BaseEstimator: on purpose
        warnings.simplefilter("ignore", UserWarning)
        generator = estimator_checks_generator(NumbersAsWords(), legacy=True)
        return [pytest.param(check, id=check.func.__name__) for _, check in generator]


@pytest.mark.parametrize("check", the_checks())
def test_scikit_learns_own_checks(check):
    check(NumbersAsWords())


def test_there_are_many_checks():
    names = {check.id for check in the_checks()}
    assert len(names) > 30
    assert {"check_transformer_general", "check_transformers_unfitted"} <= names


@pytest.fixture(scope="module")
def sentences():
    """Texts and their languages, three of them."""
    table = demo.read_sentences()
    languages = table["language"].to_pylist()
    keep = [i for i, x in enumerate(languages) if x in ("Dutch", "German", "Swedish")]
    some = table.take(keep[::4])
    return some["text"].to_pylist(), some["language"].to_pylist()


@pytest.fixture(scope="module")
def fitted(sentences):
    return TextVectorizer(**SMALL).fit(sentences[0])


def test_vectors_have_length_one(fitted, sentences):
    found = fitted.transform(sentences[0][:50])
    assert found.dtype == np.float32
    assert found.shape == (50, 8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


def test_texts_without_words_are_zeros(fitted):
    np.testing.assert_array_equal(fitted.transform(["", "?!", None]), np.zeros((3, 8)))
    assert fitted.transform([]).shape == (0, 8)


def test_vectors_are_means_of_word_vectors(sentences):
    plain = TextVectorizer(**SMALL, normalize=False).fit(sentences[0])
    words = plain.vectors_[["guten", "tag"]]
    np.testing.assert_allclose(plain.transform(["Guten Tag!"])[0], words.mean(axis=0), rtol=1e-4)


@given(st.lists(st.text(max_size=40), max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_text_has_the_same_vector_alone_and_among_others(fitted, texts):
    together = fitted.transform(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_array_equal(fitted.transform([text])[0], vector)


def test_same_bits_for_any_number_of_threads(sentences):
    one = TextVectorizer(**SMALL, threads=1).fit_transform(sentences[0])
    three = TextVectorizer(**SMALL, threads=3).fit_transform(sentences[0])
    np.testing.assert_array_equal(one, three)


def test_given_vectors_and_their_file(sentences, tmp_path):
    vectors = WordVectors(embedding_dim=8, passes=2).fit(sentences[0])
    vectors.save(tmp_path / "v.safetensors", for_training=True)
    from_object = TextVectorizer(vectors=vectors).fit([]).transform(sentences[0][:5])
    from_file = (
        TextVectorizer(vectors=tmp_path / "v.safetensors").fit(None).transform(sentences[0][:5])
    )
    np.testing.assert_array_equal(from_object, from_file)
    assert np.abs(from_object).sum() > 0


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        (3, TypeError, "vectors must be WordVectors or the path of a file with them, found int"),
        (WordVectors(), ValueError, "vectors must be trained: call fit of these WordVectors first"),
        ("none.safetensors", FileNotFoundError, "none.safetensors"),
    ],
)
def test_bad_vectors_are_refused(vectors, error, message):
    with pytest.raises(error, match=message):
        TextVectorizer(vectors=vectors).fit(["a text"])


def test_too_little_text_is_refused():
    with pytest.raises(ValueError, match="found no word that occurs 2 times"):
        TextVectorizer().fit(["every word once"])


def test_in_a_pipeline_and_a_grid_search(sentences):
    texts, labels = sentences
    pipeline = make_pipeline(TextVectorizer(**SMALL), LogisticRegression(max_iter=500))
    search = GridSearchCV(pipeline, {"textvectorizer__normalize": [True, False]}, cv=2)
    search.fit(texts, labels)
    assert search.best_score_ > 0.6
    names = search.best_estimator_[:-1].get_feature_names_out()
    assert names.tolist() == [f"textvectorizer{i}" for i in range(8)]


def test_as_a_data_frame(fitted, sentences):
    framed = clone(fitted).set_output(transform="pandas").fit(sentences[0])
    frame = framed.transform(pd.Series(sentences[0][:3], index=[7, 5, 3]))
    assert frame.index.tolist() == [7, 5, 3]
    assert frame.columns[-1] == "textvectorizer7"


def test_clones_and_pickles(fitted, sentences):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not is_classifier(copy)
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError, match="call fit first"):
        copy.transform(["x"])
    loaded = pickle.loads(pickle.dumps(fitted))
    texts = sentences[0][:5]
    np.testing.assert_array_equal(loaded.transform(texts), fitted.transform(texts))
    assert copy.set_params(seed=3).seed == 3
    with pytest.raises(ValueError, match="unknown parameter 'sed' of TextVectorizer"):
        copy.set_params(sed=3)
