"""`--on`: train, test and predict on a Ray cluster, with the same options and the same messages."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.options import option_names, say, was_given
from hashembed.core.locations import is_uri

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.tally import Tally
    from hashembed.cli.train_options import TrainOptions
    from hashembed.distributed.columns import Skipped

LOCAL, AUTO, CLIENT = "local", "auto", "ray://"
SECONDS = 10  # to wait for a cluster to answer

on_option = click.option(
    "--on",
    metavar="CLUSTER",
    help="Run on a Ray cluster: local starts one on this machine, auto finds the one that this "
    "machine belongs to, or an address such as ray://head:10001.",
)

# Options of `train` that do not go with --on.
NEVER_ON = {
    "stream": "a stream is learned by one machine",
    "checkpoint": "give --storage: a folder for the training state that all nodes can reach",
    "time_limit": "the nodes have no common clock; see --effort",
    "threads": "the trainer takes all cores of a node",
}


def check_on(ctx: click.Context, on: str | None, storage: str | None = None) -> None:
    """Refuse options that do not go with --on, or need it."""
    names = option_names(ctx)
    if on is None:
        if storage is not None:
            raise click.UsageError("--storage needs --on: it is where the nodes keep their keys.")
        return
    for name, why in NEVER_ON.items():
        if name in names and was_given(ctx, name):
            raise click.UsageError(f"{names[name]} cannot be used with --on: {why}.")


@contextmanager
def cluster(on: str, quiet: bool) -> Iterator[None]:
    """Connected to a cluster, while this lasts."""
    import logging

    from hashembed.distributed.cluster import load_ray

    ray = load_ray()
    _check_address(on)
    try:
        ray.init(on, logging_level="error", log_to_driver=not quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise click.ClickException(f"Cannot connect to the Ray cluster {on!r}: {first}") from None
    # Its stacks of errors go to its own log files; the command prints the error itself.
    for handler in logging.getLogger("ray.data").handlers:
        handler.setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = not quiet and sys.stderr.isatty()
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(on: str) -> None:
    """Refuse an address where nobody listens. Ray would try for minutes."""
    import socket

    host, colon, port = on.removeprefix(CLIENT).partition(":")
    if not colon:
        if on in (LOCAL, AUTO):
            return
        raise click.BadParameter(
            f"found {on!r}, expected local, auto, or an address such as ray://head:10001.",
            param_hint="--on",
        )
    try:
        with socket.create_connection((host, int(port)), timeout=SECONDS):
            pass
    except (OSError, ValueError, OverflowError) as error:
        raise click.ClickException(f"Cannot connect to the Ray cluster {on!r}: {error}.") from None


def run_there(on: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that uses the cluster; with a client's address, on the cluster itself."""
    if not on.startswith(CLIENT):
        return work(*arguments)
    from hashembed.distributed.groups import fetch, remote_task

    return fetch(remote_task("command", 0).remote(work, *arguments))


def train_there(classifier: "TextClassifier", run: "TrainOptions") -> "TextClassifier":
    """Train on the files of a command, by the cluster."""
    assert run.on is not None
    with cluster(run.on, run.quiet):
        trained: TextClassifier = run_there(
            run.on,
            _train,
            classifier,
            list(run.data),
            run.source,
            run.validation,
            run.storage,
            run.cache_dir,
        )
    return trained


def _train(
    classifier: "TextClassifier",
    data: list[str],
    source: dict[str, Any],
    validation: str | None,
    storage: str | None,
    cache_dir: str | None,
) -> "TextClassifier":
    import hashembed.distributed as hd
    from hashembed.distributed.cluster import node_count

    ds = hd.read(data, **source)
    held_out = None if validation is None else hd.read(validation, **source)
    on_error = source.get("on_error", "stop")
    if classifier.effort != "fast":
        classifier = hd.choose(classifier, ds, on_error=on_error)
    options = {"storage": storage, "on_error": on_error, "cache_dir": cache_dir}
    alone = held_out is None and not classifier.patience and not classifier.validation_fraction
    trained: TextClassifier
    if alone and node_count() > 1:
        trained = hd.fit_members(classifier, ds, **options)
    else:
        trained = hd.fit(classifier, ds, validation=held_out, **options)
    return trained


def evaluate_there(
    on: str,
    classifier: "TextClassifier",
    data: list[str],
    source: dict[str, Any],
    limits: dict[str, Any],
    quiet: bool,
) -> "tuple[Tally, Skipped]":
    """Count right and wrong answers for the files of a command, by the cluster."""
    with cluster(on, quiet):
        found: tuple[Tally, Skipped] = run_there(on, _evaluate, classifier, data, source, limits)
    return found


def _evaluate(
    classifier: "TextClassifier", data: list[str], source: dict[str, Any], limits: dict[str, Any]
) -> "tuple[Tally, Skipped]":
    import hashembed.distributed as hd
    from hashembed.distributed.answers import tally

    on_error = source.get("on_error", "stop")
    ds = hd.read(data, **source)
    if classifier.classes_.dtype.kind != "U":  # a model that was made in Python
        ds = ds.map_batches(
            _typed, batch_format="pyarrow", fn_kwargs={"classes": classifier.classes_}
        )
    return tally(classifier, ds, text="text", label="label", on_error=on_error, **limits)


def _typed(table: Any, classes: Any) -> Any:
    """The labels of a file, which are strings, in the type of a model's classes."""
    import pyarrow as pa

    from hashembed.cli.inputs import as_type

    place = table.column_names.index("label")
    known = table["label"].is_valid().to_pylist()
    found = iter(as_type(table["label"].drop_null(), classes))
    return table.set_column(place, "label", pa.array([next(found) if x else None for x in known]))


def predict_there(
    on: str,
    classifier: "TextClassifier",
    data: list[str],
    source: dict[str, Any],
    options: dict[str, Any],
    output: str,
    quiet: bool,
) -> None:
    """Write the answers for the files of a command as Parquet files, by all nodes."""
    if on.startswith(CLIENT) and not is_uri(output):
        say(f"The nodes write to {output}: it must be a folder that all of them share.", quiet)
    with cluster(on, quiet):
        run_there(on, _predict, classifier, data, source, options, output)


def _predict(
    classifier: "TextClassifier",
    data: list[str],
    source: dict[str, Any],
    options: dict[str, Any],
    output: str,
) -> None:
    import os

    import hashembed.distributed as hd
    from hashembed.distributed.cluster import column_names, plain_errors

    keep = options.pop("keep")
    ds = hd.read(data, labelled=False, keep=keep, **source)
    kept = [name for name in column_names(ds) if name != "text"] if keep is True else keep
    found = hd.predict(classifier, ds, keep=["text", *kept] if keep is True else kept, **options)
    with plain_errors():
        found.write_parquet(output if is_uri(output) else os.path.abspath(output))
