"""`TextClassifier`: from labelled text to a small model, in the manner of scikit-learn."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hashembed.classify import training
from hashembed.classify.model_file import load_classifier, save_classifier
from hashembed.classify.targets import encode
from hashembed.classify.trained import TrainedClassifier
from hashembed.core.threads import uninterrupted
from hashembed.engine.defaults import check_learning_rate
from hashembed.engine.loop import Progress
from hashembed.text.config import Punctuation
from hashembed.text.key_store import KeyStore
from hashembed.text.pipeline import text_to_bags


class TextClassifier(TrainedClassifier):
    """Classifies texts by the hash vectors of their n-grams.

    Args:
        ngrams: lengths of word n-grams, shortest and longest.
        subwords: lengths of character n-grams, shortest and longest; None for none.
        lowercase: whether to ignore case.
        punctuation: "drop" it, or "keep" runs of it (`++`, `:-)`) as words.
        embedding_dim: d, the size of a vector; None chooses by the number of classes.
        num_hashes: k, the number of hash functions.
        num_embeddings, num_buckets: K and B, the sizes of the two tables; None chooses by the
            number of distinct n-grams in the training data.
        hidden_layers: widths of the layers between the bag and the output (needs torch). Without
            any it is the paper's shallow model, which is fast and on most data sets at least as
            accurate.
        members: number of models in the ensemble. Each has its own hash functions; they vote.
        device: "cpu", "cuda", or "auto" for a GPU if there is one (a GPU needs torch).
        passes: passes over the training data; None chooses by the data.
        learning_rate: the initial rate; None chooses by the model and the lengths of the texts.
        batch_size: documents in a step; None chooses by their lengths.
        validation_fraction: fraction of the training data to hold out for validation.
        patience: stop after this many passes without a lower validation loss, and keep the best
            pass. Needs validation data. Without `passes`, training stops after 100 at the latest.
        class_weight: "balanced" gives rare classes the same total weight as common ones, "sqrt"
            is halfway there; or a dictionary of weights (`docs/guides/imbalance.md`).
        seed: the same seed gives the same model, for any number of threads.
        threads: number of threads; None uses all cores.
        verbose: show a progress bar, each pass and a summary on standard error.

    Labels are str, int or bool. Lists of labels, or a matrix of zeros and ones, train a multi-label
    model: a text may have any number of labels.

    After training, `classes_` holds the classes, `class_counts_` the number of texts of each,
    `report_` the counts of the data and the chosen sizes, and `history_` every pass.

    Example:
        >>> clf = TextClassifier().fit(["good film", "bad film", "a good one"], ["+", "-", "+"])
        >>> clf.predict(["good"]).tolist()
        ['+']
    """

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

        Args:
            texts: one str for each document: a list, or an Arrow, NumPy or pandas column.
            labels: one label, or a list of labels, for each text; or an indicator matrix.
            sample_weight: a weight for each text.
            validation: texts and labels to validate on, instead of a part of the training data.
            checkpoint: a file for the training state, written after every pass. If it exists,
                training resumes from it. The result is bit-identical to an uninterrupted run.
            callbacks: functions that get the `Progress` of training after every few steps.

        An interrupt (Ctrl-C) is raised like any exception, but leaves a usable model: that of the
        best validated pass, or of the last step. `history_.stopped` records it. If the loss is no
        longer finite, training returns to the best validated pass with a warning; if there is none,
        it raises `LossNotFiniteError` (an ArithmeticError).
        """
        bags = text_to_bags(texts, training.text_config(self), self.threads)
        options = training.FitOptions(validation, checkpoint, callbacks)
        training.fit_bags(self, bags, encode(labels), sample_weight, options)
        return self

    def fit_batches(
        self,
        batches: Iterable[tuple[Any, Any]],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callable[[Progress], object]] = (),
    ) -> Self:
        """Train on batches of (texts, labels), for data whose text does not fit into memory.

        With `cache_dir`, the keys go to a temporary file there (8 bytes per n-gram); memory then
        holds one batch, the model, and 16 bytes per text. The model is the same as that of `fit`,
        and so are the other arguments.
        """
        with KeyStore(cache_dir) if cache_dir is not None else nullcontext() as store:
            bags, targets = training.read_batches(self, batches, store)
            options = training.FitOptions(validation, checkpoint, callbacks)
            training.fit_bags(self, bags, targets, None, options)
        return self

    def partial_fit(
        self,
        texts: Any,
        labels: Any,
        classes: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn from more texts, in their order, in one pass. Labels may be new.

        The first call makes the tables, which never grow: K is a million unless
        `num_embeddings` is given. It may name `classes` known in advance. A new label adds a class
        at the end of `classes_` and leaves the answers for the other classes as they are. The
        order matters in online learning: the last texts count most.
        """
        if self.class_weight in ("balanced", "sqrt"):
            raise ValueError(
                f'class_weight="{self.class_weight}" needs all labels at once: '
                "use a dictionary of weights, or sample_weight"
            )
        check_learning_rate(self.learning_rate)
        if self.__sklearn_is_fitted__():
            targets = encode(labels, self.classes_, self.label_form_)
            config = self.text_config_
        else:
            known = None if classes is None else encode(np.asarray(classes)).classes
            targets = encode(labels, known)
            config = training.text_config(self)
        bags = text_to_bags(texts, config, self.threads)
        weights, targets = training.weigh(self, bags, targets, sample_weight, more_may_come=True)
        # An interrupt takes effect before or after, so that what was learned is also counted.
        uninterrupted(lambda: training.learn(self, bags, targets, weights))
        return self

    def fit_transform(self, texts: Any, labels: Any, **fit_params: Any) -> Any:
        """Train with `fit`, then return the vectors of the same texts."""
        return self.fit(texts, labels, **fit_params).transform(texts)

    def save(
        self, path: str | os.PathLike[str], *, for_training: bool = False, bits: int = 16
    ) -> None:
        """Write the model to one safetensors file.

        Args:
            path: the file; it is replaced only when the new one is complete.
            for_training: keep everything in full precision, so that further training of the loaded
                model (`partial_fit`) is bit-identical to that of the original. Otherwise the file
                has half the size, but the learning rates of single rows are lost, and further
                training starts with their mean.
            bits: of each number in the tables: 16, 8 or 4. With 8 or 4 the file has a half or a
                quarter of the size, and the model is nearly as accurate (`experiments/README.md`).
        """
        self._fitted()
        save_classifier(self, path, for_training, bits)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> Self:
        """Read a model that `save` wrote."""
        return load_classifier(cls, path, threads)
