"""Writes a classifier to a model file, and reads it back."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from hashembed.classify.engine_plan import EnginePlan, choose_device
from hashembed.classify.quantize import BITS, coded_table, codes_and_values, encode
from hashembed.classify.stream_position import StreamPosition
from hashembed.classify.trained import TrainedClassifier
from hashembed.core.background import in_background
from hashembed.core.checks import whole_number
from hashembed.core.half import to_half
from hashembed.core.threads import cpu_count
from hashembed.engine.coded import CodedTable, Stored
from hashembed.engine.history import History
from hashembed.engine.linear import linear
from hashembed.engine.packed import MAX_NUMBERS, MAX_ROWS, pack, packed_table
from hashembed.engine.protocol import MAX_BATCH, Engine
from hashembed.engine.shallow.listed import ListedModel
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import (
    FORMAT_VERSION,
    LARGEST,
    PACKED_VERSION,
    VECTORS_VERSION,
    Arrays,
    ModelFileError,
    bytes_of_file,
    open_tensors,
    save_tensors,
    understanding,
)
from hashembed.text.config import TextConfig

if TYPE_CHECKING:
    from hashembed.classify.calibrating import Calibration
    from hashembed.classify.choose.search import Search
    from hashembed.classify.targets import Form

C = TypeVar("C", bound=TrainedClassifier)

KIND = "TextClassifier"
DEFAULT_BITS = 8
TABLES = ("E", "P")  # stored in half precision or fewer bits
MAX_LABEL_BYTES = 2**31  # NumPy stores every label in the size of the longest


def save_classifier(
    classifier: TrainedClassifier,
    path: str | os.PathLike[str],
    for_training: bool,
    bits: int | None,
) -> None:
    """Write a trained classifier; `TextClassifier.save` says what the options mean."""
    tensors, meta, version = content_of(classifier, for_training, bits)
    save_tensors(path, KIND, tensors, meta, version)


def bytes_saved(classifier: TrainedClassifier) -> int:
    """The size of the file that `save` would write."""
    return bytes_of_file(KIND, *content_of(classifier, False, None))


def content_of(
    classifier: TrainedClassifier, for_training: bool, bits: int | None
) -> tuple[Arrays, dict[str, Any], int]:
    """The tensors of a model file, its metadata and its format version."""
    if bits not in (None, 16, *BITS):
        raise ValueError(f"bits must be 16, 8 or 4, found {bits!r}")
    if for_training and bits not in (None, 16):
        raise ValueError(
            f"for_training=True keeps full precision, found bits={bits}: leave one of them out"
        )
    if classifier.packed_ and (for_training or bits is not None):
        found = "for_training=True" if for_training else f"bits={bits}"
        raise ValueError(
            f"a compressed model is saved as it is, found {found}: leave it out, or save the model "
            "that it was made from"
        )
    bits = bits or DEFAULT_BITS
    model, largest, squares = classifier.model_, {}, None
    packed: dict[str, int] = {}
    if (shallow := linear(model)) is not None:
        squares = in_background(shallow.mean_squares)  # while the tables are converted
    if classifier.packed_:
        tensors, packed = _packed(classifier)
    elif for_training:
        tensors = model.state()
    else:
        tensors = _weights(model)
        for name, array in tensors.items():
            if _is_table(name) and bits == 16:
                tensors[name] = _halved(name, array, classifier.threads or cpu_count())
            elif _is_table(name):
                _check_finite(name, array)
                tensors[name], largest[name] = encode(array, bits)
    meta = {
        "params": _parameters(classifier.get_params()),
        "text": classifier.text_config_.to_dict(),
        "engine": classifier.engine_plan_.to_dict(),
        "classes": classifier.classes_.tolist(),
        "label_form": classifier.label_form_,
        "class_counts": classifier.class_counts_.tolist(),
        "texts_seen": classifier.texts_seen_,
        "history": classifier.history_.without_times().to_dict(),
        "search": _saved(classifier.search_),
        "calibration": _saved(classifier.calibration_),
        "stream_rate": classifier.stream_rate_,
        "stream_position": classifier.stream_position_.to_dict(),
        "mean_squares": squares() if squares is not None else None,
        "for_training": for_training,
        "coded": {"bits": bits, "largest": largest} if largest else None,
    }
    version = FORMAT_VERSION
    if packed:
        meta["packed"], version = packed, PACKED_VERSION
    if classifier.vectors_ is not None:
        own, meta["vectors"] = classifier.vectors_.content(min(bits, DEFAULT_BITS))
        tensors, version = {**tensors, **own}, VECTORS_VERSION
    return tensors, meta, version


def load_classifier(cls: type[C], path: str | os.PathLike[str], threads: int | None) -> C:
    """Read a classifier that `save_classifier` wrote."""
    tensors, meta, verify = open_tensors(path, KIND)
    try:
        with understanding(path):
            self = _assemble(cls, tensors, meta, threads)
    except ModelFileError:
        verify()  # if the file is damaged, say that
        raise
    verify()
    return self


def _assemble(cls: type[C], tensors: Arrays, meta: Any, threads: int | None) -> C:
    self = cls().set_params(**_known_parameters(cls, meta["params"]))
    self.threads = threads
    plan = EnginePlan.from_dict(meta["engine"])
    tensors, vectors = _divided(tensors) if meta.get("vectors") else (tensors, {})
    for_training = _flag("for_training", meta["for_training"])
    self.text_config_ = TextConfig.from_dict(meta["text"])
    self.classes_ = classes_from(meta["classes"])
    self.label_form_ = _form(meta["label_form"], plan)
    self.class_counts_ = _counts(meta["class_counts"], len(self.classes_))
    self.texts_seen_ = whole_number("texts_seen", meta["texts_seen"], 0, 2**62)
    self.stream_position_ = StreamPosition.from_dict(meta.get("stream_position") or {})
    self.history_ = History.from_dict(meta["history"])
    self.search_ = _search(meta.get("search"))
    self.calibration_ = _calibration(meta.get("calibration"))
    shapes = plan.shapes(len(self.classes_))
    stored = _coded(tensors, plan, meta["coded"]) if meta.get("coded") else tensors
    if meta.get("packed"):
        if for_training:
            raise ModelFileError("has packed tables and a training state, which exclude each other")
        stored, self.packed_ = _unpacked(stored, meta["packed"], shapes, plan.importance), True
    _check_shapes(stored, shapes, for_training)
    self.engine_plan_ = plan = _plan_here(plan, self.device, tensors, for_training)
    if for_training:
        self.model_ = plan.make(len(self.classes_), threads)
        self.model_.load_state(tensors)
    else:
        self.model_ = plan.restore(stored, threads)
    if vectors:
        _add_vectors(self, vectors, meta["vectors"])
    rate = meta["stream_rate"]
    self.stream_rate_ = None if rate is None else _positive("stream_rate", rate)
    shallow = linear(self.model_)
    if meta["mean_squares"] is not None and shallow is not None:
        squares = _squares(meta["mean_squares"], plan.members)
        if not for_training:
            shallow.fill_squares(squares)
    return self


# --- checked fields ----------------------------------------------------------------------------


def _known_parameters(cls: type[TrainedClassifier], saved: Any) -> dict[str, Any]:
    """The constructor's arguments. JSON has no tuples; other versions have other arguments."""
    params = {name: value for name, value in saved.items() if name in cls._parameters()}
    params.pop("pretrained", None)
    for name in ("ngrams", "subwords"):
        if isinstance(params.get(name), list):
            params[name] = tuple(params[name])
    if isinstance(params.get("class_weight"), list):
        params["class_weight"] = dict(params["class_weight"])
    for name, most in (("batch_size", MAX_BATCH), ("passes", 10**6), ("patience", 10**6)):
        if params.get(name) is not None:
            whole_number(name, params[name], 0, most)
    whole_number("seed", params.get("seed", 0), -(2**63), 2**63 - 1)
    for name, kinds in (("class_weight", (str, dict)), ("learning_rate", (int, float))):
        if params.get(name) is not None and type(params[name]) not in kinds:
            raise ModelFileError(f"has {params[name]!r:.20} as {name}")
    if not abs(params.get("learning_rate") or 0) <= LARGEST:
        raise ModelFileError(f"has {params['learning_rate']!r:.20} as learning_rate")
    return params


def _divided(tensors: Arrays) -> tuple[Arrays, Arrays]:
    """The tensors of the n-grams, and those of pretrained vectors without their prefix."""
    from hashembed.classify.pretrained.part import PREFIX

    rest = {name: array for name, array in tensors.items() if not name.startswith(PREFIX)}
    own = {name.removeprefix(PREFIX): tensors[name] for name in tensors.keys() - rest.keys()}
    if not own:
        raise ModelFileError("has no tensors of the vectors that its header describes")
    return rest, own


def _add_vectors(self: TrainedClassifier, tensors: Arrays, meta: Any) -> None:
    from hashembed.classify.pretrained.part import part_from
    from hashembed.vectors.word_vectors import WordVectors

    self.vectors_ = part_from(tensors, meta, len(self.classes_), self.threads)
    self.pretrained = WordVectors.of(self.vectors_.model)  # to train again


def _search(saved: Any) -> "Search | None":
    """What was tried, if anything was; older files have no such field."""
    if saved is None:
        return None
    from hashembed.classify.choose.search import Search

    return Search.from_dict(saved)


def _calibration(saved: Any) -> "Calibration | None":
    if saved is None:
        return None
    from hashembed.classify.calibrating import Calibration

    return Calibration.from_dict(saved)


def _saved(found: "Search | Calibration | None") -> dict[str, Any] | None:
    return None if found is None else found.to_dict()


def _form(form: Any, plan: EnginePlan) -> "Form":
    if form not in ("single", "lists", "matrix"):
        raise ModelFileError("has labels of an unknown form")
    if plan.multilabel != (form != "single"):
        kind = "several labels" if plan.multilabel else "one label"
        raise ModelFileError(f"has labels of the form {form!r}, but a model of {kind} per text")
    known: Form = form
    return known


def classes_from(listed: Any) -> npt.NDArray[Any]:
    """The labels in their original type: all strings, all whole numbers or all booleans."""
    kinds = {type(label) for label in listed}
    if not isinstance(listed, list) or len(kinds) > 1 or not kinds <= {str, int, bool, float}:
        raise ModelFileError("has labels that are not all strings or all numbers")
    if len(set(listed)) < len(listed):
        raise ModelFileError("has the same label twice")
    if kinds <= {str}:
        longest = max(map(len, listed), default=0)
        if 4 * longest * len(listed) > MAX_LABEL_BYTES:
            raise ModelFileError(
                f"has {len(listed):,} labels, one with {longest:,} characters: too large for memory"
            )
        "".join(listed).encode()  # raises for lone surrogates
        return np.array(listed, str)
    if kinds == {int}:  # NumPy would convert numbers on both sides of 2^63 to floats
        return np.array(listed, np.int64 if max(listed) < 2**63 else np.uint64)
    if kinds == {float} and not np.isfinite(listed).all():
        raise ModelFileError("has labels that are not finite")
    return np.array(listed)


def _counts(listed: Any, classes: int) -> npt.NDArray[np.int64]:
    if not isinstance(listed, list) or len(listed) != classes:
        found = len(listed) if isinstance(listed, list) else f"{listed!r:.20}"
        raise ModelFileError(f"has counts of {found} classes, expected {classes}")
    counts = [whole_number("class_counts", n, 0, 2**62) for n in listed]
    return np.array(counts, np.int64)


def _unpacked(
    tensors: Stored, packed: Any, shapes: Mapping[str, tuple[int, ...]], whole: bool
) -> Stored:
    """The tensors with packed tables as such. whole: rows that are zero will be in memory, too."""
    out, total, total_rows = dict(tensors), 0, 0
    tables = {name: shape for name, shape in shapes.items() if _is_table(name)}
    for name, count in packed.items():
        if name not in tables:
            raise ModelFileError(f"has a packed table {name!r:.50}, which is none of the model's")
        rows, columns = tables[name]
        numbers, codes, values = (
            np.asarray(out.pop(f"{name}.{part}")) for part in ("rows", "codes", "values")
        )
        out[name] = packed_table(numbers, codes, values, count=count, shape=(rows, columns))
        total, total_rows = total + (rows if whole else count) * columns, total_rows + rows
    for found, most, what in (
        (total_rows, MAX_ROWS, "rows"),
        (total, MAX_NUMBERS, "numbers"),
    ):
        if found > most:
            raise ModelFileError(
                f"has {found:,} {what} in packed tables, expected at most {most:,}"
            )
    return out


def _squares(means: Any, members: int) -> dict[str, float]:
    names = ("E_square", "W_square", "bias_square", "P_square")
    every = {f"{i}.{name}" for i in range(members) for name in names} if members > 1 else {*names}
    if not isinstance(means, dict) or means.keys() != every:
        of_each = " of each member" if members > 1 else ""
        raise ModelFileError(f"has no mean_squares of {', '.join(names)}{of_each}")
    for name, mean in means.items():
        if type(mean) not in (int, float) or not 0 <= mean <= LARGEST:
            raise ModelFileError(f"has {mean!r:.20} as the mean {name}")
    return means


def _positive(name: str, number: Any) -> float:
    if type(number) not in (int, float) or not 0 < number <= LARGEST:
        raise ModelFileError(f"has {number!r:.20} as its {name}, expected a number above 0")
    return float(number)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ModelFileError(f"has {value!r:.20} as {name}, expected true or false")
    return value


# --- tensors ----------------------------------------------------------------------------------


def _plan_here(plan: EnginePlan, device: Any, tensors: Arrays, for_training: bool) -> EnginePlan:
    """The plan on a device of this machine. A training state needs the device it came from."""
    plan = replace(plan, device=_device_here(device) if plan.importance else "cpu")
    if not for_training:
        return plan
    by_torch = any(name.rpartition(".")[2] == "steps" for name in tensors)
    if by_torch and plan.shallow:
        raise ModelFileError(
            "was saved with for_training=True on a GPU, and this machine has none. Save it without "
            "for_training to read it anywhere"
        )
    return plan if by_torch else replace(plan, device="cpu")


def _device_here(device: str) -> str:
    """The device it was trained on, if this machine has it, otherwise the CPU."""
    try:
        return choose_device(device)
    except ValueError:
        return "cpu"


def _parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as JSON values. The keys of class weights may not be strings."""
    # The number of threads changes nothing. Vectors have tensors of their own.
    plain = {**params, "threads": None, "pretrained": None}
    if isinstance(plain["class_weight"], Mapping):
        plain["class_weight"] = list(plain["class_weight"].items())
    return plain


def _is_table(name: str) -> bool:
    return name.rpartition(".")[2] in TABLES


def _weights(model: Engine) -> Arrays:
    """The tensors of a model. A shallow model need not copy them: nobody else changes them now."""
    if not isinstance(model, ShallowModel):
        return model.tensors()
    tables = model.tables
    arrays = {"E": tables.E, "W": tables.W, "bias": tables.bias}
    return {**arrays, "P": model.importance_weights} if model.importance else arrays


def _halved(name: str, array: npt.NDArray[Any], threads: int) -> npt.NDArray[Any]:
    """A table in half precision."""
    half = to_half(np.asarray(array, np.float32), threads)
    if half is None:
        raise ValueError(
            f"cannot save the model: its table {name} has values that half precision cannot hold"
        )
    return half


def _check_finite(name: str, array: npt.NDArray[Any]) -> None:
    if not np.isfinite(array).all():
        raise ValueError(f"cannot save the model: its table {name} has values that are not finite")


def _packed(classifier: TrainedClassifier) -> tuple[Arrays, dict[str, int]]:
    """The tensors of a compressed model, and the number of rows of each packed table."""
    model, out, counts = classifier.model_, dict[str, npt.NDArray[Any]](), dict[str, int]()
    for name, array in model.tensors().items():
        if _is_table(name):
            _check_finite(name, array)
            rows, kept = np.flatnonzero(array.any(axis=1)), array
            if isinstance(model, ListedModel):
                rows = model.listed.rows.astype(np.int64)
            else:
                kept = array[rows]
            codes, values = codes_and_values(kept)
            counts[name] = len(rows)
            out |= {f"{name}.{part}": tensor for part, tensor in pack(rows, codes, values).items()}
        elif name.endswith("W"):
            half = to_half(np.ascontiguousarray(array, np.float32), 1)
            out[name] = array if half is None else half
        else:
            out[name] = array
    return out, counts


def _coded(tensors: Arrays, plan: EnginePlan, coded: Any) -> Stored:
    """The tensors with quantized tables as such."""
    bits, out = coded["bits"], dict[str, npt.NDArray[Any] | CodedTable](tensors)
    if bits not in BITS:
        raise ModelFileError(f"has tables of {bits!r:.20} bits, expected one of {BITS}")
    for name, largest in coded["largest"].items():
        codes = tensors[name]
        width = plan.embedding_dim if name.endswith("E") else plan.spec.num_hashes
        if codes.dtype != np.uint8 or codes.shape[1:] != (-(-width * bits // 8),):
            raise ModelFileError(f"has codes of {name!r:.50} of a wrong shape or type")
        if not (isinstance(largest, float) and 0 < largest <= LARGEST):
            raise ModelFileError(f"has {largest!r:.20} as the largest number of {name!r:.50}")
        out[name] = coded_table(codes, largest, bits, width)
    return out


def _check_shapes(
    tensors: Stored, shapes: Mapping[str, tuple[int, ...]], for_training: bool
) -> None:
    """Check the shapes of tensors before anything of their size is allocated.

    The engine checks the additional tensors of training.
    """
    for name, shape in shapes.items():
        if name not in tensors:
            raise ModelFileError(f"has no tensor {name!r}")
        array = tensors[name]
        if array.shape != shape:
            raise ModelFileError(f"has a tensor {name!r} of shape {array.shape}, expected {shape}")
        if array.dtype.kind != "f":
            raise ModelFileError(f"has a tensor {name!r} of type {array.dtype}, expected floats")
    unknown = tensors.keys() - shapes.keys()
    if unknown and not for_training:
        raise ModelFileError(f"has an unknown tensor: {min(unknown)!r:.50}")
