"""`hashembed train`."""

import json
import os
import time
from typing import Any

import click

from hashembed.cli.options import (
    COUNT_UNITS,
    data_options,
    draw,
    json_option,
    lengths,
    quantity,
    quiet_option,
    reading,
    say,
    seed_option,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

EXAMPLE = """\b
Examples:
  hashembed train train.csv -o model.safetensors
  hashembed train reviews/*.jsonl.gz --text title,body --label stars -o model.safetensors
  tail -f log.txt | hashembed train --stream - -o model.safetensors"""

_count = quantity(COUNT_UNITS, "1M or 500k")


def _widths(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """'1000,500' -> (1000, 500)."""
    parts = value.split(",") if value else []
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"found {value!r}, expected widths such as 1000 or 1000,500.")
    return tuple(int(part) for part in parts)


@click.command("train", epilog=EXAMPLE)
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The model.")
@data_options()
@click.option("--ngrams", callback=lengths, default="1-2", show_default=True, help="Of words.")
@click.option("--subwords", callback=lengths, metavar="RANGE", help="Characters, such as 2-4.")
@click.option("--lowercase/--no-lowercase", default=True, help="Whether case is ignored.")
@click.option("--dim", type=click.IntRange(1, 4096), help="d; by default from the classes.")
@click.option("--hashes", type=click.IntRange(1, 64), default=2, show_default=True, help="k.")
@click.option("--rows", callback=_count, metavar="COUNT", help="K; by default from the text.")
@click.option("--buckets", callback=_count, metavar="COUNT", help="B; by default K / 10.")
@click.option("--bits", type=click.Choice(["16", "8", "4"]), default="16", help="Of each number.")
@click.option("--hidden", callback=_widths, metavar="WIDTHS", help="Hidden layers: 1000,1000.")
@click.option("--members", type=click.IntRange(1), default=1, help="An ensemble of so many.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or auto.")
@click.option("--passes", type=click.IntRange(1), help="Over the data; 1 to 10, --hidden 2 to 5.")
@click.option("--rate", type=float, help="Learning rate; by default from the lengths.")
@click.option("--batch-size", type=click.IntRange(1), help="By default from the lengths.")
@click.option("--balanced", is_flag=True, help="Let rare classes weigh as much as common ones.")
@click.option("--validate", metavar="FILE", help="Validate on this data after every pass.")
@click.option("--validation-fraction", type=float, default=0.0, help="Or on a part of the data.")
@click.option("--patience", type=click.IntRange(1), help="Passes without gain before stopping.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the passes.")
@click.option("--checkpoint", metavar="FILE", help="Written after every pass; go on from it.")
@click.option("--cache-dir", type=click.Path(), help="Keep keys there, for data beyond memory.")
@click.option("--stream", is_flag=True, help="Learn line by line, in order, in fixed memory.")
@click.option("--save-seconds", type=float, default=30.0, help="With --stream: between saves.")
@click.option("--resume", is_flag=True, help="With --stream: go on with the model of --output.")
@force_option
@seed_option
@threads_option
@json_option
@quiet_option
def train_command(data: tuple[str, ...], **options: Any) -> None:
    """Train a classifier on labelled text: CSV, TSV, JSON lines, Parquet, fastText's format, or a
    folder for each class; compressed or not. Use - for standard input.
    """
    start = time.perf_counter()
    source = reading(options)
    output, quiet = options["output"], options["quiet"]
    check_outputs(
        [*data, options["validate"]],
        [
            Output("--output", output, "model"),
            Output("--plot", options["plot"], "picture"),
            Output("--checkpoint", options["checkpoint"], "snapshot"),
        ],
        options["force"],
    )
    with _while_loading(quiet):
        from hashembed.classifier import TextClassifier
        from hashembed.engines import choose_device
        from hashembed.readers import read, read_batches

    classifier = TextClassifier(
        ngrams=options["ngrams"],
        subwords=options["subwords"],
        lowercase=options["lowercase"],
        embedding_dim=options["dim"],
        num_hashes=options["hashes"],
        num_embeddings=options["rows"],
        num_buckets=options["buckets"],
        hidden_layers=options["hidden"],
        members=options["members"],
        device=choose_device(options["device"]),  # refused now, not after reading the data
        passes=options["passes"],
        learning_rate=options["rate"],
        batch_size=options["batch_size"],
        validation_fraction=options["validation_fraction"],
        patience=options["patience"],
        class_weight="balanced" if options["balanced"] else None,
        seed=options["seed"],
        threads=options["threads"],
        verbose=not quiet,
    )
    if options["stream"]:
        if options["bits"] != "16":
            raise click.UsageError("--stream keeps everything; --bits is for models that are done.")
        _stream(classifier, data, source, options)
        return
    if options["resume"]:
        raise click.UsageError("--resume goes with --stream.")
    validation = None
    if options["validate"] is not None:
        held_out = read(options["validate"], **source)
        validation = held_out.texts, held_out.labels
    if options["cache_dir"] is None:
        rows = read(list(data), **source)
        report = rows.report
        say(report, quiet)
        classifier.fit(
            rows.texts, rows.labels, validation=validation, checkpoint=options["checkpoint"]
        )
        del rows
    else:
        batches = read_batches(list(data), **source)
        report = None

        def pairs() -> Any:
            nonlocal report
            for batch in batches:
                report = batch.report
                yield batch.texts, batch.labels
            say(report, quiet)

        classifier.fit_batches(
            pairs(),
            cache_dir=options["cache_dir"],
            validation=validation,
            checkpoint=options["checkpoint"],
        )
    classifier.save(output, bits=int(options["bits"]))
    history = classifier.history_
    seconds = time.perf_counter() - start
    for epoch in history.epochs:
        if epoch.validation_accuracy is not None:
            text = f"pass {epoch.number + 1}: validation accuracy {epoch.validation_accuracy:.2%}"
            say(text, quiet)
    if history.stopped:
        say(f"Stopped early: {history.stopped}.", quiet)
    draw(history, options["plot"], quiet)
    size = os.stat(output).st_size
    say(f"Wrote {output}, {size / 1e6:.1f} MB, after {seconds:.1f} s.", quiet)
    say(f"Next: hashembed test {output} FILE", quiet)
    if options["as_json"]:
        result = {
            "data": report.to_dict() if report is not None else None,
            "training": classifier.report_.to_dict(),
            "history": history.to_dict(),
            "model": {"file": output, "bytes": size},
            "seconds": seconds,
        }
        click.echo(json.dumps(result, indent=2, default=str))


def _stream(
    classifier: Any, data: tuple[str, ...], source: dict[str, Any], options: dict[str, Any]
) -> None:
    from hashembed.classifier import STREAM_BATCH, TextClassifier
    from hashembed.readers import read_batches
    from hashembed.streaming import Progressive, learn_stream

    output, quiet, seen = options["output"], options["quiet"], 0
    if options["resume"] and os.path.exists(output):
        classifier = TextClassifier.load(output, threads=options["threads"])
        seen = classifier.texts_seen_
        where = "they are skipped" if "-" not in data else "standard input is read as it comes"
        say(f"Resuming {output}, which has learned from {seen:,} texts; {where}.", quiet)
    skip = 0 if "-" in data else seen
    report: Any = None

    def pairs() -> Any:
        nonlocal skip, report
        size = options["batch_size"] or STREAM_BATCH
        for batch in read_batches(list(data), rows=size, **source):
            report = batch.report
            dropped = min(skip, len(batch))
            skip -= dropped
            if dropped < len(batch):
                yield batch.texts[dropped:], batch.labels[dropped:]

    def on_report(progress: Progressive) -> None:
        say(
            f"{progress.texts:>12,} texts  accuracy {progress.accuracy:.4f}  "
            f"of the last {progress.recent_texts:,} {progress.recent_accuracy:.4f}  "
            f"{progress.classes:,} classes  {progress.texts / max(progress.seconds, 1e-9):,.0f}/s",
            quiet,
        )

    progress = learn_stream(
        classifier,
        pairs(),
        path=output,
        save_seconds=options["save_seconds"],
        on_report=on_report,
    )
    if progress.texts == 0 and seen == 0:
        raise click.ClickException("Found no texts to learn from.")
    if report is not None:
        say(report, quiet)
    say(f"Wrote {output} after {seen + progress.texts:,} texts. Go on with --resume.", quiet)
    if options["as_json"]:
        click.echo(json.dumps({**progress.to_dict(), "resumed_after": seen}, indent=2))


def _while_loading(quiet: bool) -> Any:
    """A line while things are imported, where somebody looks."""
    import sys
    from contextlib import nullcontext

    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("Loading ...")
