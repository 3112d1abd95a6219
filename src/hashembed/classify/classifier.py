"""`TextClassifier`: trains a small model on labelled text, with the API of scikit-learn.

Training is imported by the first method that trains, so that loading a model is fast.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hashembed.classify.model_file import load_classifier, save_classifier
from hashembed.classify.trained import TrainedClassifier
from hashembed.core import wording
from hashembed.core.locations import local_copy
from hashembed.core.threads import uninterrupted
from hashembed.text.config import Punctuation, Repeats
from hashembed.text.pipeline import text_to_bags

if TYPE_CHECKING:
    from hashembed.classify.choose.budget import Effort
    from hashembed.classify.choose.trial import Metric
    from hashembed.classify.pretrained.sources import Source
    from hashembed.engine.defaults import Shuffle
    from hashembed.engine.loop import Progress


class TextClassifier(TrainedClassifier):
    """Classifies texts by the hash vectors of their n-grams.

    Args:
        ngrams: shortest and longest word n-gram, in words, such as (1, 2). "auto" (default)
            chooses.
        subwords: shortest and longest character n-gram, in characters, such as (3, 5). None uses
            none, "auto" (default) chooses.
        lowercase: ignore case (default True).
        punctuation: "drop" removes it, "keep" treats each run of it (`++`, `:-)`) as a word,
            "auto" (default) chooses.
        repeats: which of the equal n-grams of a text count: "all" of them, "damp" for the first,
            second, fourth, eighth, and so on, "once" for the first alone. "auto" (default) chooses.
        embedding_dim: d, the width of a vector. None (default) chooses it from the number of
            classes.
        num_hashes: k, the number of hash functions, and so of buckets for each n-gram (default 2).
        num_embeddings: K, the number of rows of importance weights. None (default) chooses it from
            the number of distinct n-grams in the training data.
        num_buckets: B, the number of component vectors. None (default) chooses it from K.
        members: number of models in the ensemble. Each has its own hash functions; their logits are
            averaged. None (default) chooses: several where the data is small, fewer where it is
            large.
        pretrained: `WordVectors` of unlabelled text, or the path of a file with them, for training
            data with few labels. They add logits of their own, with a weight that is chosen on
            held-out training rows, down to 0. None (default) uses none.
        device: "cpu" (default), "cuda" (needs torch), or "auto" for a GPU if there is one.
        passes: passes over the training data. None (default) chooses.
        learning_rate: initial learning rate. None (default) chooses.
        batch_size: documents in a training step. None (default) chooses it from their lengths.
        validation_fraction: fraction of the training data to hold out for validation (default 0).
        patience: stop after this many passes without a lower validation loss, and keep the best
            pass. Needs validation data. If `passes` is None, training stops after 100 passes at the
            latest. None (default) runs all passes.
        class_weight: "balanced" gives all classes the same total weight; "sqrt" is a milder form.
            A dictionary gives a weight for each class. None (default) weights all texts alike.
            See `docs/guides/imbalance.md`.
        effort: how much work to spend on the choice of all that is left open. "normal" (default)
            tries several settings on a part of the training rows; choosing and training together
            take about as long as fastText's five passes. "best" spends ten times as much. "fast"
            tries nothing and follows rules. Work is counted in n-grams, not in seconds, so that the
            same seed chooses the same on every machine.
        time_limit: seconds for choosing and training together, instead of an effort. The choice
            then depends on the machine; `search_.chosen` tells how to repeat it. None (default)
            sets no limit.
        metric: what to choose by: "accuracy" (default), "f1" (macro F1), "average_precision" or
            "log_loss".
        seed: the same seed gives the same model, for any number of threads (default 0).
        threads: number of threads. None (default) uses all cores.
        verbose: print a progress bar, a line for each pass and a summary to standard error
            (default False).

    Labels are str, int or bool. Lists of labels, or a matrix of zeros and ones, train a multi-label
    model, in which a text may have any number of labels.

    Attributes:
        classes_: the classes.
        class_counts_: the number of training texts of each class.
        report_: counts of the training data, and the sizes that were chosen.
        search_: what was tried and chosen; None if nothing had to be tried.
        calibration_: the temperature that the logits were divided by, and for multi-label models
            the threshold: found on rows that were not trained on. None if there were too few.
        history_: loss and other numbers of every pass.
        vectors_: what pretrained vectors add; `vectors_.share` is their share of the logits. None
            without them, or if they did not help.

    Example:
        >>> clf = TextClassifier().fit(["good film", "bad film", "a good one"], ["+", "-", "+"])
        >>> clf.predict(["good"]).tolist()
        ['+']
    """

    def __init__(
        self,
        *,
        ngrams: tuple[int, int] | Literal["auto"] = "auto",
        subwords: tuple[int, int] | Literal["auto"] | None = "auto",
        lowercase: bool = True,
        punctuation: Punctuation | Literal["auto"] = "auto",
        repeats: Repeats | Literal["auto"] = "auto",
        embedding_dim: int | None = None,
        num_hashes: int = 2,
        num_embeddings: int | None = None,
        num_buckets: int | None = None,
        members: int | None = None,
        pretrained: "Source | None" = None,
        device: str = "cpu",
        passes: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        effort: "Effort" = "normal",
        time_limit: float | None = None,
        metric: "Metric" = "accuracy",
        seed: int = 0,
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.ngrams = ngrams
        self.subwords = subwords
        self.lowercase = lowercase
        self.punctuation = punctuation
        self.repeats = repeats
        self.embedding_dim = embedding_dim
        self.num_hashes = num_hashes
        self.num_embeddings = num_embeddings
        self.num_buckets = num_buckets
        self.members = members
        self.pretrained = pretrained
        self.device = device
        self.passes = passes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.effort = effort
        self.time_limit = time_limit
        self.metric = metric
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
        callbacks: "Sequence[Callable[[Progress], object]]" = (),
    ) -> Self:
        """Train on texts and their labels.

        Args:
            texts: one str for each document: a list, or an Arrow, NumPy or pandas column.
            labels: one label, or a list of labels, for each text; or an indicator matrix, with a
                row for each text and a column of zeros and ones for each label.
            sample_weight: a weight for each text. None (default) weights all texts alike.
            validation: (texts, labels) to validate on, instead of a part of the training data.
            checkpoint: a file for the training state, written after every pass and, in long
                passes, every two minutes. If it exists, training resumes from it. The result is
                bit-identical to an uninterrupted run. It may be a URI such as s3://bucket/state.
            callbacks: functions that are called with the `Progress` of training every few steps.

        Ctrl-C raises KeyboardInterrupt but leaves a usable model: that of the best validated pass,
        or of the last step without validation. `history_.stopped` records the interrupt. If the
        loss is no longer finite, training warns and returns to the best validated pass. If there is
        none, it raises `LossNotFiniteError` (an ArithmeticError).
        """
        from hashembed.classify import training
        from hashembed.classify.targets import encode

        options = training.FitOptions(validation, checkpoint, callbacks)
        training.fit_texts(self, [texts], encode(labels), sample_weight, options)
        return self

    def fit_batches(
        self,
        batches: Iterable[tuple[Any, Any]],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: "Sequence[Callable[[Progress], object]]" = (),
        shuffle: "Shuffle | None" = None,
    ) -> Self:
        """Train on batches of (texts, labels), for data whose text does not fit into memory.

        Several batches are read once, so nothing is tried on them: what is left open follows rules,
        and the model is the same as that of `fit` with `effort="fast"` on all batches together. A
        single batch without `cache_dir` is trained as by `fit`.

        Args:
            batches: pairs of texts and labels, each in a form that `fit` takes. Read once.
            cache_dir: a folder for a temporary file with the keys of the n-grams (8 bytes each).
                Memory then holds one batch, the model, and 16 bytes for each text. None (default)
                keeps the keys in memory.
            validation: as in `fit`.
            checkpoint: as in `fit`.
            callbacks: as in `fit`.
            shuffle: "full" trains on all texts in random order. "blocks" reads blocks of 4,096
                texts in random order and shuffles 128 of them at a time, so that keys on disk are
                read in long pieces. None (default) is "full" up to 2^31 n-grams.
        """
        from hashembed.classify import training
        from hashembed.classify.targets import encode
        from hashembed.core.memory import return_freed
        from hashembed.text.key_store import KeyStore

        options = training.FitOptions(validation, checkpoint, callbacks, shuffle)
        if self.pretrained is not None and cache_dir is not None:
            raise ValueError(training.needs_all_texts())
        if cache_dir is None:
            alone, batches = training.only_batch(batches)
            if alone:
                labels = encode(alone.pop())
                training.fit_texts(self, alone, labels, None, options)
                return self
        if self.pretrained is not None:
            raise ValueError(training.needs_all_texts())
        with KeyStore(cache_dir) if cache_dir is not None else nullcontext() as store:
            hashed = training.hash_batches(self, batches)
            bags, targets = training.join_batches(hashed, store)
            return_freed()  # the text: tables take its place
            training.fit_bags(self, bags, targets, None, options, fast=True)
        return self

    def partial_fit(
        self,
        texts: Any,
        labels: Any,
        classes: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn from more texts, in their order, in one pass. Labels may be new.

        The first call creates the tables, which never grow. They have K = 1,000,000 rows unless
        `num_embeddings` is given. A new label adds a class at the end of `classes_` and leaves the
        logits of the other classes as they are. The order of the texts matters: recent texts count
        most. The layer on top of pretrained vectors learns, too; the vectors stay as they are.

        Args:
            texts: as in `fit`.
            labels: as in `fit`.
            classes: classes known in advance; read by the first call only. None (default) learns
                the classes from the labels.
            sample_weight: a weight for each text. None (default) weights all texts alike.
        """
        from hashembed.classify import training
        from hashembed.classify.targets import encode
        from hashembed.engine.defaults import check_learning_rate

        if self.class_weight in ("balanced", "sqrt"):
            raise ValueError(
                f'class_weight="{self.class_weight}" needs all labels at once: '
                "use a dictionary of weights, or sample_weight"
            )
        check_learning_rate(self.learning_rate)
        if self.pretrained is not None and not self.__sklearn_is_fitted__():
            raise ValueError(
                f"{wording.given('pretrained')} needs all texts at once to begin with: call fit "
                "first, then partial_fit"
            )
        if self.__sklearn_is_fitted__():
            targets = encode(labels, self.classes_, self.label_form_)
            config = self.text_config_
        else:
            known = None if classes is None else encode(np.asarray(classes)).classes
            targets = encode(labels, known)
            config = training.text_config(self)
        if self.vectors_ is not None:
            from hashembed.text.arrow import to_arrow

            texts = to_arrow(texts)  # an iterator can be read only once
        bags = text_to_bags(texts, config, self.threads)
        weights, targets = training.weigh(
            self, len(bags), targets, sample_weight, more_may_come=True
        )
        # An interrupt takes effect before or after, so that what was learned is also counted.
        uninterrupted(lambda: training.learn(self, bags, targets, weights, texts))
        return self

    def fit_transform(self, texts: Any, labels: Any, **fit_params: Any) -> Any:
        """Train with `fit`, then return the vectors of the same texts."""
        return self.fit(texts, labels, **fit_params).transform(texts)

    def save(
        self, path: str | os.PathLike[str], *, for_training: bool = False, bits: int | None = None
    ) -> None:
        """Write the model to one safetensors file.

        Args:
            path: the model file, or a URI such as s3://bucket/model.safetensors. An existing file
                is replaced once the new one is complete.
            for_training: keep full precision and the state of the optimizer. Further training of
                the loaded model (`partial_fit`) is then bit-identical to that of the original. By
                default (False) the file is several times smaller, but the learning rate of each row
                is lost: after loading, all rows continue at the mean rate.
            bits: bits for each number in the tables: 16, 8 (default) or 4. With 8 bits answers
                hardly change. With 4 the file has half the size, and the model is nearly as
                accurate (`experiments/README.md`).
        """
        self._fitted()
        with local_copy(path, read=False) as file:
            save_classifier(self, file, for_training, bits)

    def compress(
        self,
        texts: Any = None,
        labels: Any = None,
        *,
        size: int | None = None,
        bits: int | None = None,
        max_loss: float | None = None,
        validation: tuple[Any, Any] | None = None,
        progress: Callable[[str], object] | None = None,
    ) -> Self:
        """Return a small copy of the model, for a small file. `save` writes it as it is.

        Give the texts that the model was trained on. The copy then knows those of their n-grams
        that matter most, and no others; without texts it is less accurate at the same size. Give
        one of `size`, `bits` and `max_loss`, or none for a size of 1,000,000 bytes. The attribute
        `compression_` of the copy tells sizes and accuracies before and after.

        The copy answers and explains as any model does. `partial_fit` can improve what it knows
        about the n-grams that were kept, but other n-grams stay unknown.

        Args:
            texts: as in `fit`. None (default) uses none.
            labels: as in `fit`, to measure accuracy on a tenth of the texts, which are then not
                used otherwise. None (default) uses all texts and measures nothing.
            size: bytes of the file, at most.
            bits: bits for each number, from 2 to 8.
            max_loss: the file is made as small as possible, but loses at most so many points of
                accuracy.
            validation: (texts, labels) to measure accuracy on, instead of a part of the texts.
            progress: a function that is called with a line of text for each step.
        """
        from hashembed.classify.compress.compressing import SIZE, Wish, compress

        self._fitted()
        if self.vectors_ is not None:
            raise ValueError(
                "a model with pretrained vectors cannot be compressed: train one without them, or "
                "save this one with bits=4"
            )
        if size is bits is max_loss is None:
            size = SIZE
        if texts is None and labels is not None:
            raise ValueError("labels need texts, found labels alone: give compress(texts, labels)")
        data = None if texts is None else (texts, labels)
        say = progress or (lambda line: None)
        return compress(self, Wish(size, bits, max_loss), data, validation, say)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> Self:
        """Load a model that `save` wrote.

        Args:
            path: the model file, or a URI such as s3://bucket/model.safetensors.
            threads: number of threads. None (default) uses all cores.
        """
        with local_copy(path) as file:
            return load_classifier(cls, file, threads)

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        *,
        model_card_kwargs: dict[str, Any] | None = None,
        bits: int | None = None,
        for_training: bool = False,
        force: bool = False,
        **options: Any,
    ) -> str | None:
        """Write a folder as the hub wants it: model.safetensors, README.md and config.json.

        Needs `pip install "hashembed[hub]"`. See `docs/guides/hub.md`.

        Args:
            save_directory: the folder. It is created if it does not exist.
            model_card_kwargs: what the model card says beyond what the model tells: `description`,
                `license`, `language`, `dataset`, and `evaluation`, which `evaluate` returns.
            bits: as in `save`.
            for_training: as in `save`.
            force: replace a README.md that exists. By default (False) it stays.
            options: further arguments of `huggingface_hub.ModelHubMixin.save_pretrained`, such as
                `push_to_hub` and `repo_id`.
        """
        from hashembed.classify import hub

        saving = {"bits": bits, "for_training": for_training, "force": force}
        return hub.save_pretrained(self, save_directory, model_card_kwargs, saving, options)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        model_card_kwargs: dict[str, Any] | None = None,
        bits: int | None = None,
        for_training: bool = False,
        **options: Any,
    ) -> str:
        """Upload the files of `save_pretrained` to the hub, and return the address of the commit.

        Args:
            repo_id: owner/name. The repository is created if it does not exist.
            model_card_kwargs: as in `save_pretrained`.
            bits: as in `save`.
            for_training: as in `save`.
            options: further arguments of `huggingface_hub.ModelHubMixin.push_to_hub`, such as
                `private`, `token`, `branch`, `commit_message` and `create_pr`.
        """
        from hashembed.classify import hub

        saving = {"bits": bits, "for_training": for_training}
        return hub.push_to_hub(self, repo_id, model_card_kwargs, saving, options)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        **options: Any,
    ) -> Self:
        """Load a model from the hub, or from a folder that `save_pretrained` wrote.

        Only model.safetensors is read, and it is checked as by `load`.

        Args:
            pretrained_model_name_or_path: owner/name on the hub, or a folder.
            threads: number of threads. None (default) uses all cores.
            options: further arguments of `huggingface_hub.ModelHubMixin.from_pretrained`, such as
                `revision`, `token`, `cache_dir`, `local_files_only` and `force_download`.
        """
        from hashembed.classify import hub

        loaded: Self = hub.HubModel.from_pretrained(
            pretrained_model_name_or_path,  # type: ignore[arg-type] # a Path, in the mixin
            classifier_class=cls,
            threads=threads,
            **options,
        )
        return loaded
