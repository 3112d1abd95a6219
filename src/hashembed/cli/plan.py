"""`hashembed plan`."""

import json
import os
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.options import (
    BYTE_UNITS,
    COUNT_UNITS,
    Subcommand,
    counting_bar,
    draw,
    json_option,
    lengths,
    punctuation_option,
    quantity,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

if TYPE_CHECKING:
    from hashembed.hashing.planner import Plan
    from hashembed.hashing.spec import Indexing
    from hashembed.text.config import Punctuation

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
INDEXING_CHOICES = ("independent", "shared", "identity")

PLAN_EXAMPLE = "\b\nExample:\n  hashembed plan --vocabulary 100M --dim 20 --budget 160MB"


@click.command("plan", cls=Subcommand, epilog=PLAN_EXAMPLE)
@click.option(
    "--vocabulary",
    metavar="COUNT",
    callback=quantity(COUNT_UNITS, "100M, 1e8 or 100_000_000"),
    help="Number of distinct tokens, such as 100M or 1e8.",
)
@click.option(
    "--text",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Count the distinct n-grams of this text instead, one document per line; - is stdin.",
)
@click.option(
    "--dim", type=click.IntRange(1, 2**32), required=True, help="d, the size of a vector."
)
@click.option(
    "--budget",
    metavar="SIZE",
    callback=quantity(BYTE_UNITS, "160MB or 1GiB"),
    help="Largest size of the parameters, such as 160MB or 1GiB. By default the paper's K = 10 B.",
)
@click.option(
    "--dtype",
    type=click.Choice(list(DTYPE_BYTES)),
    default="float32",
    show_default=True,
    help="Type of the parameters.",
)
@click.option(
    "--num-hashes",
    type=click.IntRange(1, 64),
    multiple=True,
    default=(1, 2, 3, 4),
    show_default=True,
    help="k, the number of hash functions to try. May be repeated.",
)
@click.option(
    "--indexing",
    type=click.Choice(INDEXING_CHOICES),
    default="independent",
    show_default=True,
    help="How a token gets its row and its buckets; identity needs a dictionary.",
)
@click.option(
    "--ngrams",
    metavar="RANGE",
    callback=lengths,
    default="1-2",
    show_default=True,
    help="With --text: lengths of word n-grams.",
)
@click.option(
    "--lowercase/--no-lowercase",
    default=True,
    show_default=True,
    help="With --text: whether to ignore case.",
)
@punctuation_option
@json_option
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Draw collisions and size over B into this file (.png, .svg, .pdf).",
)
@force_option
def plan_command(
    vocabulary: int | None,
    text: str | None,
    dim: int,
    budget: int | None,
    dtype: str,
    num_hashes: tuple[int, ...],
    indexing: "Indexing",
    ngrams: tuple[int, int],
    lowercase: bool,
    punctuation: "Punctuation",
    as_json: bool,
    plot: str | None,
    force: bool,
) -> None:
    """Choose the sizes of a hash embedding.

    Lists sizes that fit the budget, with the chances that tokens collide.
    """
    from hashembed.hashing.planner import BudgetError, plan

    check_outputs([text], [Output("--plot", plot, "picture")], force)

    counted: dict[str, Any] = {}
    if text is not None and vocabulary is None:
        counted = _count_text(text, ngrams, lowercase, punctuation)
        vocabulary = counted["distinct_ngrams"]
    elif vocabulary is None or text is not None:
        found = "neither" if text is None else "both"
        raise click.UsageError(f"Give either --vocabulary or --text, found {found}.")
    try:
        result = plan(
            vocabulary,
            dim,
            budget,
            dtype_bytes=DTYPE_BYTES[dtype],
            num_hashes=num_hashes,
            indexing=indexing,
        )
    except BudgetError as error:
        raise click.BadParameter(f"{error}.", param_hint="--budget") from None
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    draw(result, plot)
    if as_json:
        text_fields = {"text": counted} if counted else {}
        click.echo(json.dumps({**text_fields, **result.to_dict()}, indent=2))
    else:
        _print_plan(result, dtype, counted)


def _count_text(
    path: str, ngrams: tuple[int, int], lowercase: bool, punctuation: "Punctuation"
) -> dict[str, Any]:
    from hashembed.text.config import TextConfig
    from hashembed.text.counts.distinct import count_distinct_ngrams

    try:
        config = TextConfig(ngrams=ngrams, lowercase=lowercase, punctuation=punctuation)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--ngrams") from None
    try:
        size = os.path.getsize(path) if os.path.isfile(path) else None
        with click.open_file(path, "rb") as file, counting_bar(size) as on_bytes:
            counter = count_distinct_ngrams(file, config, on_bytes)
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror or error}.") from None
    distinct = round(counter.estimate())
    if distinct == 0:
        raise click.ClickException(f"{path}: found no n-grams, so there is nothing to plan for.")
    return {
        "file": path,
        "ngrams": list(ngrams),
        "lowercase": lowercase,
        "punctuation": punctuation,
        "distinct_ngrams": distinct,
        "relative_error": counter.relative_error,
    }


PLAN_LEGEND = (
    "parameters: B d + K k. of std: size relative to a standard table. The other columns are the "
    "chances that a token shares with some other token its vector (tokens: how many do), its row "
    "of weights, all of its k buckets, or any of them."
)


def _print_plan(result: "Plan", dtype: str, counted: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hashembed.hashing.planner import format_bytes, format_count

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    heads = ["k", "B", "K", "para-\nmeters", "size", "of\nstd", "same\nvector", "\ntokens"]
    for head in [*heads, "same\nrow", "same\nbuckets", "any\nbucket"]:
        table.add_column(head, justify="right", vertical="bottom")
    for c in result.candidates:
        best = c is result.recommended
        table.add_row(
            f"* {c.num_hashes}" if best else f"{c.num_hashes}",
            _size(c.num_buckets),
            _size(c.num_embeddings),
            format_count(c.parameters),
            format_bytes(c.bytes),
            f"{c.ratio:.1%}",
            _chance(c.indistinguishable.probability),
            f"{c.indistinguishable.tokens:,.0f}",
            _chance(c.same_row.probability),
            _chance(c.same_buckets.probability),
            _chance(c.shared_bucket.probability),
            style="bold green" if best else None,
        )
    request = result.request
    how = f" (+- {counted['relative_error']:.1%}, from {counted['file']})" if counted else ""
    budget = "no" if request.budget_bytes is None else format_bytes(request.budget_bytes)
    console = Console(highlight=False, markup=False)
    # A table wider than the terminal wraps: truncated numbers would be worse.
    wide = Console(width=max(console.width, Console(width=10_000).measure(table).maximum))
    console.print(
        f"{request.vocabulary:,} tokens{how}, d = {request.embedding_dim}, {dtype}, "
        f"{request.indexing} indexing, {budget} budget; "
        f"a standard table takes {format_bytes(request.standard_bytes)}.\n"
    )
    if result.candidates:
        wide.print(table)
        console.print(f"\n{PLAN_LEGEND}")
    console.print(f"* {result.reason}" if result.recommended else result.reason)
    for note in result.notes:
        console.print(note)


def _size(number: int) -> str:
    """1_300_000 -> '1.3M', but 1_234_567 -> '1,234,567': short only if that is exact."""
    from hashembed.hashing.planner import format_count

    return (
        format_count(number) if number % 10 ** max(len(str(number)) - 3, 0) == 0 else f"{number:,}"
    )


def _chance(probability: float) -> str:
    """Two significant digits, and nothing below a billionth."""
    return "<1e-9" if 0 < probability < 1e-9 else f"{probability:.2g}"
