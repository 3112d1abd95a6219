"""`hashembed page`."""

import re
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.inputs import as_type, check_input
from hashembed.cli.options import (
    Subcommand,
    data_options,
    model_argument,
    option_names,
    quiet_option,
    reading,
    say,
    was_given,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

if TYPE_CHECKING:
    from hashembed.web.facts import Accuracy

LARGE = 3_000_000  # bytes of a page that is better made of a compressed model

EXAMPLE = """\b
Examples:
  hashembed page model.safetensors -o page.html --example "what a waste of time"
  hashembed page model.safetensors -o page.html --title "Film reviews" --test test.csv"""


@click.command("page", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    required=True,
    metavar="FILE",
    help="The page to write.",
)
@click.option("--title", help="Title of the page.")
@click.option("--description", help="A sentence below the title. By default it names the classes.")
@click.option(
    "--example",
    "examples",
    multiple=True,
    metavar="TEXT",
    help="A text to try; the page opens with the first. May be repeated.",
)
@click.option(
    "--examples",
    "examples_file",
    metavar="FILE",
    help="More such texts, up to 100 in all, from a file of any format that predict reads.",
)
@click.option(
    "--class-names",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Names to show instead of the labels: a line for each class, in the order of hashembed "
    "info. If all labels are whole numbers, in the order of these, as in the classes.txt of many "
    "data sets.",
)
@click.option(
    "--accuracy",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Accuracy that the page shows, such as 0.93.",
)
@click.option(
    "--test",
    "test_file",
    metavar="FILE",
    help="Measure the accuracy on this labelled file. Its texts do not go into the page. The "
    "options below say how to read it.",
)
@data_options()
@force_option
@quiet_option
def page_command(
    model: str,
    output: str,
    title: str | None,
    description: str | None,
    examples: tuple[str, ...],
    examples_file: str | None,
    class_names: str | None,
    accuracy: float | None,
    test_file: str | None,
    force: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Write a web page with the model inside: one file that works offline.

    Whoever opens it types a text and sees the answer, what each word said, and facts about the
    model. The page loads nothing and sends nothing.
    """
    source = reading(options)
    _check_options(accuracy, test_file, source)
    inputs = [model, examples_file, test_file, class_names]
    check_outputs(inputs, [Output("--output", output, "page")], force)
    check_input([path for path in (examples_file, test_file) if path is not None])

    from hashembed.classify.classifier import TextClassifier
    from hashembed.web.facts import Accuracy
    from hashembed.web.page import PageText, write_page

    shown = None if accuracy is None else Accuracy(accuracy, "test texts")
    if test_file is not None:
        shown = _measured(TextClassifier.load(model), test_file, source, quiet)
    texts = [*examples, *(_texts_of(examples_file) if examples_file is not None else ())]
    names = None
    if class_names is not None:
        labels = TextClassifier.load(model).classes_.tolist()
        names = _in_order_of(labels, _lines_of(class_names))
    size = write_page(output, model, PageText(title, description, texts, shown, names))
    say(f"Wrote {output}, {size / 1e6:.1f} MB. Open it in a browser.", quiet)
    if size > LARGE:
        say(f"For a smaller page: hashembed compress {model} -o small.safetensors", quiet)


def _lines_of(path: str) -> list[str]:
    """The lines of a text file, without empty ones."""
    with open(path, encoding="utf-8-sig") as file:
        try:
            return [line for line in map(str.strip, file) if line]
        except UnicodeDecodeError as error:
            raise click.UsageError(
                f"--class-names {path} is not a text in UTF-8: {error}"
            ) from None


def _in_order_of(labels: list[Any], names: list[str]) -> list[str]:
    """Names of labels, in the order of the labels.

    Labels from a file are text, and text is sorted: 10 comes before 2. But whoever lists the names
    of numbers lists them from 1 to 10.
    """
    texts = list(map(str, labels))
    if len(names) != len(texts) or not all(re.fullmatch(r"[+-]?\d+", text) for text in texts):
        return names
    named = dict(zip(sorted(texts, key=int), names, strict=True))
    return [named[text] for text in texts]


def _check_options(accuracy: float | None, test: str | None, source: dict[str, Any]) -> None:
    if accuracy is not None and test is not None:
        raise click.UsageError("Give either --accuracy or --test, found both.")
    ctx = click.get_current_context()
    names = option_names(ctx)
    for name in source:
        if test is None and was_given(ctx, name):
            raise click.UsageError(f"{names[name]} needs --test: it says how to read that file.")


def _measured(classifier: Any, path: str, source: dict[str, Any], quiet: bool) -> "Accuracy":
    """The accuracy on a labelled file."""
    from hashembed.readers import read
    from hashembed.web.facts import Accuracy

    rows = read([path], **source)
    say(rows.report, quiet)
    found = classifier.evaluate(rows.texts, as_type(rows.labels, classifier.classes_))
    return Accuracy(found.accuracy, f"{found.texts:,} test texts", found.macro_f1)


def _texts_of(path: str) -> list[str]:
    """The texts of a file. More than a page takes are not read."""
    from itertools import islice

    from hashembed.readers import read_text_batches
    from hashembed.web.page import MOST_EXAMPLES

    texts = (text.as_py() for batch in read_text_batches([path]) for text in batch.texts)
    return list(islice(filter(None, texts), MOST_EXAMPLES + 1))
