"""What the commands that ask a model share."""

import json
from typing import Any

import click

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
        listed = ", ".join(list(meant)[:10]) + (", ..." if len(meant) > 10 else "")
        raise click.BadParameter(
            f"the model has no class {name!r}, only {listed}.", param_hint="--class"
        )
    return meant[name]
