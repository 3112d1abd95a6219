"""`TextClassifier`: from labelled text to a small model, in the manner of scikit-learn."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hashembed.bags import Bags
from hashembed.estimator import Estimator
from hashembed.fit_report import FitReport
from hashembed.hashing import HashSpec
from hashembed.history import History
from hashembed.labels import Labels, balanced_weights, split
from hashembed.model_file import load_classifier, save_classifier
from hashembed.progress import no_bar, training_bar
from hashembed.shallow import ShallowModel
from hashembed.sizes import choose_sizes, count_distinct
from hashembed.targets import Form, Targets, decode, encode
from hashembed.text import TextConfig, text_to_bags
from hashembed.training import Progress, TrainConfig, default_rate, fit

F32 = npt.NDArray[np.float32]

STREAM_ROWS = 1_000_000  # K where the text is not known beforehand


class TextClassifier(Estimator):
    """Classifies texts by the hash vectors of their n-grams.

    Args:
        ngrams: orders of word n-grams, lowest and highest.
        subwords: lengths of character n-grams of words, or None.
        lowercase: whether case is ignored.
        embedding_dim: d. num_hashes: k.
        num_embeddings, num_buckets: K and B; None sizes them by the distinct n-grams of the text.
        passes: over the training data. learning_rate: None takes a rule from the lengths.
        batch_size: documents in a step.
        validation_fraction: part of the data to validate on; patience: passes without a better
            validation loss after which to stop.
        class_weight: "balanced" makes rare classes weigh as much as common ones; or a dictionary
            with the weight of each class.
        seed: the same seed gives the same model, for any number of threads.
        threads: None is all cores.
        verbose: show a progress bar and a summary.

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
    model_: ShallowModel
    report_: FitReport
    history_: History
    stream_rate_: float

    def __init__(
        self,
        *,
        ngrams: tuple[int, int] = (1, 2),
        subwords: tuple[int, int] | None = None,
        lowercase: bool = True,
        embedding_dim: int = 16,
        num_hashes: int = 2,
        num_embeddings: int | None = None,
        num_buckets: int | None = None,
        passes: int = 2,
        learning_rate: float | None = None,
        batch_size: int = 256,
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
        self.embedding_dim = embedding_dim
        self.num_hashes = num_hashes
        self.num_embeddings = num_embeddings
        self.num_buckets = num_buckets
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
        callbacks: Sequence[Callable[[Progress], object]] = (),
    ) -> Self:
        """Train on texts (a column or list of str) and their labels."""
        config = self._train_config()
        text_config = TextConfig(self.ngrams, self.lowercase, self.subwords)
        targets = encode(labels)
        bags = self._bags(texts, text_config)
        weights = self._weights(bags, targets, sample_weight)
        distinct = count_distinct(bags.keys)
        sizes = choose_sizes(distinct, self.num_embeddings, self.num_buckets)
        self._begin(text_config, targets, sizes)
        self._count(targets)
        self.report_ = self._report(bags, distinct)
        train, train_labels, held_out = bags, targets.labels, None
        if self.validation_fraction:
            kept, held = split(len(bags), self.validation_fraction, self.seed)
            held_out = bags.take(held), targets.labels.take(held)
            train, train_labels = bags.take(kept), targets.labels.take(kept)
            weights = None if weights is None else weights[kept]
        with self._progress(config.passes, len(train)) as bar:
            self.history_ = fit(
                self.model_,
                train,
                train_labels,
                config,
                weights=weights,
                validation=held_out,
                callbacks=[*callbacks, *bar],
            )
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
        if self.class_weight == "balanced":
            raise ValueError(
                'class_weight="balanced" needs all labels at once: '
                "give a dictionary of weights, or sample_weight"
            )
        fresh = not self._is_fitted()
        targets = encode(labels, self._known(classes) if fresh else self.classes_)
        text_config = TextConfig(self.ngrams, self.lowercase, self.subwords)
        bags = self._bags(texts, text_config if fresh else self.text_config_)
        weights = self._weights(bags, targets, sample_weight)
        if fresh:
            rows = self.num_embeddings or STREAM_ROWS
            self._begin(text_config, targets, choose_sizes(rows, rows, self.num_buckets))
            self.history_ = History()
        elif targets.form != self.label_form_:
            raise ValueError(
                f"labels so far came in the form {self.label_form_!r}, found {targets.form!r}"
            )
        if len(targets.classes) > len(self.classes_):
            self.model_.grow(len(targets.classes))
            self.classes_ = targets.classes
        if not hasattr(self, "stream_rate_"):
            self.stream_rate_ = self.learning_rate or default_rate(bags, passes=2)
        steps = -(-len(bags) // self.batch_size)
        self.model_.train(
            bags,
            targets.labels,
            np.arange(len(bags)),
            np.full(steps, self.stream_rate_, np.float32),
            batch_size=self.batch_size,
            weights=weights,
        )
        self._count(targets)
        self.report_ = self._report(bags, 0)
        return self

    def predict_proba(self, texts: Any) -> F32:
        """Probabilities (texts, classes), in the order of `classes_`.

        A text without a word gets the prior: how common the classes were in training.
        """
        model = self._fitted()
        bags = text_to_bags(texts, self.text_config_, self.threads)
        probabilities = model.probabilities(bags)
        probabilities[bags.lengths == 0] = self.prior_
        return probabilities

    def decision_function(self, texts: Any) -> F32:
        """Logits (texts, classes); with two classes those of the second against the first."""
        z = self._logits(texts)
        if z.shape[1] == 2 and not self._multilabel:
            return np.asarray(z[:, 1] - z[:, 0])
        return z

    def predict(self, texts: Any) -> npt.NDArray[Any]:
        """The most likely class of each text; of a multi-label model all that are likely."""
        z = self._logits(texts)
        if self._multilabel:
            return decode(z > 0, self.classes_, self.label_form_)
        chosen: npt.NDArray[Any] = self.classes_[z.argmax(axis=1)]
        return chosen

    def score(self, texts: Any, labels: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy; of a multi-label model the share of texts with all labels right."""
        z = self._logits(texts)
        truth = encode(labels, self.classes_).labels
        if len(truth) != len(z):
            raise ValueError(f"found {len(z):,} texts, but {len(truth):,} labels")
        if self._multilabel:
            width = max(z.shape[1], truth.labels.max(initial=0) + 1)
            right = (truth.matrix(width)[:, : z.shape[1]] == (z > 0)).all(axis=1)
            right &= ~truth.matrix(width)[:, z.shape[1] :].any(axis=1)
        else:
            right = z.argmax(axis=1) == truth.labels
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        return float(np.average(right, weights=weights))

    def save(self, path: str | os.PathLike[str], *, for_training: bool = False) -> None:
        """Write the model to one safetensors file, tables in half precision.

        `for_training` keeps everything, to the bit: a model that goes on learning from there
        (`partial_fit`) becomes what it would have become. Otherwise, for half the size, the
        learning rates of single rows are forgotten, and a loaded model learns on at their mean.
        """
        self._fitted()
        save_classifier(self, path, for_training)

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

    def _fitted(self) -> ShallowModel:
        self._check_fitted()
        return self.model_

    def _logits(self, texts: Any) -> F32:
        model = self._fitted()
        bags = text_to_bags(texts, self.text_config_, self.threads)
        z = model.scores(bags)
        empty = bags.lengths == 0
        if empty.any():
            prior = np.clip(self.prior_, 1e-6, 1 - 1e-6)
            z[empty] = np.log(prior / (1 - prior)) if self._multilabel else np.log(prior)
        return z

    def _bags(self, texts: Any, config: TextConfig) -> Bags:
        return text_to_bags(texts, config, self.threads)

    def _train_config(self) -> TrainConfig:
        return TrainConfig(
            passes=self.passes,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            patience=self.patience,
            seed=self.seed,
        )

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
        self.model_ = ShallowModel(
            HashSpec(*sizes, self.num_hashes, seed=self.seed),
            self.embedding_dim,
            len(targets.classes),
            multilabel=targets.multilabel,
            seed=self.seed,
            threads=self.threads,
        )

    def _count(self, targets: Targets) -> None:
        before, now = self.class_counts_, targets.labels.counts(len(self.classes_))
        now[: len(before)] += before
        self.class_counts_ = now
        self.texts_seen_ += len(targets.labels)

    def _weights(self, bags: Bags, targets: Targets, sample_weight: Any) -> F32 | None:
        """One weight a document, from the classes and from the caller; None is 1."""
        if len(bags) != len(targets.labels):
            raise ValueError(f"found {len(bags):,} texts, but {len(targets.labels):,} labels")
        if len(bags) == 0:
            raise ValueError("found no texts to train on")
        weights = None
        if sample_weight is not None:
            weights = np.asarray(sample_weight, np.float32)
            if weights.shape != (len(bags),):
                raise ValueError(
                    f"sample_weight must have one weight for each of {len(bags):,} texts, "
                    f"found shape {weights.shape}"
                )
            if not (np.isfinite(weights) & (weights >= 0)).all():
                raise ValueError("sample_weight must be finite and not negative")
            if not weights.any():
                raise ValueError("sample_weight is zero for every text: nothing to train on")
        of_class = self._class_weights(targets.labels, targets.classes)
        if of_class is None:
            return weights
        return of_class if weights is None else weights * of_class

    def _class_weights(self, labels: Labels, classes: npt.NDArray[Any]) -> F32 | None:
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced":
            return balanced_weights(labels, len(classes))
        if isinstance(self.class_weight, str) or not isinstance(self.class_weight, Mapping):
            raise ValueError(
                "class_weight must be None, 'balanced' or a dictionary, "
                f"found {self.class_weight!r}"
            )
        table = np.array([self.class_weight.get(c, 1.0) for c in classes.tolist()], np.float32)
        counts = np.diff(labels.offsets)
        document = np.repeat(np.arange(len(labels)), counts)
        total = np.bincount(document, table[labels.labels], minlength=len(labels))
        return np.where(counts > 0, total / np.maximum(counts, 1), 1).astype(np.float32)

    def _report(self, bags: Bags, distinct: int) -> FitReport:
        spec = self.model_.spec
        return FitReport(
            texts=self.texts_seen_,
            empty=int((bags.lengths == 0).sum()),
            ngrams=len(bags.keys),
            distinct=distinct,
            num_embeddings=spec.num_embeddings,
            num_buckets=spec.num_buckets,
            num_hashes=spec.num_hashes,
            embedding_dim=self.embedding_dim,
            parameters=self.model_.num_parameters,
            class_counts=dict(
                zip(self.classes_.tolist(), self.class_counts_.tolist(), strict=True)
            ),
        )

    def _progress(self, passes: int, documents: int) -> Any:
        if not self.verbose:
            return no_bar()
        print(self.report_)
        return training_bar(passes, documents)
