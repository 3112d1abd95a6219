"""`hashembed test`."""

import json
from typing import Any

import click

from hashembed.cli.answering import threshold_option, top_option
from hashembed.cli.inputs import as_type, check_input
from hashembed.cli.on_cluster import check_on, evaluate_there, on_option
from hashembed.cli.options import (
    Subcommand,
    data_options,
    draw,
    draw_with,
    json_option,
    model_argument,
    plot_option,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

EXAMPLE = """\b
Examples:
  hashembed test model.safetensors test.csv --plot confusion.png
  hashembed test model.safetensors test.csv --plot-reliability reliability.png
  hashembed test model.safetensors test.txt --top 3
  hashembed test hub:owner/name@v1 test.csv"""


@click.command("test", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.argument("data", nargs=-1, required=True)
@data_options()
@top_option
@threshold_option
@plot_option
@click.option(
    "--plot-reliability",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Draw the accuracy for each confidence into this file (.png, .svg, .pdf).",
)
@force_option
@on_option
@threads_option
@json_option
@quiet_option
def test_command(
    model: str,
    data: tuple[str, ...],
    top: int | None,
    threshold: float | None,
    plot: str | None,
    plot_reliability: str | None,
    force: bool,
    on: str | None,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Evaluate a model on labelled text.

    Prints the accuracy, precision, recall and F1 of each class, and the confusion matrix. With
    --top or --threshold, a text is right if its label is among the answers, and precision and
    recall at k are printed as well. Log loss, average precision (mean of the classes) and
    calibration error (how far confidence and accuracy are apart) tell how good the probabilities
    are.
    """
    pictures = [
        Output("--plot", plot, "picture"),
        Output("--plot-reliability", plot_reliability, "picture"),
    ]
    check_outputs([model, *data], pictures, force)
    check_input(data)

    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import read

    check_on(click.get_current_context(), on)
    classifier = TextClassifier.load(model, threads=threads)
    if on is not None:
        limits = {"threshold": threshold, "top": top}
        found = evaluate_there(on, classifier, list(data), reading(options), limits, quiet)
        result, about = found[0].evaluation(), {"skipped": found[1].rows}
        if found[1].rows:
            say(found[1], quiet)
    else:
        rows = read(list(data), **reading(options))
        say(rows.report, quiet)
        labels = as_type(rows.labels, classifier.classes_)
        result = classifier.evaluate(rows.texts, labels, threshold=threshold, top=top)
        about = rows.report.to_dict()
    draw(result, plot, quiet)
    draw_with(result.plot_reliability, "--plot-reliability", plot_reliability, quiet)
    if as_json:
        click.echo(json.dumps({"data": about, **result.to_dict()}, indent=2))
        return
    from rich.console import Console

    Console(highlight=False).print(result)
