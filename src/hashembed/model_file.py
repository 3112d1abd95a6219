"""A `TextClassifier` in a file, and back."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from hashembed.checkpoint import Arrays, ModelFileError, load_tensors, save_tensors
from hashembed.hashing import HashSpec
from hashembed.history import History
from hashembed.shallow import ShallowModel
from hashembed.text import TextConfig

KIND = "TextClassifier"
HALF = ("E", "P")  # kept in half precision


def save_classifier(classifier: Any, path: str | os.PathLike[str], for_training: bool) -> None:
    """Write a trained classifier; `TextClassifier.save` says what `for_training` means."""
    model = classifier.model_
    if for_training:
        tensors = model.state()
    else:
        tensors = {
            name: array.astype(np.float16) if name in HALF else array
            for name, array in model.tensors().items()
        }
        for name in HALF:
            if name in tensors and not np.isfinite(tensors[name]).all():
                raise ValueError(f"cannot save: {name} has values beyond half precision")
    meta = {
        "params": _parameters(classifier.get_params()),
        "text": classifier.text_config_.to_dict(),
        "spec": asdict(model.spec),
        "classes": classifier.classes_.tolist(),
        "label_form": classifier.label_form_,
        "class_counts": classifier.class_counts_.tolist(),
        "texts_seen": classifier.texts_seen_,
        "history": classifier.history_.to_dict(),
        "stream_rate": getattr(classifier, "stream_rate_", None),
        "mean_squares": model.mean_squares(),
        "for_training": for_training,
    }
    save_tensors(path, KIND, tensors, meta)


def load_classifier(cls: Any, path: str | os.PathLike[str], threads: int | None) -> Any:
    """Read a classifier that `save_classifier` wrote."""
    tensors, meta = load_tensors(path, KIND)
    try:
        return _assemble(cls, tensors, meta, threads)
    except ModelFileError as error:
        raise ModelFileError(f"{path} {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path} cannot be understood: {type(error).__name__}: {error}"
        ) from None


def _assemble(cls: Any, tensors: Arrays, meta: Any, threads: int | None) -> Any:
    params = {name: value for name, value in meta["params"].items() if name in cls._parameters()}
    for name in ("ngrams", "subwords"):  # JSON has no tuples
        params[name] = tuple(params[name]) if params.get(name) else params.get(name)
    if isinstance(params.get("class_weight"), list):
        params["class_weight"] = dict(params["class_weight"])
    self = cls(**params)
    self.threads = threads
    spec = HashSpec(**meta["spec"])
    classes = np.array(meta["classes"])
    _check_shapes(tensors, spec, len(classes))
    self.text_config_ = TextConfig.from_dict(meta["text"])
    self.classes_ = classes
    self.label_form_ = meta["label_form"]
    self.class_counts_ = np.array(meta["class_counts"], np.int64)
    if self.label_form_ not in ("single", "lists", "matrix") or classes.ndim != 1:
        raise ModelFileError("has labels of a form that is not known")
    if self.class_counts_.shape != classes.shape:
        raise ModelFileError(f"counts {len(self.class_counts_)} of {len(classes)} classes")
    self.texts_seen_ = int(meta["texts_seen"])
    self.history_ = History.from_dict(meta["history"])
    self.model_ = ShallowModel.from_tensors(
        spec, tensors, multilabel=self.label_form_ != "single", threads=threads
    )
    if meta["stream_rate"] is not None:
        self.stream_rate_ = float(meta["stream_rate"])
    if not meta["for_training"]:
        self.model_.fill_squares(meta["mean_squares"])
    return self


def _parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON can hold them: a dictionary of class weights may have keys that are not strings."""
    plain = dict(params)
    if isinstance(plain["class_weight"], Mapping):
        plain["class_weight"] = list(plain["class_weight"].items())
    return plain


def _check_shapes(tensors: Arrays, spec: HashSpec, classes: int) -> None:
    """Tables as large as the header says, before anything of that size is made."""
    if "E" not in tensors or tensors["E"].ndim != 2:
        raise ModelFileError("has no table of component vectors, E")
    d = tensors["E"].shape[1]
    shapes = {
        "E": (spec.num_buckets, d),
        "P": (spec.num_embeddings, spec.num_hashes),
        "W": (classes, d),
        "bias": (classes,),
        "E_square": (spec.num_buckets,),
        "P_square": (spec.num_embeddings,),
        "W_square": (classes, d),
        "bias_square": (classes,),
    }
    for name in ("W", "bias"):
        if name not in tensors:
            raise ModelFileError(f"has no tensor {name!r}")
    for name, array in tensors.items():
        if name not in shapes:
            raise ModelFileError(f"has a tensor {name!r} that is not known")
        if array.shape != shapes[name]:
            raise ModelFileError(
                f"has a tensor {name!r} of shape {array.shape}, expected {shapes[name]}"
            )
        if array.dtype.kind != "f":
            raise ModelFileError(f"has a tensor {name!r} of type {array.dtype}, expected floats")
