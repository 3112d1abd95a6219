"""Checks before a command writes, so that it overwrites neither its inputs nor other files.

An output must not be one of the inputs, even under another path. An existing file is replaced only
by a file of the same kind, unless --force is given. The content of a file determines its kind.
"""

import glob
import os
import stat
import sys
from collections.abc import Iterable
from typing import Literal, NamedTuple

import click

from hashembed.core.locations import is_uri

Kind = Literal["model", "snapshot", "picture", "page", "table", "card"]

force_option = click.option("--force", is_flag=True, help="Replace existing files of any kind.")

NAMES = {
    "model": "a model",
    "snapshot": "a training state",
    "picture": "a picture",
    "page": "an HTML page",
}
# Files that look like those of others: what they may be.
_LIKE_OTHERS = {"table": "may be data", "card": "may have been written by hand"}
_PICTURES = (b"\x89PNG", b"%PDF", b"%!PS", b"\xff\xd8\xff", b"II*\0", b"MM\0*")
_START = 4096  # bytes that tell the kind


class Output(NamedTuple):
    """A file that a command will write; `path` is None if its option was not given."""

    option: str
    path: str | None
    kind: Kind


def check_outputs(
    inputs: Iterable[str | None], outputs: Iterable[Output], force: bool = False
) -> None:
    """Refuse outputs that would destroy a file or cannot be written, before any work is done."""
    read = [path for given in inputs if given is not None for path in _expanded(given)]
    given = [output for output in outputs if output.path is not None and not is_uri(output.path)]
    for number, output in enumerate(given):
        for path in read:
            _check_input(output, path)
        for other in given[:number]:
            if _is_same(str(output.path), str(other.path)):
                _refuse(output, f"is also the file of {other.option}: choose another name")
        _check_writable(output)
        if not force or output.kind == "snapshot":  # which the command also reads
            _check_kind(output)
    for path in read:
        _check_standard_output(path)


def _expanded(path: str) -> list[str]:
    """The files that a path or a pattern stands for, without standard input."""
    if path == "-":
        return []
    found = [] if os.path.exists(path) else glob.glob(path, recursive=True)
    return found or [path]


def _check_input(output: Output, path: str) -> None:
    if _is_same(str(output.path), path):
        _refuse(output, f"is also an input of this command ({path}): choose another name")
    inside = os.path.join(os.path.realpath(path), "")
    if os.path.isdir(path) and os.path.realpath(str(output.path)).startswith(inside):
        _refuse(output, f"is in {path}, which this command reads as data: choose another folder")


def _is_same(one: str, other: str) -> bool:
    """Whether both are the same regular file, by a link or not."""
    try:
        found, wanted = os.stat(one), os.stat(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
    return os.path.samestat(found, wanted) and stat.S_ISREG(found.st_mode)


def _check_writable(output: Output) -> None:
    """Refuse a file in a missing or read-only folder, and a device that takes no data."""
    from hashembed.core.writing import check_sink

    path = str(output.path)
    if os.path.exists(path) and not os.path.isfile(path):
        try:
            check_sink(path, os.stat(path))
        except OSError as error:
            _refuse(output, f"{error.strerror}")
        if not os.access(path, os.W_OK):
            _refuse(output, "cannot be written to")
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        _refuse(output, f"cannot be written: found no folder {os.path.dirname(path) or folder}")
    in_place = output.kind == "picture" and os.path.exists(path)
    if not os.access(path if in_place else folder, os.W_OK):
        _refuse(output, f"cannot be written: no permission in {folder}")


def _check_kind(output: Output) -> None:
    path = str(output.path)
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return
    found = kind_of_file(path)
    if found != output.kind or found is None:
        is_there = f"is {NAMES.get(found or '', f'not {NAMES.get(output.kind)}')}"
        if found is None and output.kind in _LIKE_OTHERS:
            is_there = _LIKE_OTHERS[output.kind]
        force = "" if output.kind == "snapshot" else ", or add --force"
        _refuse(output, f"already exists and {is_there}: choose another name{force}")


def kind_of_file(path: str) -> Kind | None:
    """What a file holds, by its content; None for anything else, such as data."""
    from hashembed.engine.tensor_file import kind_of

    try:
        with open(path, "rb") as file:
            start = file.read(_START)
        ours = kind_of(path)
    except OSError:
        return None
    if ours is not None:
        return "snapshot" if ours == "Snapshot" else "model"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "page"
    drawn = start.startswith(_PICTURES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP")
    drawn = drawn or text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text)
    drawn = drawn or (start[:2] == b"\x1f\x8b" and path.endswith(".svgz"))
    return "picture" if drawn else None


def _check_standard_output(path: str) -> None:
    """`predict model texts >> texts` would read its own answers and never end."""
    try:
        same = os.path.samestat(os.fstat(sys.__stdout__.fileno()), os.stat(path))  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return
    if same and os.path.isfile(path):
        raise click.UsageError(
            f"Standard output goes to {path}, which this command reads: choose another file."
        )


def _refuse(output: Output, why: str) -> None:
    raise click.BadParameter(f"{output.path} {why}.", param_hint=output.option)
