"""`hashembed explain`."""

import json
import sys
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.answering import check_input, class_named, results
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
    was_given,
)
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.writers import format_of, whole_file
from hashembed.core.printable import printable

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.explain.result import Explanation

EXAMPLE = """\b
Examples:
  hashembed explain model.safetensors "what a waste of time"
  hashembed explain model.safetensors "what a waste of time" --class positive
  head -1 review.txt | hashembed explain model.safetensors - --plot why.png
  hashembed explain model.safetensors --file reviews.csv -o why.jsonl --html why.html"""

# In the colours of the reader's system; the explanation's own are translucent.
PAGE = """<!doctype html>
<meta charset=utf-8>
<meta name=viewport content="width=device-width">
<meta name=color-scheme content="light dark">
<title>{title}</title>
<body style="font-family:system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em">
"""
UNREADABLE = "this row could not be read"


@click.command("explain", epilog=EXAMPLE)
@model_argument
@click.argument("text_given", metavar="[TEXT]", required=False)
@click.option("--file", "files", multiple=True, metavar="FILE", help="Explain every text of it.")
@data_options(labelled=False)
@click.option("--class", "class_", metavar="NAME", help="What speaks for this class, not the best.")
@click.option(
    "--top", type=click.IntRange(1), default=10, metavar="N", help="N-grams of a text of a --file."
)
@click.option("--full", is_flag=True, help="With --file: all n-grams and classes, as --json.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="With --file: write JSON lines (.jsonl), one for each row.",
)
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write a page.")
@plot_option
@force_option
@threads_option
@json_option
@quiet_option
def explain_command(
    model: str,
    text_given: str | None,
    files: tuple[str, ...],
    class_: str | None,
    top: int,
    full: bool,
    output: str | None,
    html: str | None,
    plot: str | None,
    force: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Say why a text gets its class: what each n-gram adds to it. The text - is standard input."""
    if (text_given is None) == (not files):
        raise click.UsageError("Give a text or --file FILE, one of them.")
    if files and plot is not None:
        raise click.UsageError("--plot draws one text; with --file use --html or --output.")
    source = reading(options)
    if text_given is not None:
        _refuse_options_of_files(["output", "full", "top", *source])
    if output is not None:
        format_of(output, ("jsonl",))
    outputs = [
        Output("--output", output, "table"),
        Output("--html", html, "page"),
        Output("--plot", plot, "picture"),
    ]
    check_outputs([model, *files], outputs, force)
    check_input([text_given] if text_given is not None else files)

    from hashembed.classify.classifier import TextClassifier

    classifier = TextClassifier.load(model, threads=threads)
    wanted = None if class_ is None else class_named(class_, classifier.classes_)
    if text_given is None:
        rows = _Rows(classifier, wanted, list(files), source)
        _explain_all(rows, None if full else top, output, html, as_json)
        say(rows.report, quiet)
        for path in filter(None, (output, html)):
            say(f"Wrote {path}.", quiet)
        return
    if text_given == "-":
        text_given = sys.stdin.buffer.read().decode("utf8", "replace")
    explanation = classifier.explain(text_given, wanted)
    if html is not None:
        label = printable(str(explanation.classes[explanation.class_index()]))
        with whole_file(html) as file:
            page = PAGE.format(title=escape(f"Why {label}?")) + explanation._repr_html_()
            file.write(f"{page}\n".encode("utf8", "replace"))
        say(f"Wrote {html}.", quiet)
    draw(explanation, plot, quiet)
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(highlight=False).print(explanation)


def _refuse_options_of_files(names: list[str]) -> None:
    ctx = click.get_current_context()
    for name in names:
        if was_given(ctx, name):
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} goes with --file; for one text there is --json.")


class _Rows:
    """The explanations of all texts of files, one after the other; None for unreadable rows."""

    def __init__(
        self, classifier: "TextClassifier", wanted: Any, files: list[str], source: dict[str, Any]
    ):
        self.classifier, self.wanted, self.files, self.source = classifier, wanted, files, source
        self.report: Any = ""

    def __iter__(self) -> Iterator["Explanation | None"]:
        from hashembed.readers import read_text_batches

        for batch in read_text_batches(self.files, **self.source):
            self.report = batch.report
            for text in batch.texts:
                value = text.as_py()
                yield None if value is None else self.classifier.explain(value, self.wanted)


def _explain_all(
    rows: _Rows, top: int | None, output: str | None, html: str | None, as_json: bool
) -> None:
    """To the files that are given; without any, to standard output."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        lines = stack.enter_context(whole_file(output)) if output is not None else None
        page = stack.enter_context(whole_file(html)) if html is not None else None
        console = None
        if as_json or (lines is None and page is None):
            console = _console(as_json)
        if page is not None:
            page.write(PAGE.format(title="Explanations").encode())
        for number, explanation in enumerate(rows, 1):
            line = _json_line(number, explanation, top)
            if lines is not None:
                lines.write(f"{line}\n".encode("utf8", "replace"))
            if page is not None:
                page.write(_section(number, explanation).encode("utf8", "replace"))
            if console is not None:
                console(number, line if as_json else explanation)


def _json_line(number: int, explanation: "Explanation | None", top: int | None) -> str:
    found: dict[str, Any] = {"row": number}
    if explanation is None:
        found["problem"] = UNREADABLE
    else:
        found |= explanation.to_dict() if top is None else explanation.summary(top)
    return json.dumps(found, ensure_ascii=False)


def _section(number: int, explanation: "Explanation | None") -> str:
    body = UNREADABLE if explanation is None else explanation._repr_html_()
    return f"<section>\n<h2>{number:,}</h2>\n{body}\n</section>\n"


def _console(as_json: bool) -> Any:
    """Shows a row: as JSON, or for people."""
    if as_json:
        out = results()
        return lambda number, line: out.write(f"{line}\n")
    from rich.console import Console

    console = Console(highlight=False, markup=False)

    def show(number: int, explanation: "Explanation | None") -> None:
        console.rule(f"{number:,}", align="left")
        console.print(UNREADABLE if explanation is None else explanation)

    return show
