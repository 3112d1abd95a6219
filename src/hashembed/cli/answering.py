"""What the commands that ask a model share."""

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from hashembed.core.printable import printable

top_option = click.option(
    "--top", type=click.IntRange(1), metavar="K", help="The K most likely classes of a text."
)
threshold_option = click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Only classes of a probability above P; of multi-label models 0.5 by default.",
)


def as_type(labels: Any, classes: Any) -> Any:
    """Labels of a file, which are strings -> the classes that look like them: 1, 1.0, true."""
    if classes.dtype.kind == "U":
        return labels
    meant = {spelled: c for c in classes.tolist() for spelled in (f"{c:g}", str(c), json.dumps(c))}
    listed = labels.to_pylist()
    flat = {y for label in listed for y in (label if isinstance(label, list) else [label])}
    unknown = sorted(flat - meant.keys())
    if unknown:
        raise ValueError(
            f"the model's classes are of type {classes.dtype.name}, such as {classes[0]}, and none "
            f"is {unknown[0]!r}"
        )
    return [[meant[y] for y in x] if isinstance(x, list) else meant[x] for x in listed]


def class_named(name: str, classes: Any) -> Any:
    """The class of a model that is spelled like this."""
    meant = {str(c): c for c in classes.tolist()}
    if name not in meant:
        listed = printable(", ".join(list(meant)[:10])) + (", ..." if len(meant) > 10 else "")
        raise click.BadParameter(
            f"the model has no class {name!r}, only {listed}.", param_hint="--class"
        )
    return meant[name]


def columns_to_keep(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> list[str | int] | None:
    """'id,3' -> ['id', 3]."""
    if value is None:
        return None
    return [int(part) if part.isdigit() else part for part in value.split(",")]


def check_input(data: Sequence[str]) -> None:
    """Where standard input is read, it must be there."""
    if "-" in data and sys.stdin is None:
        raise click.ClickException("Standard input is closed: name a file to read.")


def results() -> TextIO:
    """Where answers go."""
    if sys.stdout is None:
        raise click.ClickException("Standard output is closed: there is nowhere to write answers.")
    return sys.stdout


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it, and a terminal obeys what it is sent."""
    return stream.isatty()
