"""`hashembed explain`."""

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.answering import class_named, results
from hashembed.cli.inputs import Batches, check_input
from hashembed.cli.options import (
    Subcommand,
    data_options,
    draw,
    json_option,
    model_argument,
    option_names,
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
    from hashembed.classify.explain.result import Explanation

EXAMPLE = """\b
Examples:
  hashembed explain model.safetensors "what a waste of time"
  hashembed explain model.safetensors "what a waste of time" --class positive
  head -1 review.txt | hashembed explain model.safetensors - --plot why.png
  hashembed explain model.safetensors --file reviews.csv -o why.jsonl --html why.html"""

UNREADABLE = "this row could not be read"


@click.command("explain", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.argument("text_given", metavar="[TEXT]", required=False)
@click.option(
    "--file", "files", multiple=True, metavar="FILE", help="Explain every text of this file."
)
@data_options(labelled=False)
@click.option(
    "--class", "class_", metavar="NAME", help="Explain this class instead of the most likely one."
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="With --file: n-grams per text.",
)
@click.option("--full", is_flag=True, help="With --file: list all n-grams and classes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="With --file: write JSON lines (.jsonl), one per row.",
)
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write an HTML page.")
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
    full: bool,
    force: bool,
    threads: int | None,
    **options: Any,
) -> None:
    """Explain why a text gets its class.

    Prints how much each n-gram adds to the class. TEXT is one text; - reads it from standard
    input.
    """
    source = reading(options)
    show = _Show(**options)
    _check_options(text_given, files, source, show)
    outputs = [
        Output("--output", show.output, "table"),
        Output("--html", show.html, "page"),
        Output("--plot", show.plot, "picture"),
    ]
    check_outputs([model, *files], outputs, force)
    check_input([text_given] if text_given is not None else files)

    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import read_text_batches

    classifier = TextClassifier.load(model, threads=threads)
    wanted = None if class_ is None else class_named(class_, classifier.classes_)
    if text_given is not None:
        if text_given == "-":
            text_given = sys.stdin.buffer.read().decode("utf8", "replace")
        _show_one(classifier.explain(text_given, wanted), show)
        return
    batches = Batches(read_text_batches(list(files), **source))
    texts = (text.as_py() for batch in batches for text in batch.texts)
    explained = (None if text is None else classifier.explain(text, wanted) for text in texts)
    _show_all(explained, replace(show, top=None) if full else show)
    say(batches.report or "", show.quiet)
    for path in filter(None, (show.output, show.html)):
        say(f"Wrote {path}.", show.quiet)


@dataclass(frozen=True)
class _Show:
    """Where explanations go, and how many n-grams each one lists (None: all)."""

    output: str | None
    html: str | None
    plot: str | None
    top: int | None
    as_json: bool
    quiet: bool


def _check_options(
    text: str | None, files: tuple[str, ...], source: dict[str, Any], show: _Show
) -> None:
    if (text is None) == (not files):
        found = "neither" if text is None else "both"
        raise click.UsageError(f"Give either a text or --file FILE, found {found}.")
    if files and show.plot is not None:
        raise click.UsageError("--plot draws one text. With --file, use --html or --output.")
    if text is not None:
        ctx = click.get_current_context()
        names = option_names(ctx)
        for name in ("output", "full", "top", *source):
            if was_given(ctx, name):
                raise click.UsageError(f"{names[name]} needs --file. For one text, use --json.")
    if show.output is not None:
        format_of(show.output, ("jsonl",))


def _show_one(explanation: "Explanation", show: _Show) -> None:
    """The explanation of one text."""
    if show.html is not None:
        from hashembed.web.explained import END, head, section

        label = printable(str(explanation.classes[explanation.class_index()]))
        with whole_file(show.html) as file:
            page = head(f"Why {label}?") + section(explanation) + END
            file.write(page.encode("utf8", "replace"))
        say(f"Wrote {show.html}.", show.quiet)
    draw(explanation, show.plot, show.quiet)
    if show.as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(highlight=False).print(explanation)


def _show_all(explanations: Iterable["Explanation | None"], show: _Show) -> None:
    """The explanations of files, None for unreadable rows; to standard output by default."""
    with ExitStack() as stack:
        lines = stack.enter_context(whole_file(show.output)) if show.output is not None else None
        page = stack.enter_context(whole_file(show.html)) if show.html is not None else None
        console = None
        if show.as_json or (lines is None and page is None):
            console = _console(show.as_json)
        if page is not None:
            from hashembed.web.explained import END, head

            page.write(head("Explanations").encode())
        for number, explanation in enumerate(explanations, 1):
            line = _json_line(number, explanation, show.top)
            if lines is not None:
                lines.write(f"{line}\n".encode("utf8", "replace"))
            if page is not None:
                page.write(_section(number, explanation).encode("utf8", "replace"))
            if console is not None:
                console(number, line if show.as_json else explanation)
        if page is not None:
            page.write(END.encode())


def _json_line(number: int, explanation: "Explanation | None", top: int | None) -> str:
    found: dict[str, Any] = {"row": number}
    if explanation is None:
        found["problem"] = UNREADABLE
    else:
        found |= explanation.to_dict() if top is None else explanation.summary(top)
    return json.dumps(found, ensure_ascii=False)


def _section(number: int, explanation: "Explanation | None") -> str:
    from hashembed.web.explained import section, unreadable

    heading = f"{number:,}"
    return unreadable(UNREADABLE, heading) if explanation is None else section(explanation, heading)


def _console(as_json: bool) -> Callable[[int, Any], object]:
    """A function that prints one row, as JSON or as a table."""
    if as_json:
        out = results()
        return lambda number, line: out.write(f"{line}\n")
    from rich.console import Console

    console = Console(highlight=False, markup=False)

    def show(number: int, explanation: "Explanation | None") -> None:
        console.rule(f"{number:,}", align="left")
        console.print(UNREADABLE if explanation is None else explanation)

    return show
