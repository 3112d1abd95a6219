"""`hashembed predict`."""

import json
import sys
from typing import Any

import click

from hashembed.cli.options import (
    data_options,
    model_argument,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import check_outputs

EXAMPLE = """\b
Examples:
  echo "what a film" | hashembed predict model.safetensors
  hashembed predict model.safetensors reviews.txt --top 3
  hashembed predict model.safetensors reviews.csv --text body --json"""


@click.command("predict", epilog=EXAMPLE)
@model_argument
@click.argument("data", nargs=-1)
@data_options(labelled=False)
@click.option("--top", type=click.IntRange(1), help="The so many most likely classes.")
@click.option("--probabilities", "-p", is_flag=True, help="Say how likely each answer is.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
@threads_option
@quiet_option
def predict_command(
    model: str,
    data: tuple[str, ...],
    top: int | None,
    probabilities: bool,
    as_json: bool,
    threads: int | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Answer for texts, one line out for each text in, in their order, as they come: from standard
    input, a text a line, or from files. An empty line gets the most common class.
    """
    check_outputs([model, *data], [])
    from hashembed.classifier import TextClassifier
    from hashembed.readers import read_text_batches

    classifier = TextClassifier.load(model, threads=threads)
    names = [str(c) for c in classifier.classes_.tolist()]
    multilabel = classifier.label_form_ != "single"
    report = None
    for batch in read_text_batches(list(data) or ["-"], **reading(options)):
        report = batch.report
        chances = classifier.predict_proba(batch.texts)
        lines = [
            _line(row, names, classifier.classes_, top, probabilities, as_json, multilabel)
            for row in chances
        ]
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
    if report is not None and report.skipped:
        say(report, quiet)


def _line(
    chances: Any,
    names: list[str],
    classes: Any,
    top: int | None,
    probabilities: bool,
    as_json: bool,
    multilabel: bool,
) -> str:
    """An answer: tab-separated labels, with probabilities where asked for; or JSON."""
    if top is None and not multilabel:
        chosen = [int(chances.argmax())]
    else:
        order = (-chances).argsort(kind="stable")[:top].tolist()
        chosen = order if top is not None else [i for i in order if chances[i] > 0.5]
    if as_json:
        labels = classes[chosen].tolist()
        found: dict[str, Any] = {"labels": labels} if multilabel else {"label": labels[0]}
        found["probabilities"] = {names[i]: round(float(chances[i]), 6) for i in chosen}
        return json.dumps(found, ensure_ascii=False)
    if probabilities or top is not None:
        return "\t".join(f"{names[i]}\t{chances[i]:.4f}" for i in chosen)
    return "\t".join(names[i] for i in chosen)
