"""`hashembed train`."""

import json
import os
import time
from typing import Any

import click

from hashembed.cli.aliases import WithAliases
from hashembed.cli.options import (
    COUNT_UNITS,
    data_options,
    draw,
    json_option,
    lengths,
    option_names,
    punctuation_option,
    quantity,
    quiet_option,
    reading,
    say,
    seed_option,
    threads_option,
    was_given,
)
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.stream import MODEL_OPTIONS, train_on_stream

EXAMPLE = """\b
Examples:
  hashembed train train.csv -o model.safetensors
  hashembed train reviews/*.jsonl.gz --text title,body --label stars -o model.safetensors
  hashembed train train.csv --validation-fraction 0.1 --patience 3 -o model.safetensors
  hashembed train --stream monday.csv -o model.safetensors
  hashembed train --stream tuesday.csv -o model.safetensors --continue
fastText's spellings (-lr, -epoch, -dim, -wordNgrams, -minn, -maxn) work too."""

# Options that `TextClassifier` takes by the same name, beside those of the model.
TRAINING_OPTIONS = (
    "passes",
    "learning_rate",
    "batch_size",
    "validation_fraction",
    "patience",
    "class_weight",
    "threads",
)
ONLY_STREAM = ("resume", "continue_", "save_seconds")
NEVER_STREAM = {
    "passes": "a stream is read once",
    "validation": "each text is answered before it is learned, which is the validation",
    "validation_fraction": "each text is answered before it is learned, which is the validation",
    "patience": "a stream is read once",
    "plot": "there are no passes to draw",
    "checkpoint": "the model itself is saved as it learns",
    "cache_dir": "a stream keeps nothing",
    "bits": "--stream keeps everything; --bits is for models that are done",
}

_count = quantity(COUNT_UNITS, "1M or 500k")


def _widths(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """'1000,500' -> (1000, 500)."""
    parts = value.split(",") if value else []
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"found {value!r}, expected widths such as 1000 or 1000,500.")
    return tuple(int(part) for part in parts)


def _seconds(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"found {value}, expected a number of seconds from 0 on.")
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
                f"found {value!r}, expected 'balanced', 'sqrt' or weights such as spam=2,ham=0.5."
            )
    return weights


@click.command("train", cls=WithAliases, epilog=EXAMPLE)
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The model.")
@data_options()
@click.option("--ngrams", callback=lengths, default="1-2", show_default=True, help="Of words.")
@click.option("--subwords", callback=lengths, metavar="RANGE", help="Characters, such as 2-4.")
@click.option("--lowercase/--no-lowercase", default=True, help="Whether case is ignored.")
@punctuation_option
@click.option("--embedding-dim", type=click.IntRange(1, 4096), help="d; by default from classes.")
@click.option("--num-hashes", type=click.IntRange(1, 64), default=2, show_default=True, help="k.")
@click.option("--num-embeddings", callback=_count, metavar="COUNT", help="K; by default from text.")
@click.option("--num-buckets", callback=_count, metavar="COUNT", help="B; by default K / 10.")
@click.option("--bits", type=click.Choice(["16", "8", "4"]), default="16", help="Of each number.")
@click.option("--hidden-layers", callback=_widths, metavar="WIDTHS", help="Such as 1000,1000.")
@click.option("--members", type=click.IntRange(1), default=1, help="Models in the ensemble.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
@click.option("--passes", type=click.IntRange(1), help="Over the data; by default 1 to 10.")
@click.option("--learning-rate", type=float, help="The first; by default from the lengths.")
@click.option("--batch-size", type=click.IntRange(1), help="Texts; by default from the lengths.")
@click.option(
    "--class-weight",
    callback=_class_weight,
    metavar="WEIGHTS",
    help="balanced, sqrt (half of that way), or weights such as spam=2,ham=0.5.",
)
@click.option("--validation", metavar="FILE", help="Validate on this data after every pass.")
@click.option("--validation-fraction", type=float, default=0.0, help="Or on a part of the data.")
@click.option(
    "--patience",
    type=click.IntRange(1),
    help="Stop after so many passes without a better validation loss; keep the best.",
)
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the passes.")
@click.option("--checkpoint", metavar="FILE", help="Written after every pass; resumed from.")
@click.option("--cache-dir", type=click.Path(), help="Keep keys there, for data beyond memory.")
@click.option("--stream", is_flag=True, help="Learn line by line, in order, in fixed memory.")
@click.option(
    "--resume",
    is_flag=True,
    help="With --stream: the same data again after an interruption; skips what was learned.",
)
@click.option(
    "--continue",
    "continue_",
    is_flag=True,
    help="With --stream: new data for the model of --output.",
)
@click.option(
    "--save-seconds", callback=_seconds, default=30.0, help="With --stream: between saves."
)
@force_option
@seed_option
@threads_option
@json_option
@quiet_option
def train_command(data: tuple[str, ...], **options: Any) -> None:
    """Train a classifier on labelled text: CSV, TSV, JSON lines, Parquet, fastText's format, or a
    folder for each class; compressed or not. Use - for standard input.
    """
    start, ctx = time.perf_counter(), click.get_current_context()
    _check_combinations(ctx, options)
    source = reading(options)
    output, quiet = options["output"], options["quiet"]
    check_outputs(
        [*data, options["validation"]],
        [
            Output("--output", output, "model"),
            Output("--plot", options["plot"], "picture"),
            Output("--checkpoint", options["checkpoint"], "snapshot"),
        ],
        options["force"],
    )
    with _while_loading(quiet):
        from hashembed.classify.classifier import TextClassifier
        from hashembed.classify.engine_plan import choose_device
        from hashembed.core.threads import uninterrupted
        from hashembed.readers import read

    classifier = TextClassifier(
        **{name: options[name] for name in (*MODEL_OPTIONS, *TRAINING_OPTIONS)},
        device=choose_device(options["device"]),  # refused now, not after reading the data
        verbose=not quiet,
    )
    if options["stream"]:
        train_on_stream(ctx, classifier, data, source, options)
        return
    validation = None
    if options["validation"] is not None:
        held_out = read(options["validation"], **source)
        validation = held_out.texts, held_out.labels
    try:
        report = _fit(classifier, data, source, validation, options)
    except KeyboardInterrupt:
        uninterrupted(lambda: _save_interrupted(classifier, options))  # by a second Ctrl-C
        raise
    classifier.save(options["output"], bits=int(options["bits"]))
    draw(classifier.history_, options["plot"], quiet)
    _tell(classifier, report, options, time.perf_counter() - start)


def _fit(
    classifier: Any,
    data: tuple[str, ...],
    source: dict[str, Any],
    validation: Any,
    options: dict[str, Any],
) -> Any:
    """Train on the files -> the report of reading them."""
    from hashembed.readers import read, read_batches

    quiet, checkpoint = options["quiet"], options["checkpoint"]
    if options["cache_dir"] is None:
        rows = read(list(data), **source)
        say(rows.report, quiet)
        classifier.fit(rows.texts, rows.labels, validation=validation, checkpoint=checkpoint)
        return rows.report
    report = None

    def pairs() -> Any:
        nonlocal report
        for batch in read_batches(list(data), **source):
            report = batch.report
            yield batch.texts, batch.labels
        say(report, quiet)

    classifier.fit_batches(
        pairs(), cache_dir=options["cache_dir"], validation=validation, checkpoint=checkpoint
    )
    return report


def _save_interrupted(classifier: Any, options: dict[str, Any]) -> None:
    """After Ctrl-C: a model that has been through a whole pass is worth keeping."""
    history = getattr(classifier, "history_", None)
    if history is None or not history.epochs:
        say("\nInterrupted before the first pass was done: nothing was written.", options["quiet"])
        return
    classifier.save(options["output"], bits=int(options["bits"]))
    say(f"\n{history.outcome()}\nWrote {options['output']} as it is.", options["quiet"])


def _tell(classifier: Any, report: Any, options: dict[str, Any], seconds: float) -> None:
    output, quiet = options["output"], options["quiet"]
    size = os.stat(output).st_size
    say(f"Wrote {output}, {size / 1e6:.1f} MB, after {seconds:.1f} s.", quiet)
    say(f"Next: hashembed test {output} FILE", quiet)
    if options["as_json"]:
        result = {
            "data": report.to_dict() if report is not None else None,
            "training": classifier.report_.to_dict(),
            "history": classifier.history_.to_dict(),
            "model": {"file": output, "bytes": size},
            "seconds": seconds,
        }
        click.echo(json.dumps(result, indent=2, default=str))


def _check_combinations(ctx: click.Context, options: dict[str, Any]) -> None:
    """No option is ignored: it is used, or it is an error."""
    names = option_names(ctx)
    given = {name for name in names if was_given(ctx, name)}
    if options["stream"]:
        for name, why in NEVER_STREAM.items():
            if name in given:
                raise click.UsageError(f"{names[name]} does not go with --stream: {why}.")
        if isinstance(options["class_weight"], str):
            raise click.UsageError(
                f"--class-weight {options['class_weight']} needs all labels at once: "
                "with --stream give weights such as spam=2,ham=0.5."
            )
        if options["resume"] and options["continue_"]:
            raise click.UsageError(
                "--resume is for the same data once more, --continue is for new data: give one."
            )
    else:
        for name in ONLY_STREAM:
            if name in given:
                raise click.UsageError(f"{names[name]} goes with --stream.")
    if {"validation", "validation_fraction"} <= given:
        raise click.UsageError("Give --validation FILE or --validation-fraction, not both.")
    if "patience" in given and not given & {"validation", "validation_fraction"}:
        raise click.UsageError(
            "--patience needs data to validate on: --validation FILE or --validation-fraction 0.1."
        )


def _while_loading(quiet: bool) -> Any:
    """A line while things are imported, where somebody looks."""
    import sys
    from contextlib import nullcontext

    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("Loading ...")
