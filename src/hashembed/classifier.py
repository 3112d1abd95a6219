"""`TextClassifier`: from labelled text to a small model, in the manner of scikit-learn."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hashembed.bags import Bags
from hashembed.checkpoint import load_tensors, save_tensors
from hashembed.hashing import HashSpec
from hashembed.history import History
from hashembed.labels import Labels, balanced_weights, split
from hashembed.shallow import ShallowModel
from hashembed.sizes import choose_sizes, count_distinct
from hashembed.text import TextConfig, text_to_bags
from hashembed.training import Progress, TrainConfig, fit

KIND = "TextClassifier"


class TextClassifier:
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
        class_weight: "balanced" makes rare classes weigh as much as common ones.
        seed: the same seed gives the same model, for any number of threads.
        threads: None is all cores.

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
        embedding_dim: int = 16,
        num_hashes: int = 2,
        num_embeddings: int | None = None,
        num_buckets: int | None = None,
        passes: int = 2,
        learning_rate: float | None = None,
        batch_size: int = 256,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        class_weight: str | None = None,
        seed: int = 0,
        threads: int | None = None,
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

    def fit(
        self,
        texts: Any,
        labels: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        callbacks: Sequence[Callable[[Progress], object]] = (),
    ) -> Self:
        """Train on texts (a column or list of str) and their labels."""
        classes, numbers = _encode(labels)
        self.text_config_ = TextConfig(self.ngrams, self.lowercase, self.subwords)
        bags = text_to_bags(texts, self.text_config_)
        if len(bags) != len(numbers):
            raise ValueError(f"found {len(bags):,} texts, but {len(numbers):,} labels")
        if len(bags) == 0:
            raise ValueError("found no texts to train on")
        if self.class_weight not in (None, "balanced"):
            raise ValueError(
                f"class_weight must be None or 'balanced', found {self.class_weight!r}"
            )
        self.classes_ = classes
        targets = Labels.single(numbers)
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float32)
        if self.class_weight == "balanced":
            balance = balanced_weights(targets, len(classes))
            weights = balance if weights is None else weights * balance
        sizes = choose_sizes(count_distinct(bags.keys), self.num_embeddings, self.num_buckets)
        spec = HashSpec(*sizes, self.num_hashes, seed=self.seed)
        self.model_ = ShallowModel(
            spec, self.embedding_dim, len(classes), seed=self.seed, threads=self.threads
        )
        config = TrainConfig(
            passes=self.passes,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            patience=self.patience,
            seed=self.seed,
        )
        held_out: tuple[Bags, Labels] | None = None
        if self.validation_fraction:
            kept, held = split(len(bags), self.validation_fraction, self.seed)
            held_out = bags.take(held), targets.take(held)
            bags, targets = bags.take(kept), targets.take(kept)
            weights = None if weights is None else weights[kept]
        self.history_: History = fit(
            self.model_,
            bags,
            targets,
            config,
            weights=weights,
            validation=held_out,
            callbacks=callbacks,
        )
        return self

    def decision_function(self, texts: Any) -> npt.NDArray[np.float32]:
        """Logits (texts, classes)."""
        return self._fitted().scores(text_to_bags(texts, self.text_config_))

    def predict_proba(self, texts: Any) -> npt.NDArray[np.float32]:
        """Probabilities (texts, classes), in the order of `classes_`."""
        return self._fitted().probabilities(text_to_bags(texts, self.text_config_))

    def predict(self, texts: Any) -> npt.NDArray[Any]:
        """The most likely class of each text."""
        best = self.decision_function(texts).argmax(axis=1)
        chosen: npt.NDArray[Any] = self.classes_[best]
        return chosen

    def score(self, texts: Any, labels: Any) -> float:
        """Accuracy."""
        return float((self.predict(texts) == _as_array(labels)).mean())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, tables in half precision."""
        model, spec = self._fitted(), self.model_.spec
        if self.classes_.dtype.kind not in "UOiub":
            raise TypeError(f"cannot save classes of type {self.classes_.dtype}")
        meta = {
            "params": self.get_params(),
            "text": self.text_config_.to_dict(),
            "spec": asdict(spec),
            "classes": self.classes_.tolist(),
            "history": self.history_.to_dict(),
        }
        half = {"E": model.tables.E, "P": model.importance_weights}
        tensors = {name: array.astype(np.float16) for name, array in half.items()}
        save_tensors(path, KIND, {**tensors, "W": model.tables.W, "bias": model.tables.bias}, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TextClassifier":
        """Read a model that `save` wrote."""
        tensors, meta = load_tensors(path, KIND)
        saved: dict[str, Any] = meta["params"]  # JSON has no tuples
        params: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved.items()
        }
        self = cls(**params)
        self.text_config_ = TextConfig.from_dict(meta["text"])
        self.classes_ = np.array(meta["classes"])
        self.history_ = History.from_dict(meta["history"])
        self.model_ = ShallowModel.from_tensors(HashSpec(**meta["spec"]), tensors, self.threads)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change some of them."""
        for name, value in params.items():
            if name not in _parameters():
                raise ValueError(f"unknown parameter {name!r} of TextClassifier")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = TextClassifier().get_params()
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k]]
        return f"TextClassifier({', '.join(changed)})"

    def _fitted(self) -> ShallowModel:
        if not hasattr(self, "model_"):
            raise ValueError("this TextClassifier has not been trained: call fit first")
        return self.model_


def _parameters() -> list[str]:
    return list(TextClassifier.__init__.__kwdefaults__ or {})


def _encode(labels: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Labels -> sorted classes, and the class of each label as a number."""
    if hasattr(labels, "dictionary"):  # Arrow's dictionary-encoded arrays are half way there
        classes, ranks = np.unique(_as_array(labels.dictionary), return_inverse=True)
        return classes, ranks[labels.indices.to_numpy()]
    classes, numbers = np.unique(_as_array(labels), return_inverse=True)
    return classes, numbers


def _as_array(labels: Any) -> npt.NDArray[Any]:
    """Labels of any column, list or iterator as NumPy."""
    array = np.asarray(labels if hasattr(labels, "__len__") else list(labels))
    return array.astype(str) if array.dtype == object else array
