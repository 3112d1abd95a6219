"""What a trained classifier answers: predictions, vectors, evaluations, explanations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hashembed.classify.answers import THRESHOLD, best, chosen, limits
from hashembed.classify.engine_plan import EnginePlan
from hashembed.classify.estimator import Estimator
from hashembed.classify.stream_position import StreamPosition
from hashembed.core.arrays import F32
from hashembed.engine.history import History
from hashembed.engine.linear import LinearModel, linear
from hashembed.engine.outputs import fill_logarithms
from hashembed.engine.protocol import Engine, to_probabilities
from hashembed.engine.shallow.texts import classes_of, score_texts
from hashembed.text.config import Punctuation, Repeats, TextConfig
from hashembed.text.pipeline import text_to_bags

if TYPE_CHECKING:
    from hashembed.classify.calibrating import Calibration
    from hashembed.classify.choose.budget import Effort
    from hashembed.classify.choose.search import Search
    from hashembed.classify.choose.trial import Metric
    from hashembed.classify.compress.report import Compression
    from hashembed.classify.explain.corpus_table import WordsTable
    from hashembed.classify.explain.result import Explanation
    from hashembed.classify.metrics import Evaluation
    from hashembed.classify.pretrained.part import VectorPart
    from hashembed.classify.pretrained.sources import Source
    from hashembed.classify.report import FitReport
    from hashembed.classify.tally import Tally
    from hashembed.classify.targets import Form, Targets


BLOCK = 1 << 20  # logits turned into probabilities at a time, in float64


class NotShallowError(TypeError):
    """Raised when only a linear model on the CPU can do what was asked."""


class TrainedClassifier(Estimator):
    """The part of `TextClassifier` that needs a trained model. `TextClassifier` adds training."""

    # The constructor's arguments.
    ngrams: tuple[int, int] | Literal["auto"]
    subwords: tuple[int, int] | Literal["auto"] | None
    lowercase: bool
    punctuation: Punctuation | Literal["auto"]
    repeats: Repeats | Literal["auto"]
    embedding_dim: int | None
    num_hashes: int
    num_embeddings: int | None
    num_buckets: int | None
    members: int | None
    pretrained: "Source | None"
    device: str
    passes: int | None
    learning_rate: float | None
    batch_size: int | None
    validation_fraction: float
    patience: int | None
    class_weight: str | Mapping[Any, float] | None
    effort: "Effort"
    time_limit: float | None
    metric: "Metric"
    seed: int
    threads: int | None
    verbose: bool

    # What training sets.
    text_config_: TextConfig
    classes_: npt.NDArray[Any]
    label_form_: "Form"
    class_counts_: npt.NDArray[np.int64]
    texts_seen_: int
    engine_plan_: EnginePlan
    model_: Engine
    report_: "FitReport"
    search_: "Search | None"
    calibration_: "Calibration | None"
    history_: History
    packed_: bool = False  # whether it is saved with packed tables: a compressed model
    compression_: "Compression | None" = None
    vectors_: "VectorPart | None" = None  # what pretrained vectors add to the logits
    stream_rate_: float | None  # learning rate of `partial_fit`, chosen in its first call
    stream_position_: StreamPosition

    def predict_proba(self, texts: Any) -> F32:
        """Return probabilities (texts, classes), with the columns in the order of `classes_`.

        A text without words gets the class frequencies of the training data.
        """
        return self._probabilities(*self._scored(texts))

    def decision_function(self, texts: Any) -> F32:
        """Return logits (texts, classes). With two classes: second minus first, shape (texts,)."""
        z = self._logits(texts)
        if z.shape[1] == 2 and not self._multilabel:
            return np.asarray(z[:, 1] - z[:, 0])
        return z

    def predict(self, texts: Any, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Return the most likely class of each text. A multi-label model returns all likely labels.

        Args:
            texts: one str for each document.
            threshold: for multi-label models: return the labels with a probability above it. None
                (default) is `threshold_`. For a model with one label per text, use `predict_top`.
        """
        model = self._fitted()
        if self.label_form_ == "single" and threshold is None and self.vectors_ is None:
            found = classes_of(model, self.text_config_, texts)
            if found:
                return self.classes_.take(found)  # faster than an index
        z = self._logits(texts)
        if self._multilabel:
            from hashembed.classify.targets import decode

            given = chosen(z, True, *self._limits(threshold, None))
            return decode(given, self.classes_, self.label_form_)
        if threshold is not None:
            raise ValueError(
                "threshold needs a multi-label model, but this model gives every text exactly one "
                "label: use predict_top(texts, 1, threshold=...), which can give none"
            )
        likeliest: npt.NDArray[Any] = self.classes_[z.argmax(axis=1)]
        return likeliest

    def predict_top(
        self, texts: Any, k: int | None = 5, *, threshold: float | None = None
    ) -> list[list[tuple[Any, float]]]:
        """Return the k most likely classes of each text and their probabilities, likeliest first.

        Args:
            texts: one str for each document.
            k: most classes for each text (default 5). None returns all classes.
            threshold: return only classes with a probability above it, possibly none. None
                (default) sets no limit.

        Example:
            >>> clf = TextClassifier(batch_size=1).fit(["good film", "bad film"], ["+", "-"])
            >>> [[label for label, probability in found] for found in clf.predict_top(["good"], 1)]
            [['+']]
        """
        z, empty = self._scored(texts)
        if k is not None or threshold is not None:
            threshold, k = limits(self._multilabel, threshold, k)
        order = best(z, k)
        chances = np.take_along_axis(self._probabilities(z, empty), order, axis=1)
        above = np.take_along_axis(chosen(z, self._multilabel, threshold, None), order, axis=1)
        classes = self.classes_.tolist()
        return [
            [(classes[c], p) for c, p, given in zip(*row, strict=True) if given]
            for row in zip(order.tolist(), chances.tolist(), above.tolist(), strict=True)
        ]

    def transform(self, texts: Any) -> Any:
        """Return the vectors of texts (texts, d), float32: the sums of their n-grams' vectors.

        These vectors are the input of the output layer. An ensemble returns the vectors of all
        members, concatenated. The vector of a text without words is zero. Pretrained vectors are
        not included: `TextVectorizer` returns them. In a scikit-learn
        pipeline the vectors are features for another estimator.
        """
        model = self._fitted()
        vectors = model.vectors(text_to_bags(texts, self.text_config_, self.threads))
        return self._output(vectors, texts)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the column names of `transform`: textclassifier0, textclassifier1, ..."""
        self._check_fitted()
        width = self.engine_plan_.embedding_dim * self.engine_plan_.members
        name = type(self).__name__.lower()
        return np.array([f"{name}{i}" for i in range(width)], object)

    def evaluate(
        self,
        texts: Any,
        labels: Any,
        *,
        threshold: float | None = None,
        top: int | None = None,
    ) -> "Evaluation":
        """Compute accuracy, the confusion matrix, and precision, recall and F1 of each class.

        Log loss, average precision and calibration error tell how good the probabilities are. They
        do not depend on `threshold` and `top`.

        By default a multi-label model answers with the labels above 0.5, any other model with the
        likeliest class. With `threshold` or `top`, a model with one label per text may give several
        answers, or none. A text is then right if its label is among them.

        Args:
            texts: one str for each document.
            labels: the true labels, in a form that `fit` takes.
            threshold: count all labels with a probability above it.
            top: count at most this many answers for each text, as fastText's precision and recall
                at k do.
        """
        return self.tally(texts, labels, threshold=threshold, top=top).evaluation()

    def tally(
        self, texts: Any, labels: Any, *, threshold: float | None = None, top: int | None = None
    ) -> "Tally":
        """Count what `evaluate` reports. The tallies of parts of a corpus can be added."""
        from hashembed.classify.tally import tally_answers

        truth, answers, z, empty = self._judged(texts, labels, threshold, top)
        p = np.empty_like(z)
        size = max(BLOCK // max(z.shape[1], 1), 1)
        for start in range(0, len(z), size):
            rows = slice(start, start + size)
            p[rows] = self._probabilities(z[rows], empty[rows])
        return tally_answers(
            truth.labels,
            answers,
            truth.classes.tolist(),
            self._multilabel,
            logits=z,
            probabilities=p,
            threshold=threshold,
            top=top,
        )

    def score(self, texts: Any, labels: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the share of texts with the right label. Multi-label: with exactly its labels."""
        from hashembed.classify.tally import right_texts

        truth, answers, *_ = self._judged(texts, labels, None, None)
        right = right_texts(truth.labels, answers, len(truth.classes), self._multilabel)
        if sample_weight is None:
            return float(right.sum() / max(len(right), 1))
        return float(np.average(right, weights=np.asarray(sample_weight, np.float64)))

    def explain(self, text: str, class_: Any = None) -> "Explanation":
        """Show how much each n-gram of a text adds to the logit of each class.

        The explanation is exact: contributions and bias add up to the logit, on a GPU up to
        rounding. With pretrained vectors, the contribution of a word includes what its vector adds;
        the length of the text's mean vector, by which all are divided, is taken as it is. An
        ensemble from an older file, which averages probabilities, is an exception. There the
        contribution of an n-gram is what the logit loses without it, and `unexplained` is the
        difference to the logit. A text without words is explained by the class frequencies alone.

        Args:
            text: one text.
            class_: the class that the result is printed for. None (default) is the likeliest.
        """
        from hashembed.classify.explain.parts import parts_of
        from hashembed.classify.explain.text import explain_by_occlusion, explain_text

        if not isinstance(text, str):
            raise TypeError(f"explain takes one text, a str, found {type(text).__name__}")
        model = self._fitted()
        classes = self.classes_.tolist()
        if parts_of(model):
            found = explain_text(model, self.text_config_, classes, text)
        else:
            found = explain_by_occlusion(
                model.scores, self.text_config_, classes, text, multilabel=self._multilabel
            )
        if found.ngrams and self.vectors_ is not None:
            from hashembed.classify.pretrained.explaining import add_words

            found = add_words(found, self.vectors_)
        if not found.ngrams:
            prior = self._prior_logits().astype(np.float64)
            found = replace(found, bias=prior, logits=prior)
        return found if class_ is None else found.about(class_)

    def important_ngrams(self, texts: Any, **options: Any) -> "WordsTable":
        """Find the n-grams of any corpus that matter most and least to the model.

        No dictionary is needed. What pretrained vectors add is not counted. The options are those
        of `hashembed.classify.explain.corpus.important_ngrams`.
        """
        from hashembed.classify.explain.corpus import important_ngrams

        model = shallow_model(self, "rank n-grams by importance")
        return important_ngrams(model, self.text_config_, self.classes_.tolist(), texts, **options)

    @property
    def prior_(self) -> F32:
        """The class frequencies of the training data: the answer for a text without words."""
        counts = self.class_counts_.astype(np.float64)
        if self._multilabel:
            return np.asarray(counts / max(self.texts_seen_, 1), np.float32)
        total = counts.sum()
        shares = counts / total if total else np.full(len(counts), 1 / max(len(counts), 1))
        return np.asarray(shares, np.float32)

    @property
    def _multilabel(self) -> bool:
        return bool(self.label_form_ != "single")

    def _fitted(self) -> Engine:
        self._check_fitted()
        return self.model_

    def _logits(self, texts: Any) -> F32:
        return self._scored(texts)[0]

    def _scored(self, texts: Any) -> tuple[F32, npt.NDArray[np.bool_]]:
        """Logits (texts, classes), and which texts have no word."""
        model = self._fitted()
        if self.vectors_ is not None and type(texts) is not list:
            from hashembed.text.arrow import to_arrow

            texts = to_arrow(texts)  # an iterator can be read only once
        found = score_texts(model, self.text_config_, texts)
        if found is None:
            bags = text_to_bags(texts, self.text_config_, self.threads)
            found = model.scores(bags), bags.lengths
        z, lengths = found
        if self.vectors_ is not None:
            z += self.vectors_.scores(texts)
        empty = lengths == 0
        if empty.any():
            z[empty] = self._prior_logits()
        return z, empty

    def _probabilities(self, z: F32, empty: npt.NDArray[np.bool_]) -> F32:
        p = to_probabilities(z, self._multilabel)
        p[empty] = self.prior_  # not through its logits, which are clipped at one in a million
        return p

    @property
    def threshold_(self) -> float:
        """The probability above which a multi-label model gives a label; 0.5 unless calibrated."""
        self._fitted()
        return THRESHOLD if self.calibration_ is None else self.calibration_.threshold

    def _limits(self, threshold: float | None, top: int | None) -> tuple[float | None, int | None]:
        if not self.__sklearn_is_fitted__():
            return limits(False, threshold, top)
        return limits(self._multilabel, threshold, top, self.threshold_)

    def _prior_logits(self) -> F32:
        prior = np.clip(self.prior_.astype(np.float64), 1e-6, 1 - 1e-6)
        logits = np.empty_like(prior)
        fill_logarithms(prior / (1 - prior) if self._multilabel else prior, logits)
        return logits.astype(np.float32)

    def _judged(
        self, texts: Any, labels: Any, threshold: float | None, top: int | None
    ) -> "_Judged":
        from hashembed.classify.targets import check_counts, encode

        asked = self._limits(threshold, top)
        z, empty = self._scored(texts)
        truth = encode(labels, self.classes_, self.label_form_)
        check_counts(len(z), truth)
        return _Judged(truth, chosen(z, self._multilabel, *asked), z, empty)


class _Judged(NamedTuple):
    """The true labels, and what the model says."""

    truth: "Targets"
    answers: npt.NDArray[np.bool_]  # (texts, classes that the model knows)
    logits: F32
    empty: npt.NDArray[np.bool_]  # (texts,), which have no word


def shallow_model(clf: TrainedClassifier, wish: str) -> LinearModel:
    """Return the model if it is a linear one. Otherwise raise: `wish` needs one."""
    model = linear(clf._fitted())
    if model is None:
        plan = clf.engine_plan_
        found = "is an ensemble that averages probabilities"
        if not plan.shallow:
            found = f"runs on {plan.device}"
        raise NotShallowError(f"only shallow models on the CPU can {wish}, but this model {found}")
    return model
