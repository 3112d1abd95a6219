"""What the commands read: standard input, batches of rows, and the labels in them."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hashembed.readers import LabelledText, Report

KINDS = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "b": "True and False"}


def check_input(data: Sequence[str]) -> None:
    """Refuse "-" where standard input is closed."""
    if "-" in data and sys.stdin is None:
        raise click.ClickException("Standard input is closed: name a file to read.")


class Batches:
    """The batches of a reading. `report` is its report once the first batch has come."""

    def __init__(self, batches: Iterator["LabelledText"]) -> None:
        self._batches = batches
        self.report: Report | None = None

    def __iter__(self) -> Iterator["LabelledText"]:
        for batch in self._batches:
            self.report = batch.report
            yield batch


def as_type(labels: Any, classes: Any, may_be_new: bool = False) -> Any:
    """Convert labels of a file, which are strings, to the type of a model's classes.

    A model made in Python may have whole numbers or booleans as classes. A label must be spelled
    like one of the classes (1, 1.0, true) unless it may be new.
    """
    if classes.dtype.kind == "U":
        return labels
    meant = {spelled: c for c in classes.tolist() for spelled in (f"{c:g}", str(c), json.dumps(c))}

    def convert(label: str) -> Any:
        if label not in meant and may_be_new:
            meant[label] = _new_label(label, classes.dtype.kind)
        if meant.get(label) is None:
            known = f"{KINDS.get(classes.dtype.kind, classes.dtype.name)}, such as {classes[0]}"
            if may_be_new:
                raise ValueError(f"found the label {label!r}, but the model's classes are {known}")
            raise ValueError(f"found the label {label!r}, which is no class of the model ({known})")
        return meant[label]

    return [
        [convert(one) for one in label] if isinstance(label, list) else convert(label)
        for label in labels.to_pylist()
    ]


def _new_label(label: str, kind: str) -> Any:
    """The number or boolean that a string spells, or None."""
    if kind == "b":
        return {"true": True, "false": False}.get(label.lower())
    try:
        return float(label) if kind == "f" else int(label)
    except ValueError:
        return None
