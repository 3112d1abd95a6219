"""`hashembed compress`."""

import json
import os
from typing import Any

import click

from hashembed.cli.inputs import as_type, check_input
from hashembed.cli.options import (
    ANY_MODEL,
    BYTE_UNITS,
    Subcommand,
    data_options,
    json_option,
    quantity,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

EXAMPLE = """\b
Examples:
  hashembed compress model.safetensors -o small.safetensors --size 1MB --data train.csv
  hashembed compress model.safetensors -o small.safetensors --max-loss 0.3 --data train.csv
  hashembed compress model.safetensors -o small.safetensors --bits 4
  hashembed compress vectors.safetensors -o small.safetensors --size 5MB"""


@click.command("compress", cls=Subcommand, epilog=EXAMPLE)
@click.argument("model", type=ANY_MODEL)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The small model file.",
)
@click.option(
    "--size",
    callback=quantity(BYTE_UNITS, "500kB or 1MB"),
    metavar="BYTES",
    help="Largest size of the file, such as 100kB. 1MB by default.",
)
@click.option(
    "--bits", type=click.IntRange(2, 8), metavar="BITS", help="Bits for each number, from 2 to 8."
)
@click.option(
    "--max-loss",
    type=float,
    metavar="POINTS",
    help="Make it as small as possible, but lose at most so many points of accuracy.",
)
@click.option(
    "--data",
    "-d",
    multiple=True,
    metavar="FILE",
    help="Training data. With it models get much smaller. May be repeated.",
)
@click.option(
    "--test",
    "-t",
    multiple=True,
    metavar="FILE",
    help="Data to measure accuracy on. By default a tenth of the training data is kept for that.",
)
@data_options()
@force_option
@threads_option
@json_option
@quiet_option
def compress_command(
    model: str,
    output: str,
    size: int | None,
    bits: int | None,
    max_loss: float | None,
    data: tuple[str, ...],
    test: tuple[str, ...],
    force: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Make a model small: 1 MB, 100 kB, or as small as a loss of accuracy allows.

    Prints the size and the accuracy of both models. With --data, the small model knows only the
    n-grams of that data that matter most. Give the data that the model was trained on.

    Word vectors get small with --size or --bits (8, 4, 3 or 2), without data.
    """
    check_outputs([model, *data, *test], [Output("--output", output, "model")], force)
    check_input([*data, *test])
    from hashembed.engine.tensor_file import kind_of

    if kind_of(model) == "WordVectors":
        from hashembed.cli.compress_vectors import compress_vectors

        if max_loss is not None or data or test:
            raise click.UsageError(
                "--max-loss, --data and --test are for classifiers, but this file holds word "
                "vectors: give --size or --bits."
            )
        compressed = compress_vectors(model, output, size, bits, threads)
        say(f"Wrote {output} ({os.path.getsize(output):,} bytes).", quiet)
        click.echo(json.dumps(compressed._asdict(), indent=2) if as_json else compressed)
        return

    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import read

    classifier = TextClassifier.load(model, threads=threads)
    how, read_rows = reading(options), []
    for files in (data, test):
        rows = read(list(files), **how) if files else None
        if rows is not None:
            say(rows.report, quiet)
        read_rows.append(rows and (rows.texts, as_type(rows.labels, classifier.classes_)))
    texts, labels = read_rows[0] or (None, None)
    small = classifier.compress(
        texts,
        labels,
        size=size,
        bits=bits,
        max_loss=max_loss,
        validation=read_rows[1],
        progress=lambda line: say(line, quiet),
    )
    small.save(output)
    found = small.compression_
    assert found is not None
    say(f"Wrote {output} ({os.path.getsize(output):,} bytes).", quiet)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else found)
