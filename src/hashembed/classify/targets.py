"""Converts labels in any form to classes and class numbers, and back.

There are three forms: one label per document; a list (or set, tuple) of labels per document; and
scikit-learn's indicator matrix, a row of zeros and ones per document. The last two are multi-label.
"""

import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import distinct
from hashembed.core.arrow_columns import whole_numbers
from hashembed.engine.labels import Labels

Form = Literal["single", "lists", "matrix"]
Classes = npt.NDArray[Any]


@dataclass(frozen=True)
class Targets:
    """The classes, and the class numbers of each document."""

    classes: Classes
    labels: Labels
    form: Form

    @property
    def multilabel(self) -> bool:
        """Whether a document may have any number of classes."""
        return self.form != "single"


def encode(labels: Any, known: Classes | None = None, form: Form | None = None) -> Targets:
    """Number the labels.

    Classes are sorted; new ones come after the `known` ones. `form` is the required form: for a
    multi-label model, single labels count as lists of one, and lists as rows of a matrix.
    """
    found = _encode(labels, known)
    return found if form is None or form == found.form else _in_form(found, known, form)


def _in_form(found: Targets, known: Classes | None, form: Form) -> Targets:
    """Convert the labels to the form of a model, if possible."""
    if form == "single":
        raise ValueError(
            f"{_several(found)}, but the model was trained with one label per text: "
            "give one label for each text, or train a model on texts with several labels"
        )
    if found.form == "matrix":
        raise ValueError(
            "found a matrix of zeros and ones, but the model was trained with lists of labels: "
            "give a list of its classes for each text"
        )
    if form == "matrix" and known is not None and len(found.classes) > len(known):
        raise ValueError(
            f"found label {found.classes[-1].item()!r}, but the model was trained with a matrix of "
            f"{len(known):,} columns: its labels are 0 to {len(known) - 1:,}"
        )
    return replace(found, form=form)


def _several(found: Targets) -> str:
    """Why these labels do not suit a model with one label per text."""
    if found.form == "matrix":
        return "found a matrix of labels"
    numbers = np.diff(found.labels.offsets)
    row = int(np.argmax(numbers != 1))
    if len(numbers) == 0 or numbers[row] == 1:
        return "found lists of labels"
    if numbers[row] == 0:
        return f"found a text without a label (text {row + 1:,})"
    start = found.labels.offsets[row]
    first, second = found.classes[found.labels.labels[start : start + 2]].tolist()
    return f"found several labels for one text (text {row + 1:,} has {first!r} and {second!r})"


def _encode(labels: Any, known: Classes | None) -> Targets:
    """Number the labels in their own form."""
    if labels is None:
        raise ValueError("TextClassifier requires y to be passed, but the target y is None")
    if isinstance(labels, str | bytes):
        raise TypeError(f"labels must be a list with one for each text, found one: {labels!r:.50}")
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    if isinstance(labels, pa.Array) and not pa.types.is_dictionary(labels.type):
        labels = labels.to_pylist()
    if isinstance(labels, pa.Array):
        return _from_single(labels, known)
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    elif hasattr(labels, "__array__"):
        labels = np.asarray(labels)
    elif not hasattr(labels, "__len__"):
        labels = list(labels)
    if isinstance(labels, np.ndarray) and labels.ndim > 2:
        raise ValueError(f"labels must have one dimension, found shape {labels.shape}")
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        return (_from_matrix if labels.shape[1] > 1 else _from_single)(labels, known)
    if len(labels) and _is_group(labels[0]):
        if _is_listed_matrix(labels):
            return _from_matrix(np.array(labels), known)
        return _from_lists(labels, known)
    return _from_single(labels, known)


def join(parts: Sequence[Targets]) -> Targets:
    """Concatenate parts, each encoded with the classes of the parts before it; sort the classes.

    Parts with one label per text can be joined with parts of lists: a batch of multi-label data may
    happen to have one label per text.
    """
    forms = {part.form for part in parts}
    form: Form = "lists" if forms == {"single", "lists"} else parts[-1].form
    if len(forms) > 1 and form != "lists":
        raise ValueError(
            f"labels must have the same form in all batches, found {' and '.join(sorted(forms))}"
        )
    classes, place = np.unique(parts[-1].classes, return_inverse=True)
    ends = np.cumsum([0, *(len(part.labels.labels) for part in parts)])
    offsets = [p.labels.offsets[1:] + end for p, end in zip(parts, ends, strict=False)]
    numbers = np.concatenate([part.labels.labels for part in parts])
    labels = Labels(place[numbers], np.concatenate([np.zeros(1, np.int64), *offsets]))
    return Targets(classes, labels, form)


def check_counts(texts: int, targets: Targets, which: str = "") -> None:
    """Refuse labels that are not one for each text."""
    if texts != len(targets.labels):
        raise ValueError(f"found {texts:,} {which}texts, but {len(targets.labels):,} labels")


def decode(chosen: npt.NDArray[np.bool_], classes: Classes, form: Form) -> npt.NDArray[Any]:
    """Which document has which class (n, C) -> labels in the given form."""
    if form == "matrix":
        return chosen.astype(np.int64)
    answers = np.empty(len(chosen), object)
    for i, row in enumerate(chosen):
        answers[i] = tuple(classes[row].tolist())
    return answers


def _is_group(label: Any) -> bool:
    return isinstance(label, list | tuple | set | frozenset | np.ndarray)


def _is_listed_matrix(groups: Any) -> bool:
    """Whether lists are rows of zeros and ones: of one length, and some repeat a number."""
    rows = [list(group) for group in groups if isinstance(group, list | tuple | np.ndarray)]
    if len(rows) < len(groups) or len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return False
    return all({*row} <= {0, 1} for row in rows) and any(len({*row}) < len(row) for row in rows)


def _from_single(labels: Any, known: Classes | None) -> Targets:
    values, ranks = _ranks(labels)
    classes, numbers = _number(values, known)
    return Targets(classes, Labels.single(numbers[ranks]), "single")


def _ranks(labels: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Distinct values in any order, and the index of each label among them."""
    if isinstance(labels, pa.Array):
        if labels.null_count:
            _missing(int(np.argmax(labels.is_null().to_numpy(zero_copy_only=False))), None)
        indices = whole_numbers(labels.indices)
        used = np.bincount(indices) > 0  # the dictionary may have unused values
        ranks = (np.cumsum(used) - 1)[indices]
        return _checked(labels.dictionary.to_pylist())[np.flatnonzero(used)], ranks
    array = _checked(labels)
    if array.dtype.kind == "U":  # hashing is faster than NumPy's sorting
        names = array.tolist()
        rank_of = {name: rank for rank, name in enumerate(dict.fromkeys(names))}
        ranks = np.fromiter(map(rank_of.__getitem__, names), np.int64, len(names))
        return np.array([*rank_of], str), ranks
    return np.unique(array, return_inverse=True)


def _checked(labels: Any) -> npt.NDArray[Any]:
    """Labels as an array of strings, whole numbers or booleans."""
    if not isinstance(labels, np.ndarray):
        group = next((i for i, label in enumerate(labels) if _is_group(label)), None)
        if group is not None:
            raise TypeError(
                f"label {group} is {labels[group]!r:.50}, but the labels before it are single: "
                "give all labels as lists, or none"
            )
    array = labels if isinstance(labels, np.ndarray) else exact_array(labels)
    if array.ndim == 2:
        _warn_column()
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"labels must have one dimension, found shape {array.shape}")
    if array.dtype == object or array.dtype.kind == "U":
        listed = array.tolist() if isinstance(labels, np.ndarray) else list(labels)
        for i, label in enumerate(listed):
            if label is None or label != label:
                _missing(i, label)
        kinds = {type(label) for label in listed}
        if not kinds <= {str, np.str_}:
            return _one_type(listed, kinds)
        return np.array(listed, str)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            i = int(np.argmin(np.isfinite(array)))
            raise ValueError(f"label {i} is missing: Input y contains NaN or infinity")
        if (array != np.floor(array)).any():
            raise ValueError(
                "Unknown label type: continuous. Labels must be classes (str, int, bool), found "
                f"fractions such as {array[array != np.floor(array)][0]}"
            )
    elif array.dtype.kind not in "iub":
        raise TypeError(f"labels must be str, int or bool, found {array.dtype}")
    return array


def _one_type(listed: list[Any], kinds: set[type]) -> npt.NDArray[Any]:
    """Convert objects that are all numbers or all booleans; refuse anything else."""
    if kinds <= {bool, np.bool_}:
        return np.array(listed, bool)
    if kinds <= {int, float, bool, np.bool_} or all(issubclass(k, np.number) for k in kinds):
        return _checked(exact_array(listed))
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"labels must be all str, all int or all bool, found {names}: use [str(y) for y in labels]"
    )


def exact_array(listed: Iterable[Any]) -> npt.NDArray[Any]:
    """An array of labels. NumPy would round large whole numbers to floats, beyond 2^53."""
    listed = list(listed)
    array = np.asarray(listed)
    kinds = set(map(type, listed)) if array.dtype.kind in "fO" else set()
    if not any(issubclass(kind, int | np.integer) for kind in kinds - {bool}):
        return array
    whole = [int(y) for y in listed if isinstance(y, int | np.integer)]
    if len(whole) == len(listed) and min(whole) >= 0 and max(whole) < 2**64:
        return np.array(whole, np.uint64)
    if len(whole) == len(listed) or (array.dtype.kind == "f" and max(map(abs, whole)) > 2**53):
        raise ValueError(
            f"labels must be whole numbers of one type, int64 or uint64, found {min(whole)} and "
            f"{max(whole)}: use [str(y) for y in labels]"
        )
    return array


def _as_one_type(first: Classes, second: Classes) -> tuple[Classes, Classes]:
    """Signed and unsigned integers as one integer type, if possible. NumPy would take floats."""
    if {first.dtype.kind, second.dtype.kind} != {"i", "u"}:
        return first, second
    ends = [int(end) for part in (first, second) if len(part) for end in (part.min(), part.max())]
    for dtype in (np.int64, np.uint64):
        limits = np.iinfo(dtype)
        if all(limits.min <= end <= limits.max for end in ends):
            return first.astype(dtype), second.astype(dtype)
    return first, second


def _missing(position: int, found: Any) -> None:
    raise ValueError(f"label {position} is missing (found {found}): leave out such rows")


def _warn_column() -> None:
    category: type[Warning] = UserWarning
    if "sklearn" in sys.modules:
        category = sys.modules["sklearn.exceptions"].DataConversionWarning
    message = "A column-vector y was passed when a 1d array was expected: it is flattened"
    warnings.warn(message, category, stacklevel=5)


def _number(
    values: npt.NDArray[Any], known: Classes | None
) -> tuple[Classes, npt.NDArray[np.int64]]:
    """The classes, and the class number of each of these distinct values."""
    fresh = distinct(values)
    if known is None or len(known) == 0:
        return fresh, np.searchsorted(fresh, values)
    fresh, known = _as_one_type(fresh, known)
    if len(fresh) and fresh.dtype.kind != known.dtype.kind:
        raise TypeError(_other_type(known, fresh))
    before = set(known.tolist())
    added = [label for label in fresh.tolist() if label not in before]
    classes = np.concatenate([known, np.array(added, fresh.dtype)]) if added else known
    place = {label: i for i, label in enumerate(classes.tolist())}
    return classes, np.array([place[value] for value in values.tolist()], np.int64)


def _other_type(known: Classes, found: Classes) -> str:
    """The message for labels of another type than the classes."""
    wanted, given = (_TYPES.get(a.dtype.kind, repr(a.dtype.name)) for a in (known, found))
    meant, example = known[:1].tolist()[0], found[:1].tolist()[0]
    cure = f"np.asarray(labels).astype({wanted})"
    if wanted == "bool":
        cure = f"np.asarray(labels) == {example!r}, with the label that means True"
    elif {known.dtype.kind, found.dtype.kind} == {"i", "u"}:  # and no type holds both
        cure = "strings from the beginning: [str(y) for y in labels]"
    return (
        f"labels so far are {wanted}, such as {meant!r}, found {given}, such as {example!r}: "
        f"give {cure}"
    )


_TYPES = {"U": "str", "i": "int", "f": "float", "b": "bool"}  # kinds of arrays


def _from_lists(groups: Iterable[Any], known: Classes | None) -> Targets:
    flat: list[Any] = []
    offsets = [0]
    for i, group in enumerate(groups):
        if not _is_group(group):
            raise TypeError(
                f"label {i} is {group!r:.50}, but the labels before it are lists: give all labels "
                "as lists, or none"
            )
        members = list(dict.fromkeys(exact_array(group).tolist() if len(group) else []))
        if isinstance(group, set | frozenset):
            members.sort(key=repr)
        flat.extend(members)
        offsets.append(len(flat))
    if flat:
        values, ranks = _ranks(flat)
        classes, numbers = _number(values, known)
        numbers = numbers[ranks]
    else:
        classes = np.empty(0, str) if known is None else known
        numbers = np.empty(0, np.int64)
    return Targets(classes, Labels(numbers, np.array(offsets, np.int64)), "lists")


def _from_matrix(matrix: npt.NDArray[Any], known: Classes | None) -> Targets:
    if not np.isin(matrix, (0, 1)).all():
        raise ValueError(
            "Unknown label type: labels in two dimensions must be an indicator matrix of zeros "
            "and ones"
        )
    rows, columns = np.nonzero(matrix)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    classes = np.arange(matrix.shape[1])
    if known is not None and len(known) != len(classes):
        raise ValueError(
            f"found {len(classes)} columns of labels, but the model has {len(known)} classes"
        )
    return Targets(classes, Labels(columns.astype(np.int64), offsets.astype(np.int64)), "matrix")
