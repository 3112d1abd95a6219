"""`hashembed words`."""

import json
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.inputs import Batches, check_input
from hashembed.cli.options import (
    BYTE_UNITS,
    Subcommand,
    counting_bar,
    data_options,
    draw,
    json_option,
    model_argument,
    plot_option,
    quantity,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

if TYPE_CHECKING:
    from hashembed.classify.explain.corpus_table import By

EXAMPLE = "\b\nExample:\n  hashembed words model.safetensors train.csv --top 30"


@click.command("words", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.argument("data", nargs=-1, required=True)
@data_options(labelled=False)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many n-grams to show at each end.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Ignore n-grams with fewer occurrences.",
)
@click.option(
    "--by",
    type=click.Choice(["weight", "evidence"]),
    default="weight",
    show_default=True,
    help="Rank by importance weight, as the paper, or by what an n-gram adds to a class.",
)
@click.option(
    "--memory",
    callback=quantity(BYTE_UNITS, "64MB"),
    default="64MiB",
    show_default=True,
    help="Memory for counting.",
)
@plot_option
@force_option
@threads_option
@json_option
@quiet_option
def words_command(
    model: str,
    data: tuple[str, ...],
    top: int,
    min_count: int,
    by: "By",
    memory: int,
    plot: str | None,
    force: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """List the n-grams that matter most and least.

    Ranks the n-grams of a corpus by their importance to a model. Reads the corpus once and needs
    no dictionary.
    """
    check_outputs([model, *data], [Output("--plot", plot, "picture")], force)
    check_input(data)

    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.trained import NotShallowError, shallow_model
    from hashembed.readers import read_text_batches

    classifier = TextClassifier.load(model, threads=threads)
    try:
        shallow_model(classifier, "rank n-grams")
    except NotShallowError as error:
        found = f"{model}: {error}. hashembed explain works for every model."
        raise click.ClickException(found) from None
    batches = Batches(read_text_batches(list(data), **reading(options)))
    texts = (batch.texts for batch in batches)
    with counting_bar() as on_bytes:
        table = classifier.important_ngrams(
            texts, top=top, min_count=min_count, memory=memory, by=by, on_bytes=on_bytes
        )
    say(batches.report or "read no rows", quiet)
    draw(table, plot, quiet)
    if as_json:
        click.echo(json.dumps(table.to_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(highlight=False).print(table)
