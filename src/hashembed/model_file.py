"""A `TextClassifier` in a file, and back."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.checkpoint import Arrays, ModelFileError, load_tensors, save_tensors
from hashembed.coding import BITS, decode, encode
from hashembed.engines import EnginePlan, choose_device
from hashembed.history import History
from hashembed.shallow import ShallowModel
from hashembed.stream_position import StreamPosition
from hashembed.text import TextConfig

KIND = "TextClassifier"
TABLES = ("E", "P")  # kept in half precision, or less


def save_classifier(
    classifier: Any, path: str | os.PathLike[str], for_training: bool, bits: int
) -> None:
    """Write a trained classifier; `TextClassifier.save` says what the options mean."""
    if bits not in (16, *BITS):
        raise ValueError(f"bits must be 16, 8 or 4, found {bits!r}")
    if for_training and bits != 16:
        raise ValueError(f"for_training keeps everything to the bit, found bits={bits}")
    model, largest = classifier.model_, {}
    if for_training:
        tensors = model.state()
    else:
        tensors = model.tensors()
        for name, array in tensors.items():
            if _is_table(name) and bits == 16:
                tensors[name] = _halved(name, array)
            elif _is_table(name):
                if not np.isfinite(array).all():
                    raise ValueError(f"cannot save: {name} has values that are not finite")
                tensors[name], largest[name] = encode(array, bits)
    meta = {
        "params": _parameters(classifier.get_params()),
        "text": classifier.text_config_.to_dict(),
        "engine": classifier.engine_plan_.to_dict(),
        "classes": classifier.classes_.tolist(),
        "label_form": classifier.label_form_,
        "class_counts": classifier.class_counts_.tolist(),
        "texts_seen": classifier.texts_seen_,
        "history": classifier.history_.to_dict(),
        "stream_rate": getattr(classifier, "stream_rate_", None),
        "stream_position": classifier.stream_position_.to_dict(),
        "mean_squares": model.mean_squares() if isinstance(model, ShallowModel) else None,
        "for_training": for_training,
        "coded": {"bits": bits, "largest": largest} if largest else None,
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
    for name in ("ngrams", "subwords", "hidden_layers"):  # JSON has no tuples
        params[name] = None if params.get(name) is None else tuple(params[name])
    if isinstance(params.get("class_weight"), list):
        params["class_weight"] = dict(params["class_weight"])
    self = cls(**params)
    self.threads = threads
    plan = EnginePlan.from_dict(meta["engine"])
    classes = np.array(meta["classes"])
    if meta.get("coded"):
        tensors = _decoded(tensors, plan, meta["coded"])
    _check_shapes(tensors, plan, len(classes))
    plan = replace(plan, device=_device_here(self.device))
    if meta["for_training"] and not plan.hidden_layers:
        by_torch = any(name.rpartition(".")[2] == "steps" for name in tensors)
        if by_torch and plan.shallow:
            raise ModelFileError(
                "was saved to go on with its training on a GPU, and here is none; saved without "
                "for_training it can be read everywhere"
            )
        if not by_torch:
            plan = replace(plan, device="cpu")  # where it was trained
    self.text_config_ = TextConfig.from_dict(meta["text"])
    self.classes_ = classes
    self.label_form_ = meta["label_form"]
    self.class_counts_ = np.array(meta["class_counts"], np.int64)
    if self.label_form_ not in ("single", "lists", "matrix") or classes.ndim != 1:
        raise ModelFileError("has labels of a form that is not known")
    if self.class_counts_.shape != classes.shape:
        raise ModelFileError(f"counts {len(self.class_counts_)} of {len(classes)} classes")
    self.texts_seen_ = int(meta["texts_seen"])
    self.stream_position_ = StreamPosition.from_dict(meta.get("stream_position") or {})
    self.history_ = History.from_dict(meta["history"])
    self.engine_plan_ = plan
    if meta["for_training"]:
        self.model_ = plan.make(len(classes), threads)
        self.model_.load_state(tensors)
    else:
        self.model_ = plan.restore(tensors, threads)
    if meta["stream_rate"] is not None:
        self.stream_rate_ = float(meta["stream_rate"])
    known = meta["mean_squares"] is not None and not meta["for_training"]
    if known and isinstance(self.model_, ShallowModel):
        self.model_.fill_squares(meta["mean_squares"])
    return self


def _device_here(device: str) -> str:
    """Where it was trained if that is here, else the CPU: a model can be used everywhere."""
    try:
        return choose_device(device)
    except ValueError:
        return "cpu"


def _parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON can hold them: a dictionary of class weights may have keys that are not strings."""
    plain = dict(params)
    if isinstance(plain["class_weight"], Mapping):
        plain["class_weight"] = list(plain["class_weight"].items())
    return plain


def _is_table(name: str) -> bool:
    return name.rpartition(".")[2] in TABLES


def _halved(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A table in half precision."""
    half = array.astype(np.float16)
    if not np.isfinite(half).all():
        raise ValueError(f"cannot save: {name} has values beyond half precision")
    return half


def _decoded(tensors: Arrays, plan: EnginePlan, coded: Any) -> Arrays:
    """The tables from their codes."""
    bits, out = coded["bits"], dict(tensors)
    if bits not in BITS:
        raise ModelFileError(f"has tables of {bits!r} bits, expected one of {BITS}")
    for name, largest in coded["largest"].items():
        codes = tensors[name]
        width = plan.embedding_dim if name.endswith("E") else plan.spec.num_hashes
        if codes.dtype != np.uint8 or codes.shape[1:] != (-(-width * bits // 8),):
            raise ModelFileError(f"has codes of {name!r} of a shape or type that is not known")
        if not (isinstance(largest, float) and 0 < largest < float("inf")):
            raise ModelFileError(f"has {largest!r} as the largest number of {name!r}")
        out[name] = decode(codes, largest, bits, width)
    return out


def _check_shapes(tensors: Arrays, plan: EnginePlan, classes: int) -> None:
    """Tables as large as the header says, before anything of that size is made."""
    for i in range(plan.members):
        start = f"{i}." if plan.members > 1 else ""
        spec, d = plan.spec, plan.embedding_dim
        shapes = {
            "E": (spec.num_buckets, d),
            "P": (spec.num_embeddings, spec.num_hashes),
            "W": (classes, (plan.hidden_layers or (d,))[-1]),
            "bias": (classes,),
        }
        for name, shape in shapes.items():
            if start + name not in tensors:
                raise ModelFileError(f"has no tensor {start + name!r}")
            array = tensors[start + name]
            if array.shape != shape:
                raise ModelFileError(
                    f"has a tensor {start + name!r} of shape {array.shape}, expected {shape}"
                )
            if array.dtype.kind != "f":
                raise ModelFileError(
                    f"has a tensor {start + name!r} of type {array.dtype}, expected floats"
                )
