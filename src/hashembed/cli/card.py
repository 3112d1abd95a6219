"""`hashembed card`."""

from typing import Any

import click

from hashembed.cli.inputs import as_type, check_input
from hashembed.cli.options import (
    Subcommand,
    data_options,
    model_argument,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

EXAMPLE = """\b
Examples:
  hashembed card model.safetensors
  hashembed card model.safetensors --test test.csv --license mit --language en -o README.md"""


@click.command("card", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.option("--name", metavar="OWNER/NAME", help="Name of the model on the hub.")
@click.option("--test", "data", multiple=True, metavar="FILE", help="Evaluate on this file.")
@data_options()
@click.option("--description", metavar="TEXT", help="What the model is for, in Markdown.")
@click.option("--license", metavar="NAME", help="Licence, such as mit or cc-by-4.0.")
@click.option(
    "--language", multiple=True, metavar="CODE", help="Language, such as en. May be repeated."
)
@click.option("--dataset", metavar="NAME", help="Name of the data set that the texts come from.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the card here, such as README.md. Printed by default.",
)
@force_option
@threads_option
@quiet_option
def card_command(
    model: str,
    name: str | None,
    data: tuple[str, ...],
    description: str | None,
    license: str | None,
    language: tuple[str, ...],
    dataset: str | None,
    output: str | None,
    force: bool,
    threads: int | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Write a model card: a README.md for the hub.

    It tells labels, sizes and settings from the model file, and, with --test, how accurate the
    model is. What is not given is said to be unknown.
    """
    check_outputs([model, *data], [Output("--output", output, "card")], force)
    check_input(data)

    from hashembed.classify.card import CardFacts, model_card
    from hashembed.core.writing import write_whole
    from hashembed.engine.tensor_file import ModelFileError, read_header, understanding

    header = read_header(model)
    if header["kind"] != "TextClassifier":
        raise ModelFileError(f"{model} is no TextClassifier, so it has no model card")
    evaluation = None
    if data:
        from hashembed.classify.classifier import TextClassifier
        from hashembed.readers import read

        classifier = TextClassifier.load(model, threads=threads)
        rows = read(list(data), **reading(options))
        say(rows.report, quiet)
        evaluation = classifier.evaluate(rows.texts, as_type(rows.labels, classifier.classes_))
    facts = CardFacts(description, license, list(language) or None, dataset, evaluation)
    with understanding(model):  # its fields may be anything
        card = model_card(header, name or "A text classifier", facts)
    if output is None:
        click.echo(card, nl=False)
        return
    write_whole(output, card.encode())
    say(f"Wrote {output}.", quiet)
