"""Models by their name on the hub, or by a URI, for every command that takes a model file."""

import os
import sys

import click


class HubFile(str):
    """The path of a downloaded model file, and the name by which the user asked for it."""

    asked: str


def as_given(path: str) -> str:
    """What the user wrote for a model: a path, or hub:owner/name."""
    return path.asked if isinstance(path, HubFile) else path


def name_of_model(path: str) -> str:
    """How to call a model in a table: hub:owner/name, or the name of its file."""
    return path.asked if isinstance(path, HubFile) else os.path.basename(path)


def fetched(uri: str) -> HubFile:
    """The model file of a URI, copied to this machine until the command ends."""
    import atexit
    from contextlib import ExitStack

    from hashembed.core.locations import local_copy

    stack = ExitStack()
    path = HubFile(stack.enter_context(local_copy(uri)))
    path.asked = uri
    atexit.register(stack.close)
    return path


def downloaded(name: str, quiet: bool) -> HubFile:
    """The model file of owner/name or owner/name@revision, on this machine."""
    model_id, at, revision = name.partition("@")
    if not model_id or (at and not revision):
        raise click.BadParameter(
            f"found hub:{name}, expected hub:owner/name or hub:owner/name@revision."
        )
    from hashembed.classify.hub import download, hide_progress

    if quiet or not sys.stderr.isatty():
        hide_progress()
    path = HubFile(download(model_id, revision=revision or None))
    path.asked = f"hub:{name}"
    return path
