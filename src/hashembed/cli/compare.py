"""`hashembed compare`."""

import json
from typing import Any

import click

from hashembed.cli.hub import as_given, name_of_model
from hashembed.cli.inputs import as_type, check_input
from hashembed.cli.options import (
    MODEL_FILE,
    Subcommand,
    data_options,
    json_option,
    quiet_option,
    reading,
    say,
    threads_option,
)

EXAMPLE = """\b
Examples:
  hashembed compare old.safetensors new.safetensors test.csv --show 20
  hashembed compare hub:owner/name@v1 new.safetensors test.csv"""


@click.command("compare", cls=Subcommand, epilog=EXAMPLE)
@click.argument("first", type=MODEL_FILE)
@click.argument("second", type=MODEL_FILE)
@click.argument("data", nargs=-1, required=True)
@data_options()
@click.option(
    "--show",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many texts with different answers to show.",
)
@threads_option
@json_option
@quiet_option
def compare_command(
    first: str,
    second: str,
    data: tuple[str, ...],
    show: int,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Compare two models on the same labelled text.

    Prints the accuracy of both, whether the difference is significant (McNemar's exact test), the
    classes whose F1 changes, and texts with different answers. --json lists all of these texts.
    """
    check_input(data)

    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.comparing import compare
    from hashembed.readers import read

    models = [TextClassifier.load(path, threads=threads) for path in (first, second)]
    rows = read(list(data), **reading(options))
    say(rows.report, quiet)
    labels = as_type(rows.labels, models[0].classes_)
    result = compare(models[0], models[1], rows.texts, labels, names=_names(first, second))
    if as_json:
        found = {
            "data": rows.report.to_dict(),
            **result.to_dict(),
            "models": [as_given(first), as_given(second)],
        }
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(highlight=False).print(result.view(show))


def _names(first: str, second: str) -> tuple[str, str]:
    """The names of two models, or their paths if the names are the same."""
    short = name_of_model(first), name_of_model(second)
    return short if short[0] != short[1] else (first, second)
