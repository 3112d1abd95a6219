"""`TextClassifier`: from labelled text to a small model, in the manner of scikit-learn."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hashembed.classify.answers import best, chosen, limits
from hashembed.classify.engine_plan import DEEP_RATE, EnginePlan, choose_device, deep_passes
from hashembed.classify.estimator import Estimator
from hashembed.classify.explain.corpus import important_ngrams
from hashembed.classify.explain.corpus_table import WordsTable
from hashembed.classify.explain.result import Explanation
from hashembed.classify.explain.text import explain_by_occlusion, explain_text
from hashembed.classify.metrics import Evaluation, evaluate_answers, right_texts
from hashembed.classify.model_file import load_classifier, save_classifier
from hashembed.classify.report import FitReport
from hashembed.classify.stream_position import StreamPosition
from hashembed.classify.targets import Form, Targets, decode, encode, join
from hashembed.core.arrays import F32
from hashembed.core.threads import uninterrupted
from hashembed.engine.defaults import (
    TrainConfig,
    check_learning_rate,
    default_batch,
    default_passes,
    default_rate,
)
from hashembed.engine.history import History
from hashembed.engine.labels import (
    Labels,
    check_class_weight,
    document_weights,
    sample_weights,
    split,
    weigh_classes,
)
from hashembed.engine.loop import Hooks, Progress, fit
from hashembed.engine.progress import Display, training_bar
from hashembed.engine.protocol import Engine, to_probabilities
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.training_state import (
    TrainingState,
    fingerprint,
    load_training_state,
    save_training_state,
)
from hashembed.hashing.bags import Bags
from hashembed.hashing.sizes import choose_dim, choose_sizes
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import Punctuation, TextConfig
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.key_store import KeyStore
from hashembed.text.pipeline import text_to_bags

PATIENT_PASSES = 100  # the most that patience may wait through, unless `passes` is given
STREAM_BATCH = 128  # texts that a stream is answered and learned by
STREAM_EMBEDDINGS = 1_000_000  # K where the text is not known beforehand


class TextClassifier(Estimator):
    """Classifies texts by the hash vectors of their n-grams.

    Args:
        ngrams: orders of word n-grams, lowest and highest.
        subwords: lengths of character n-grams of words, or None.
        lowercase: whether case is ignored.
        punctuation: "drop" it, or "keep" runs of it (`++`, `:-)`) as words of their own.
        embedding_dim: d; None chooses by the number of classes. num_hashes: k.
        num_embeddings, num_buckets: K and B; None sizes them by the distinct n-grams of the text.
        hidden_layers: widths of layers between the bag and the output (needs torch); none is the
            paper's shallow model, which is fast, and at least as accurate on most sets.
        members: an ensemble of so many models, each with its own hash functions, that vote.
        device: "cpu", "cuda", or "auto", a GPU where there is one (needs torch).
        passes: over the training data. learning_rate: the first. None takes what suits the model
            and the lengths of the texts.
        batch_size: documents in a step; None chooses by their length.
        validation_fraction: part of the data to validate on.
        patience: stop after so many passes without a better validation loss, and keep the best
            pass; needs validation data. Unless `passes` is given, there may be up to 100.
        class_weight: "balanced" makes rare classes weigh as much as common ones, "sqrt" goes half
            of that way; or a dictionary with the weight of each class (`docs/guides/imbalance.md`).
        seed: the same seed gives the same model, for any number of threads.
        threads: None is all cores.
        verbose: show a progress bar, each pass and a summary, on standard error.

    After training: `classes_`; `class_counts_`, the documents of each; `report_`, what was read
    and the sizes that were chosen; `history_`, each pass.

    Labels may be str, int or bool. Lists of labels, or a matrix of zeros and ones, train a
    multi-label model: a text may have any number of them.

    Example:
        >>> clf = TextClassifier().fit(["good film", "bad film", "a good one"], ["+", "-", "+"])
        >>> clf.predict(["good"]).tolist()
        ['+']
    """

    text_config_: TextConfig
    classes_: npt.NDArray[Any]
    label_form_: Form
    class_counts_: npt.NDArray[np.int64]
    texts_seen_: int
    engine_plan_: EnginePlan
    model_: Engine
    report_: FitReport
    history_: History
    stream_rate_: float
    stream_position_: StreamPosition

    def __init__(
        self,
        *,
        ngrams: tuple[int, int] = (1, 2),
        subwords: tuple[int, int] | None = None,
        lowercase: bool = True,
        punctuation: Punctuation = "drop",
        embedding_dim: int | None = None,
        num_hashes: int = 2,
        num_embeddings: int | None = None,
        num_buckets: int | None = None,
        hidden_layers: tuple[int, ...] = (),
        members: int = 1,
        device: str = "cpu",
        passes: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        seed: int = 0,
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.ngrams = ngrams
        self.subwords = subwords
        self.lowercase = lowercase
        self.punctuation = punctuation
        self.embedding_dim = embedding_dim
        self.num_hashes = num_hashes
        self.num_embeddings = num_embeddings
        self.num_buckets = num_buckets
        self.hidden_layers = hidden_layers
        self.members = members
        self.device = device
        self.passes = passes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.seed = seed
        self.threads = threads
        self.verbose = verbose

    def fit(
        self,
        texts: Any,
        labels: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callable[[Progress], object]] = (),
    ) -> Self:
        """Train on texts (a column or list of str) and their labels.

        validation: texts and labels to validate on, instead of a part of the data.
        checkpoint: a file that is written after every pass. If it exists, training resumes from it
            and ends with the model of an uninterrupted run, bit-identical.
        callbacks: are told how training proceeds.

        Ctrl-C is raised, as any exception is, but leaves a model that can be used: that of the best
        validated pass, or as far as it had come. `history_.stopped` says so. A loss that is no
        longer finite raises `LossNotFiniteError` (an ArithmeticError), unless there is a validated
        pass to return to: then it is a warning.
        """
        config = self._text_config()
        bags = text_to_bags(texts, config, self.threads)
        return self._fit(
            config, bags, encode(labels), sample_weight, validation, checkpoint, callbacks
        )

    def fit_batches(
        self,
        batches: Iterable[tuple[Any, Any]],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callable[[Progress], object]] = (),
    ) -> Self:
        """The same, from batches of (texts, labels): for what does not fit into memory as text.

        With `cache_dir` the keys (8 bytes an n-gram) go to a file there, and memory holds one
        batch, the model, and 16 bytes a text. The model is the one that `fit` gives.
        """
        config = self._text_config()
        with KeyStore(cache_dir) if cache_dir is not None else nullcontext() as store:
            parts: list[Bags] = []
            targets: Targets | None = None
            labelled: list[Targets] = []
            for texts, labels in batches:
                bags = text_to_bags(texts, config, self.threads)
                targets = encode(labels, None if targets is None else targets.classes)
                labelled.append(targets)
                _check_counts(len(bags), targets)
                if store is None:
                    parts.append(bags)
                else:
                    store.add(bags)
            if not labelled:
                raise ValueError("found no texts to train on")
            whole = Bags.concat(parts) if store is None else store.bags()
            return self._fit(config, whole, join(labelled), None, validation, checkpoint, callbacks)

    def _fit(
        self,
        text_config: TextConfig,
        bags: Bags,
        targets: Targets,
        sample_weight: npt.ArrayLike | None,
        validation: tuple[Any, Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        callbacks: Sequence[Callable[[Progress], object]],
    ) -> Self:
        self._check_validation(validation is not None)
        weights, targets = self._weights(bags, targets, sample_weight)
        distinct = count_distinct(bags.keys, self.threads)
        config = self._train_config(bags, len(targets.classes), distinct)
        sizes = choose_sizes(distinct, self.num_embeddings, self.num_buckets)
        held_out = None
        if validation is not None:
            held_out = self._held_out(text_config, targets, *validation)
        self._begin(text_config, targets, sizes)
        self._count(targets)
        self.report_ = self._report(bags, distinct)
        train, labels = bags, targets.labels
        if validation is None and self.validation_fraction:
            kept, held = split(len(bags), self.validation_fraction, self.seed)
            held_out = bags.take(held), labels.take(held)
            train, labels = bags.take(kept), labels.take(kept)
            weights = None if weights is None else weights[kept]
        save = resume = None
        if checkpoint is not None:
            given = (weights, labels.class_weights)
            made_of: list[npt.NDArray[Any]] = [array for array in given if array is not None]
            for rows, truth in filter(None, ((train, labels), held_out)):
                made_of += [rows.keys, rows.offsets, truth.labels, truth.offsets]
            run = fingerprint((self.engine_plan_, config, text_config), made_of)
            resume = load_training_state(checkpoint, run, self.model_)

            def save(state: TrainingState) -> None:
                save_training_state(checkpoint, state, run)

        self.history_ = History()
        with self._progress(config.passes, len(train)) as bar:
            fit(
                self.model_,
                train,
                labels,
                config,
                weights=weights,
                validation=held_out,
                hooks=Hooks([*callbacks, bar.update], bar.finish_pass, save),
                resume=resume,
                history=self.history_,
            )
        if self.verbose and (outcome := self.history_.outcome()):
            print(outcome, file=sys.stderr)
        return self

    def partial_fit(
        self,
        texts: Any,
        labels: Any,
        classes: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn from some more texts, in their order, in one pass; new labels are welcome.

        The first call of all makes the tables (K is a million unless given: nothing grows later).
        A new label gets a row of its own at the end of `classes_`; what the model says of the
        others stays as it is. Online learning depends on the order: what came last counts most.
        `classes`, known beforehand, may be named in the first call.
        """
        if self.class_weight in ("balanced", "sqrt"):
            raise ValueError(
                f'class_weight="{self.class_weight}" needs all labels at once: '
                "give a dictionary of weights, or sample_weight"
            )
        check_learning_rate(self.learning_rate)
        fresh = not self._is_fitted()
        if fresh:
            targets = encode(labels, self._known(classes))
        else:
            targets = encode(labels, self.classes_, self.label_form_)
        text_config = self._text_config() if fresh else self.text_config_
        bags = text_to_bags(texts, text_config, self.threads)
        weights, targets = self._weights(bags, targets, sample_weight, more_may_come=True)
        # An interrupt comes before all of it or after: what was learned is always counted.
        uninterrupted(lambda: self._learn(text_config, bags, targets, weights))
        return self

    def _learn(
        self, text_config: TextConfig, bags: Bags, targets: Targets, weights: F32 | None
    ) -> None:
        if not self._is_fitted():
            rows = self.num_embeddings or STREAM_EMBEDDINGS
            self._begin(text_config, targets, choose_sizes(rows, rows, self.num_buckets))
            self.history_ = History()
        if more := len(targets.classes) - len(self.classes_):
            self._shallow("learn new labels").grow(len(targets.classes))
            self.classes_ = targets.classes
            self.class_counts_ = np.append(self.class_counts_, np.zeros(more, np.int64))
        if not hasattr(self, "stream_rate_"):
            rate = self.learning_rate or (DEEP_RATE if self.hidden_layers else None)
            self.stream_rate_ = rate or default_rate(bags, len(self.classes_))
        size = self.batch_size or STREAM_BATCH
        steps = -(-len(bags) // size)
        self.model_.train(
            bags,
            targets.labels,
            np.arange(len(bags)),
            np.full(steps, self.stream_rate_, np.float32),
            batch_size=size,
            weights=weights,
            snippets=None,
        )
        self._count(targets)
        self.report_ = self._report(bags, 0)

    def predict_proba(self, texts: Any) -> F32:
        """Probabilities (texts, classes), in the order of `classes_`.

        A text without a word gets the prior: how common the classes were in training.
        """
        return self._probabilities(*self._scored(texts))

    def decision_function(self, texts: Any) -> F32:
        """Logits (texts, classes); with two classes those of the second against the first."""
        z = self._logits(texts)
        if z.shape[1] == 2 and not self._multilabel:
            return np.asarray(z[:, 1] - z[:, 0])
        return z

    def predict(self, texts: Any, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """The most likely class of each text; of a multi-label model all that are likely.

        threshold: the probability above which a label of a multi-label model is given, 0.5 unless
            you say otherwise. Where a text has exactly one class, `predict_top` takes one.
        """
        z = self._logits(texts)
        if self._multilabel:
            given = chosen(z, True, *limits(True, threshold, None))
            return decode(given, self.classes_, self.label_form_)
        if threshold is not None:
            raise ValueError(
                "threshold is for models with several labels a text, and this one gives exactly "
                "one: predict_top(texts, 1, threshold=...) gives none to unlikely ones"
            )
        likeliest: npt.NDArray[Any] = self.classes_[z.argmax(axis=1)]
        return likeliest

    def predict_top(
        self, texts: Any, k: int | None = 5, *, threshold: float | None = None
    ) -> list[list[tuple[Any, float]]]:
        """The k most likely classes of each text with their probabilities, the likeliest first.

        With a threshold only those whose probability is above it, which may be none. k = None
        is all classes.

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
        """The vectors of texts (texts, d), float32: the sums of the vectors of their n-grams.

        They are what the model's last layer sees, or its first hidden layer; of an ensemble those
        of all members side by side. A text without a word is all zeros. In a scikit-learn pipeline
        they are features for another estimator.
        """
        model = self._fitted()
        vectors = model.vectors(text_to_bags(texts, self.text_config_, self.threads))
        return self._output(vectors, texts)

    def fit_transform(self, texts: Any, labels: Any, **fit_params: Any) -> Any:
        """`fit`, then the vectors of the same texts."""
        return self.fit(texts, labels, **fit_params).transform(texts)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The names of the columns of `transform`: textclassifier0, textclassifier1, ..."""
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
    ) -> Evaluation:
        """Accuracy, and precision, recall, F1 and confusion of the classes.

        Of the answers that the model would give, those above the `threshold` count, at most `top`
        a text (fastText's precision and recall at k). Where a text has exactly one class, it is
        right if that class is among them.
        """
        truth, answers = self._judged(texts, labels, threshold, top)
        return evaluate_answers(
            truth.labels,
            answers,
            truth.classes.tolist(),
            self._multilabel,
            threshold=threshold,
            top=top,
        )

    def score(self, texts: Any, labels: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy; of a multi-label model the share of texts with all labels right."""
        truth, answers = self._judged(texts, labels, None, None)
        right = right_texts(truth.labels, answers, len(truth.classes), self._multilabel)
        if sample_weight is None:
            return float(right.sum() / max(len(right), 1))
        return float(np.average(right, weights=np.asarray(sample_weight, np.float64)))

    def _judged(
        self, texts: Any, labels: Any, threshold: float | None, top: int | None
    ) -> tuple[Targets, npt.NDArray[np.bool_]]:
        """The truth, and the answers (texts, classes that the model knows)."""
        asked = limits(self._is_fitted() and self._multilabel, threshold, top)
        z = self._logits(texts)
        truth = encode(labels, self.classes_, self.label_form_)
        _check_counts(len(z), truth)
        return truth, chosen(z, self._multilabel, *asked)

    def explain(self, text: str, class_: Any = None) -> Explanation:
        """Which n-grams of a text spoke for which class; they add up to the logits.

        What is shown of it is about `class_`, or about the most likely class.
        Exact for one shallow model. Under hidden layers and for an ensemble it is what the logits
        lose without the n-gram, which does not quite add up: `unexplained` says by how much.
        Of a text without a word all that there is to say is how common the classes were.
        """
        if not isinstance(text, str):
            raise TypeError(f"explain takes one text, a str, found {type(text).__name__}")
        model = self._fitted()
        classes = self.classes_.tolist()
        if isinstance(model, ShallowModel):
            found = explain_text(model, self.text_config_, classes, text)
        else:
            found = explain_by_occlusion(
                model.scores, self.text_config_, classes, text, multilabel=self._multilabel
            )
        if not found.ngrams:
            prior = self._prior_logits().astype(np.float64)
            found = replace(found, bias=prior, logits=prior)
        return found if class_ is None else found.about(class_)

    def important_ngrams(self, texts: Any, **options: Any) -> WordsTable:
        """The n-grams of any corpus that matter most and least to the model, without a dictionary.

        The options are those of `hashembed.classify.explain.corpus.important_ngrams`.
        """
        model = self._shallow("tell the importance of n-grams")
        return important_ngrams(model, self.text_config_, self.classes_.tolist(), texts, **options)

    def save(
        self, path: str | os.PathLike[str], *, for_training: bool = False, bits: int = 16
    ) -> None:
        """Write the model to one safetensors file, tables in half precision.

        With `bits` 8 or 4 it is a half or a quarter as large, and nearly as accurate
        (`experiments/README.md` has numbers).

        `for_training` keeps everything, to the bit: a model that goes on learning from there
        (`partial_fit`) becomes what it would have become. Otherwise, for half the size, the
        learning rates of single rows are forgotten, and a loaded model learns on at their mean.
        """
        self._fitted()
        save_classifier(self, path, for_training, bits)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> "TextClassifier":
        """Read a model that `save` wrote."""
        loaded: TextClassifier = load_classifier(cls, path, threads)
        return loaded

    @property
    def prior_(self) -> F32:
        """How common each class was in training; the answer for a text without a word."""
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

    def _shallow(self, wish: str) -> ShallowModel:
        model = self._fitted()
        if not isinstance(model, ShallowModel):
            raise TypeError(
                f"only one shallow model on the CPU can {wish}, found hidden_layers="
                f"{self.engine_plan_.hidden_layers}, members={self.engine_plan_.members}, "
                f"device={self.engine_plan_.device!r}"
            )
        return model

    def _logits(self, texts: Any) -> F32:
        return self._scored(texts)[0]

    def _scored(self, texts: Any) -> tuple[F32, npt.NDArray[np.bool_]]:
        """Logits (texts, classes), and which texts have no word."""
        model = self._fitted()
        bags = text_to_bags(texts, self.text_config_, self.threads)
        z, empty = model.scores(bags), bags.lengths == 0
        if bags.any_empty:
            z[empty] = self._prior_logits()
        return z, empty

    def _probabilities(self, z: F32, empty: npt.NDArray[np.bool_]) -> F32:
        p = to_probabilities(z, self._multilabel)
        p[empty] = self.prior_  # itself: its logits are cut off at one in a million
        return p

    def _prior_logits(self) -> F32:
        prior = np.clip(self.prior_, 1e-6, 1 - 1e-6)
        return np.asarray(np.log(prior / (1 - prior)) if self._multilabel else np.log(prior))

    def _check_validation(self, given: bool) -> None:
        if given and self.validation_fraction:
            raise ValueError(
                f"found validation data and validation_fraction={self.validation_fraction}: "
                "give one of them"
            )
        if self.patience is not None and not given and not self.validation_fraction:
            raise ValueError(
                f"patience={self.patience} needs data to validate on: validation_fraction=0.1 "
                "holds out a tenth of the training data"
            )

    def _train_config(self, bags: Bags, classes: int, distinct: int) -> TrainConfig:
        passes, rate = self.passes, self.learning_rate
        usual = default_passes(bags, distinct)
        open_ended = passes is None and self.patience is not None
        if self.hidden_layers:
            rate, usual = rate or DEEP_RATE, deep_passes(len(bags))
        elif open_ended:
            rate = rate or default_rate(bags, classes, usual)
        return TrainConfig(
            passes=passes or (PATIENT_PASSES if open_ended else usual),
            learning_rate=rate,
            decay=bool(self.hidden_layers) and not open_ended,
            batch_size=self.batch_size or default_batch(bags),
            patience=self.patience,
            seed=self.seed,
        )

    def _text_config(self) -> TextConfig:
        return TextConfig(self.ngrams, self.lowercase, self.subwords, self.punctuation)

    def _held_out(
        self, config: TextConfig, targets: Targets, texts: Any, labels: Any
    ) -> tuple[Bags, Labels]:
        """Validation data as the training loop takes it."""
        truth = encode(labels, targets.classes, targets.form)
        bags = text_to_bags(texts, config, self.threads)
        if len(bags) != len(truth.labels):
            raise ValueError(
                f"found {len(bags):,} texts to validate on, but {len(truth.labels):,} labels"
            )
        unheard = truth.classes[len(targets.classes) :]
        if len(unheard):
            raise ValueError(
                f"validation has labels that training has not, such as {unheard.tolist()[0]!r}"
            )
        return bags, truth.labels

    def _known(self, classes: npt.ArrayLike | None) -> npt.NDArray[Any] | None:
        return None if classes is None else encode(np.asarray(classes)).classes

    def _begin(self, config: TextConfig, targets: Targets, sizes: tuple[int, int]) -> None:
        """Forget everything, and start with a model for these classes."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self.text_config_ = config
        self.classes_, self.label_form_ = targets.classes, targets.form
        self.class_counts_ = np.zeros(len(targets.classes), np.int64)
        self.texts_seen_ = 0
        self.stream_position_ = StreamPosition()
        self.engine_plan_ = EnginePlan(
            HashSpec(*sizes, self.num_hashes, seed=self.seed),
            self.embedding_dim or choose_dim(len(targets.classes)),
            tuple(self.hidden_layers),
            self.members,
            targets.multilabel,
            choose_device(self.device),
        )
        self.model_ = self.engine_plan_.make(len(targets.classes), self.threads)

    def _count(self, targets: Targets) -> None:
        before, now = self.class_counts_, targets.labels.counts(len(self.classes_))
        now[: len(before)] += before
        self.class_counts_ = now
        self.texts_seen_ += len(targets.labels)

    def _weights(
        self, bags: Bags, targets: Targets, sample_weight: Any, more_may_come: bool = False
    ) -> tuple[F32 | None, Targets]:
        """One weight a document (None is 1), and the targets, weighted where there are several.

        Of a single label the class weight is the document's; of several each has its own.
        """
        _check_counts(len(bags), targets)
        if len(bags) == 0:
            raise ValueError("found no texts to train on")
        labels, classes, wish = targets.labels, targets.classes, self.class_weight
        check_class_weight(wish, classes, more_may_come)
        given = None if sample_weight is None else sample_weights(sample_weight, len(bags))
        if targets.multilabel:
            return given, replace(targets, labels=weigh_classes(labels, classes, wish))
        of_class = document_weights(labels, classes, wish)
        if given is None or of_class is None:
            return given if of_class is None else of_class, targets
        return sample_weights(given.astype(np.float64) * of_class, len(bags)), targets

    def _report(self, bags: Bags, distinct: int) -> FitReport:
        spec = self.engine_plan_.spec
        return FitReport(
            texts=self.texts_seen_,
            empty=int((bags.lengths == 0).sum()),
            ngrams=len(bags.keys),
            distinct=distinct,
            num_embeddings=spec.num_embeddings,
            num_buckets=spec.num_buckets,
            num_hashes=spec.num_hashes,
            embedding_dim=self.engine_plan_.embedding_dim,
            parameters=self.model_.num_parameters,
            class_counts=dict(
                zip(self.classes_.tolist(), self.class_counts_.tolist(), strict=True)
            ),
        )

    def _progress(self, passes: int, documents: int) -> Any:
        if not self.verbose:
            return nullcontext(Display())
        print(self.report_, file=sys.stderr)
        return training_bar(passes, documents)


def _check_counts(texts: int, targets: Targets) -> None:
    if texts != len(targets.labels):
        raise ValueError(f"found {texts:,} texts, but {len(targets.labels):,} labels")
