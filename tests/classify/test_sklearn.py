"""TextClassifier among scikit-learn's tools, and under scikit-learn's own checks.

The checks feed matrices of numbers, so they see `NumbersAsText`: a row becomes a text with one word
for each feature, and everything else is TextClassifier's.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from hashembed import TextClassifier
from hashembed.cli import demo_task as demo


class NumbersAsText(TextClassifier):
    """A row of numbers as a text: 'f0x12 f1x-3', each number in steps of a quarter."""

    def __init__(self, *, passes=8, batch_size=8, seed=0, threads=1, class_weight=None):
        super().__init__(
            passes=passes,
            batch_size=batch_size,
            seed=seed,
            threads=threads,
            class_weight=class_weight,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        tags.input_tags.string = False
        return tags

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in NumbersAsText.__init__.__kwdefaults__}

    def _texts(self, X, reset):
        X = validate_data(self, X, reset=reset, dtype="numeric")
        steps = np.round(4 * X).astype(np.int64)
        return [" ".join(f"f{j}x{v}" for j, v in enumerate(row)) for row in steps.tolist()]

    def fit(self, X, y, sample_weight=None):
        texts = self._texts(X, True)
        names = {
            k: getattr(self, k) for k in ("n_features_in_", "feature_names_in_") if k in vars(self)
        }
        super().fit(texts, y, sample_weight)
        vars(self).update(names)
        return self

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        texts = self._texts(X, not hasattr(self, "n_features_in_"))
        names = {
            k: getattr(self, k) for k in ("n_features_in_", "feature_names_in_") if k in vars(self)
        }
        super().partial_fit(texts, y, classes, sample_weight)
        vars(self).update(names)
        return self

    def _ask(self, method, X):
        self._check_fitted()
        return getattr(super(), method)(self._texts(X, False))

    def predict(self, X):
        return self._ask("predict", X)

    def predict_proba(self, X):
        return self._ask("predict_proba", X)

    def decision_function(self, X):
        return self._ask("decision_function", X)

    def transform(self, X):
        return self._ask("transform", X)

    def fit_transform(self, X, y, **fit_params):
        return self.fit(X, y, **fit_params).transform(X)

    def score(self, X, y, sample_weight=None):
        self._check_fitted()
        return super().score(self._texts(X, False), y, sample_weight)


EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "training goes in batches at a falling rate, so a text of weight 2 is not the same as the "
        "text twice: the order of the batches differs"
    ),
}


def the_checks():
    with warnings.catch_warnings():  # that we do not inherit from BaseEstimator: on purpose
        warnings.simplefilter("ignore", UserWarning)
        generator = estimator_checks_generator(NumbersAsText(), legacy=True)
        return [pytest.param(check, id=check.func.__name__) for _, check in generator]


@pytest.mark.parametrize("check", the_checks())
def test_scikit_learns_own_checks(check):
    if check.func.__name__ in EXCEPTIONS:
        with pytest.raises(AssertionError, match="not equivalent to fitting with removed"):
            check(NumbersAsText())
    else:
        check(NumbersAsText())


def test_there_are_many_checks():
    names = {check.id for check in the_checks()}
    assert len(names) > 50
    assert {"check_transformer_general", "check_transformers_unfitted"} <= names


@pytest.fixture(scope="module")
def sentences():
    """Texts and their languages, three of them."""
    table = demo.read_sentences()
    keep = [
        i
        for i, x in enumerate(table["language"].to_pylist())
        if x in ("Dutch", "German", "Swedish")
    ]
    some = table.take(keep[::4])
    return some["text"].to_pylist(), some["language"].to_pylist()


SMALL = {"ngrams": (1, 1), "subwords": (2, 3), "num_embeddings": 5000, "batch_size": 32}
SMALL |= {"effort": "fast"}


def test_in_a_pipeline(sentences):
    texts, labels = sentences
    steps = [
        ("shout", FunctionTransformer(lambda x: [t.upper() for t in x])),
        ("clf", TextClassifier(**SMALL)),
    ]
    pipeline = Pipeline(steps).fit(texts, labels, clf__sample_weight=np.ones(len(texts)))
    assert pipeline.score(texts, labels) > 0.95
    assert pipeline.set_params(clf__passes=3)["clf"].passes == 3


@pytest.mark.parametrize("settings", [{}, {"members": 2}])
def test_vectors_for_another_estimator(sentences, settings):
    texts, labels = sentences
    vectorizer = TextClassifier(**SMALL, embedding_dim=4, **settings)
    pipeline = make_pipeline(vectorizer, LogisticRegression(max_iter=500)).fit(texts, labels)
    assert pipeline.score(texts, labels) > 0.95
    width = 4 * settings.get("members", 1)
    names = pipeline[:-1].get_feature_names_out()
    assert names.tolist() == [f"textclassifier{i}" for i in range(width)]
    vectors = vectorizer.transform(texts[:5])
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, width)
    np.testing.assert_array_equal(vectorizer.transform(["", "?!"]), np.zeros((2, width)))
    fresh = TextClassifier(**SMALL, embedding_dim=4, **settings)
    np.testing.assert_array_equal(fresh.fit_transform(texts, labels)[:5], vectors)


def test_vectors_are_what_the_last_layer_sees(sentences):
    texts, labels = sentences
    clf = TextClassifier(**SMALL).fit(texts, labels)
    tables = clf.model_.tables
    want = clf.transform(texts) @ tables.W.T + tables.bias
    np.testing.assert_allclose(
        clf.decision_function(texts), want[:, 1] - want[:, 0], rtol=1e-4, atol=1e-4
    )


def test_vectors_as_a_data_frame(sentences):
    texts, labels = sentences
    pipeline = make_pipeline(TextClassifier(**SMALL)).set_output(transform="pandas")
    column = pd.Series(texts[:3], index=[7, 5, 3])
    frame = clone(pipeline).fit(texts, labels).transform(column)
    assert frame.index.tolist() == [7, 5, 3]
    assert frame.columns[-1] == "textclassifier15"
    with pytest.raises(ValueError, match="transform must be one of 'default', 'pandas'"):
        TextClassifier().set_output(transform="polars")


def test_under_a_grid_search(sentences):
    search = GridSearchCV(TextClassifier(**SMALL), {"passes": [1, 3], "lowercase": [True]}, cv=2)
    search.fit(*sentences)
    assert search.best_params_["passes"] in (1, 3)
    assert search.best_estimator_.predict(sentences[0][:3]).shape == (3,)
    assert search.best_score_ > 0.8


def test_in_cross_validation(sentences):
    scores = cross_val_score(TextClassifier(**SMALL), *sentences, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.8
    log_losses = cross_val_score(TextClassifier(**SMALL), *sentences, cv=3, scoring="neg_log_loss")
    assert log_losses.min() > -1


@pytest.mark.parametrize("classes", [2, 3])
def test_calibrated(sentences, classes):
    texts, labels = sentences
    chosen = sorted(set(labels))[:classes]
    texts, labels = zip(
        *[(t, y) for t, y in zip(*sentences, strict=True) if y in chosen], strict=True
    )
    model = CalibratedClassifierCV(TextClassifier(**SMALL), cv=2).fit(list(texts), list(labels))
    p = model.predict_proba(list(texts))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (model.predict(list(texts)) == np.array(labels)).mean() > 0.9


def test_clones_are_untrained_and_equal(sentences):
    trained = TextClassifier(**SMALL, class_weight={"German": 2.0}).fit(*sentences)
    copy = clone(trained)
    assert copy.get_params() == trained.get_params()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.predict(["x"])
    check_is_fitted(trained)
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    assert is_classifier(copy)
