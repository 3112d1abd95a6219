"""`hashembed train`."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.aliases import WithAliases
from hashembed.cli.inputs import Batches
from hashembed.cli.on_cluster import check_on, on_option, train_there
from hashembed.cli.options import (
    COUNT_UNITS,
    data_options,
    draw,
    draw_with,
    json_option,
    lengths_or_auto,
    quantity,
    quiet_option,
    say,
    seed_option,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.stream import train_on_stream
from hashembed.cli.train_options import TrainOptions
from hashembed.cli.unlabelled import learn_vectors
from hashembed.core.locations import size_of

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import LabelledText, Report

EXAMPLE = """\b
Examples:
  hashembed train train.csv -o model.safetensors
  hashembed train reviews/*.jsonl.gz --text title,body --label stars -o model.safetensors
  hashembed train train.csv --effort best --plot-search tried.png -o model.safetensors
  hashembed train train.csv --validation-fraction 0.1 --patience 3 -o model.safetensors
  hashembed train few.csv --unlabelled more.txt -o model.safetensors
  hashembed train --stream monday.csv -o model.safetensors
  hashembed train --stream tuesday.csv -o model.safetensors --continue
  hashembed train s3://bucket/corpus/ --on auto --storage s3://bucket/run -o s3://bucket/model
fastText's options (-lr, -epoch, -dim, -wordNgrams, -minn, -maxn) work too."""

_count = quantity(COUNT_UNITS, "1M or 500k")


def _seconds(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"found {value}, expected a number of seconds, 0 or more.")
    return value


def _class_weight(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | dict[str, float] | None:
    """'balanced', 'sqrt', or 'spam=2,ham=0.5' -> {'spam': 2.0, 'ham': 0.5}."""
    if value in (None, "balanced", "sqrt"):
        return value
    weights = {}
    for part in value.split(","):
        label, equals, weight = part.rpartition("=")
        try:
            weights[label] = float(weight)
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(
                f"found {value!r}, expected balanced, sqrt, or weights such as spam=2,ham=0.5."
            )
    return weights


@click.command("train", cls=WithAliases, epilog=EXAMPLE)
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="Model file.")
@data_options()
@click.option(
    "--ngrams",
    callback=lengths_or_auto,
    metavar="RANGE",
    default="auto",
    show_default=True,
    help="Lengths of word n-grams, such as 1-2.",
)
@click.option(
    "--subwords",
    callback=lengths_or_auto,
    metavar="RANGE",
    default="auto",
    show_default=True,
    help="Lengths of character n-grams, such as 2-4, or none.",
)
@click.option(
    "--lowercase/--no-lowercase", default=True, show_default=True, help="Whether to ignore case."
)
@click.option(
    "--punctuation",
    type=click.Choice(["auto", "drop", "keep"]),
    default="auto",
    show_default=True,
    help="Drop punctuation, or keep runs of it, such as ++ or :-), as words.",
)
@click.option(
    "--repeats",
    type=click.Choice(["auto", "all", "damp", "once"]),
    default="auto",
    show_default=True,
    help="Equal n-grams of a text: count all, the first, second, fourth, ..., or the first only.",
)
@click.option(
    "--effort",
    type=click.Choice(["fast", "normal", "best"]),
    default="normal",
    show_default=True,
    help="Work for choosing what is auto: none, about as much as fastText's training, or more.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Choose and train within about this time, instead of an effort.",
)
@click.option(
    "--metric",
    type=click.Choice(["accuracy", "f1", "average_precision", "log_loss"]),
    default="accuracy",
    show_default=True,
    help="What to choose by.",
)
@click.option(
    "--embedding-dim",
    type=click.IntRange(1, 4096),
    help="d, the size of a vector. By default chosen by the number of classes.",
)
@click.option(
    "--num-hashes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="k, the number of hash functions.",
)
@click.option(
    "--num-embeddings",
    callback=_count,
    metavar="COUNT",
    help="K, rows of weights. By default chosen by the number of n-grams.",
)
@click.option(
    "--num-buckets",
    callback=_count,
    metavar="COUNT",
    help="B, component vectors. By default chosen by K and the size of the file.",
)
@click.option(
    "--bits",
    type=click.Choice(["16", "8", "4"]),
    default="8",
    show_default=True,
    help="Bits of a number in the model file.",
)
@click.option(
    "--members",
    type=click.IntRange(1),
    help="Models in the ensemble. By default several for small data, fewer for large.",
)
@click.option(
    "--unlabelled",
    metavar="FILE",
    multiple=True,
    help="Texts without labels: learn word vectors from them first. Can be given several times.",
)
@click.option(
    "--pretrained",
    metavar="FILE",
    help="Start from the word vectors in this file.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
@click.option(
    "--passes",
    type=click.IntRange(1),
    help="Passes over the data. By default chosen by the data.",
)
@click.option(
    "--learning-rate",
    type=float,
    help="Initial learning rate. By default chosen by the data.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Texts in a step. By default chosen by their lengths.",
)
@click.option(
    "--class-weight",
    callback=_class_weight,
    metavar="WEIGHTS",
    help="balanced, sqrt (halfway there), or weights such as spam=2,ham=0.5.",
)
@click.option("--validation", metavar="FILE", help="Validate on this file after every pass.")
@click.option(
    "--validation-fraction",
    type=float,
    default=0.0,
    help="Or hold out this fraction of the data, such as 0.1.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    help="Stop after this many passes without a lower validation loss, and keep the best.",
)
@click.option(
    "--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the loss of the passes."
)
@click.option(
    "--plot-search",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Draw what was tried to choose the settings.",
)
@click.option(
    "--checkpoint",
    metavar="FILE",
    help="Save the training state here after every pass, and resume from it if it exists.",
)
@click.option(
    "--cache-dir", type=click.Path(), help="Keep keys in this folder, for data larger than memory."
)
@on_option
@click.option(
    "--storage",
    metavar="FOLDER",
    help="With --on: a folder or URI that all nodes can reach, for keys and the training state.",
)
@click.option(
    "--stream", is_flag=True, help="Learn online: one pass, in order, in constant memory."
)
@click.option(
    "--resume",
    is_flag=True,
    help="With --stream: after an interruption, skip the data that was learned.",
)
@click.option(
    "--continue",
    "continue_",
    is_flag=True,
    help="With --stream: train the model in --output on new data.",
)
@click.option(
    "--save-seconds",
    callback=_seconds,
    default=30.0,
    show_default=True,
    help="With --stream: seconds between saves.",
)
@force_option
@seed_option
@threads_option
@json_option
@quiet_option
def train_command(data: tuple[str, ...], **options: Any) -> None:
    """Train a classifier on labelled text.

    DATA is one or more files or folders: CSV, TSV, JSON lines, Parquet, fastText's format, or a
    folder with one folder for each class, compressed or not. - reads standard input.
    """
    start, ctx = time.perf_counter(), click.get_current_context()
    run = TrainOptions.parse(ctx, data, **options)
    check_on(ctx, run.on, run.storage)
    check_outputs(
        [*data, run.validation, *run.unlabelled, run.pretrained],
        [
            Output("--output", run.output, "model"),
            Output("--plot", run.plot, "picture"),
            Output("--plot-search", run.plot_search, "picture"),
            Output("--checkpoint", run.checkpoint, "snapshot"),
        ],
        run.force,
    )
    with _while_loading(run.quiet):
        from hashembed.classify.classifier import TextClassifier
        from hashembed.classify.engine_plan import choose_device
        from hashembed.core.threads import uninterrupted

    # Before reading the data, which may take long. A cluster may have a GPU where this one has not.
    device = run.device if run.on is not None else choose_device(run.device)
    classifier = TextClassifier(
        **run.arguments, pretrained=run.pretrained, device=device, verbose=not run.quiet
    )
    if run.stream:
        train_on_stream(ctx, classifier, run)
        return
    report: Report | None = None
    try:
        if run.on is not None:
            classifier = train_there(classifier, run)
        else:
            report = _fit(classifier, run)
    except KeyboardInterrupt:
        uninterrupted(lambda: _save_interrupted(classifier, run))  # even by a second Ctrl-C
        raise
    classifier.save(run.output, bits=int(run.bits))
    draw(classifier.history_, run.plot, run.quiet)
    _draw_search(classifier, run)
    _tell(classifier, report, run, time.perf_counter() - start)


def _fit(classifier: "TextClassifier", run: TrainOptions) -> "Report | None":
    """Train on the files -> the report of reading them."""
    from hashembed.readers import read, read_batches

    files, checkpoint, validation = list(run.data), run.checkpoint, None
    if run.validation is not None:
        held_out = read(run.validation, **run.source)
        validation = held_out.texts, held_out.labels
    # Without a folder for keys, the files are one batch. The text of a batch is freed when it is
    # hashed, before there is a model.
    whole = run.cache_dir is None
    found = _lazily(read, files, run.source) if whole else read_batches(files, **run.source)
    batches = Batches(found)

    def pairs() -> Iterator[tuple[Any, Any]]:
        for batch in batches:
            if whole:
                say(batches.report, run.quiet)
            if run.unlabelled:
                classifier.pretrained = learn_vectors(batch.texts, run)
            yield batch.texts, batch.labels
        if not whole:
            say(batches.report, run.quiet)

    classifier.fit_batches(
        pairs(), cache_dir=run.cache_dir, validation=validation, checkpoint=checkpoint
    )
    return batches.report


def _lazily(
    read: "Callable[..., LabelledText]", files: list[str], options: dict[str, Any]
) -> "Iterator[LabelledText]":
    yield read(files, **options)


def _draw_search(classifier: "TextClassifier", run: TrainOptions) -> None:
    if classifier.search_ is not None:
        draw_with(classifier.search_.plot, "--plot-search", run.plot_search, run.quiet)
    elif run.plot_search is not None:
        say("Drew no search: nothing was tried.", run.quiet)


def _save_interrupted(classifier: "TextClassifier", run: TrainOptions) -> None:
    """After Ctrl-C, save a model that has finished at least one pass."""
    history = getattr(classifier, "history_", None)
    if history is None or not history.epochs:
        say("\nInterrupted before the end of the first pass: wrote no model.", run.quiet)
        return
    classifier.save(run.output, bits=int(run.bits))
    say(f"\n{history.outcome()}\nWrote {run.output}.", run.quiet)


def _tell(
    classifier: "TextClassifier", report: "Report | None", run: TrainOptions, seconds: float
) -> None:
    size = size_of(run.output)
    say(f"Wrote {run.output} ({size / 1e6:.1f} MB) after {seconds:.1f} s.", run.quiet)
    if classifier.search_ is not None:
        say(f"The same without a search: {classifier.search_.chosen.command()}", run.quiet)
    say(f"Next: hashembed test {run.output} FILE", run.quiet)
    if run.as_json:
        result = {
            "data": report.to_dict() if report is not None else None,
            "training": classifier.report_.to_dict(),
            "search": None if classifier.search_ is None else classifier.search_.to_dict(),
            "history": classifier.history_.to_dict(),
            "vectors_share": classifier.vectors_.share if classifier.vectors_ else None,
            "model": {"file": run.output, "bytes": size},
            "seconds": seconds,
        }
        click.echo(json.dumps(result, indent=2, default=str))


def _while_loading(quiet: bool) -> AbstractContextManager[object]:
    """Show that modules are being imported, if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("Loading ...")
