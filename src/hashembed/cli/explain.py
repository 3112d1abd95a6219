"""`hashembed explain`."""

import json
import sys
from html import escape

import click

from hashembed.cli.options import draw, json_option, model_argument, plot_option, say
from hashembed.cli.outputs import Output, check_outputs, force_option

EXAMPLE = """\b
Examples:
  hashembed explain model.safetensors "what a waste of time"
  head -1 review.txt | hashembed explain model.safetensors - --plot why.png"""

# In the colours of the reader's system; the explanation's own are translucent.
PAGE = """<!doctype html>
<meta charset=utf-8>
<meta name=viewport content="width=device-width">
<meta name=color-scheme content="light dark">
<title>Why {label}?</title>
<body style="font-family:system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em">
{body}
"""


@click.command("explain", epilog=EXAMPLE)
@model_argument
@click.argument("text")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write a page.")
@plot_option
@force_option
@json_option
def explain_command(
    model: str, text: str, html: str | None, plot: str | None, force: bool, as_json: bool
) -> None:
    """Say why a text gets its class: what each n-gram adds to it. The text - is standard input."""
    outputs = [Output("--html", html, "page"), Output("--plot", plot, "picture")]
    check_outputs([model], outputs, force)
    from hashembed.classifier import TextClassifier
    from hashembed.writing import write_whole

    classifier = TextClassifier.load(model)
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf8", "replace")
    explanation = classifier.explain(text)
    if html is not None:
        page = PAGE.format(label=escape(str(explanation.predicted)), body=explanation._repr_html_())
        write_whole(html, page.encode())
        say(f"Wrote {html}.")
    draw(explanation, plot)
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(highlight=False).print(explanation)
