"""What the commands that make predictions share."""

import sys
from typing import Any, TextIO

import click

from hashembed.core.printable import printable

LISTED = 10  # classes in a message

top_option = click.option(
    "--top", type=click.IntRange(1), metavar="K", help="Give the K most likely classes."
)
threshold_option = click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Give only classes with a probability above P. Multi-label models have a default, which "
    "training chose.",
)


def class_named(name: str, classes: Any) -> Any:
    """The class of a model with this spelling."""
    meant = {str(c): c for c in classes.tolist()}
    if name not in meant:
        listed = printable(", ".join(list(meant)[:LISTED]))
        more = f" and {len(meant) - LISTED:,} more" if len(meant) > LISTED else ""
        raise click.BadParameter(
            f"found {name!r}, but the classes of the model are {listed}{more}.",
            param_hint="--class",
        )
    return meant[name]


def columns_to_keep(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> list[str | int] | None:
    """'id,3' -> ['id', 3]."""
    if value is None:
        return None
    return [int(part) if part.isdigit() else part for part in value.split(",")]


def results() -> TextIO:
    """Standard output, which takes the answers."""
    if sys.stdout is None:
        raise click.ClickException("Standard output is closed: answers have nowhere to go.")
    return sys.stdout


def is_terminal(stream: TextIO) -> bool:
    """Whether control characters in this stream would reach a terminal."""
    return stream.isatty()
