"""`hashembed test`."""

import json
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.options import (
    data_options,
    draw,
    json_option,
    model_argument,
    plot_option,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

if TYPE_CHECKING:
    from hashembed.metrics import Evaluation

EXAMPLE = "\b\nExample:\n  hashembed test model.safetensors test.csv --plot confusion.png"
WIDEST = 12  # classes whose confusion fits a terminal; of more, the worst pairs are shown
PAIRS = 10


@click.command("test", epilog=EXAMPLE)
@model_argument
@click.argument("data", nargs=-1, required=True)
@data_options()
@plot_option
@force_option
@threads_option
@json_option
@quiet_option
def test_command(
    model: str,
    data: tuple[str, ...],
    plot: str | None,
    force: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Ask a model about labelled text, and count: accuracy; precision, recall and F1 of each class;
    what is taken for what.
    """
    check_outputs([model, *data], [Output("--plot", plot, "picture")], force)
    from hashembed.classifier import TextClassifier
    from hashembed.readers import read

    classifier = TextClassifier.load(model, threads=threads)
    rows = read(list(data), **reading(options))
    say(rows.report, quiet)
    labels = rows.labels
    if classifier.classes_.dtype.kind != "U":  # files hold strings; 1, 1.0 and true are meant
        labels = _as_type(labels.to_pylist(), classifier.classes_)
    result = classifier.evaluate(rows.texts, labels)
    draw(result, plot, quiet)
    if as_json:
        click.echo(json.dumps({"data": rows.report.to_dict(), **result.to_dict()}, indent=2))
    else:
        _show(result, len(classifier.classes_))


def _as_type(labels: list[Any], classes: Any) -> list[Any]:
    """Strings -> the classes that look like them; what looks like none stays, and is wrong."""
    meant = {str(c): c for c in classes.tolist()}
    unknown = sorted({y for y in labels if y not in meant})
    if unknown:
        raise ValueError(
            f"the model's classes are of type {classes.dtype.name}, found label {unknown[0]!r}"
        )
    return [meant[y] for y in labels]


def _show(result: "Evaluation", known: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("class")
    for head in ("precision", "recall", "F1", "texts"):
        table.add_column(head, justify="right")
    columns = (result.precision, result.recall, result.f1)
    for i, name in enumerate(result.classes):
        row = [f"{column[i]:.3f}" for column in columns]
        table.add_row(str(name), *row, f"{result.truly[i]:,}")
    console.print(table)
    _show_confusion(result, console)
    console.print(
        f"\naccuracy {result.accuracy:.4f}   macro F1 {result.macro_f1:.4f}   "
        f"micro F1 {result.micro_f1:.4f}   {result.texts:,} texts"
    )
    if len(result.classes) > known:
        names = ", ".join(str(c) for c in result.classes[known:])
        console.print(f"The model does not know these labels, and cannot be right: {names}")


def _show_confusion(result: "Evaluation", console: Any) -> None:
    from rich import box
    from rich.table import Table

    if result.confusion is None:
        return
    size = len(result.classes)
    if size <= WIDEST:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("truth \\ answer")
        for name in result.classes:
            table.add_column(str(name), justify="right")
        for i, name in enumerate(result.classes):
            cells = [f"{n:,}" if n else "." for n in result.confusion[i].tolist()]
            table.add_row(str(name), *cells)
        console.print()
        console.print(table)
        return
    wrong = result.confusion.copy()
    wrong.flat[:: size + 1] = 0
    worst = wrong.ravel().argsort(kind="stable")[::-1][:PAIRS]
    console.print("\nmost frequent mistakes:")
    for cell in worst.tolist():
        if wrong.flat[cell]:
            truth, answer = result.classes[cell // size], result.classes[cell % size]
            console.print(f"  {wrong.flat[cell]:>7,}  {truth} taken for {answer}")
