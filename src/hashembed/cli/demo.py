"""`hashembed demo`."""

from typing import TYPE_CHECKING

import click

from hashembed.cli.options import Subcommand
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.tables import number_table

if TYPE_CHECKING:
    from rich.table import Table

    from hashembed.cli.demo_task import Collision, Result

TEXTS = ("Wo ist der Bahnhof?", "Onde fica a estação?")


EXAMPLE = """\b
Examples:
  hashembed demo
  hashembed demo --vectors
  hashembed demo --page languages.html"""


@click.command("demo", cls=Subcommand, epilog=EXAMPLE)
@click.option(
    "--page",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Instead, write a web page that tells the languages apart.",
)
@click.option(
    "--vectors", is_flag=True, help="Instead, learn word vectors without labels, and use them."
)
@force_option
def demo_command(page: str | None, vectors: bool, force: bool) -> None:
    """See hash embeddings at work, in a few seconds.

    Trains three embeddings to tell 16 languages apart, and explains two answers. With --vectors,
    learns word vectors from the same sentences without being told their languages.
    """
    if vectors and page is not None:
        raise click.UsageError("Give either --vectors or --page, found both.")
    from rich.console import Console

    console = Console(highlight=False)
    if vectors:
        from hashembed.cli.demo_vectors_show import show_vectors

        show_vectors(console)
        return
    if page is not None:
        check_outputs([], [Output("--page", page, "page")], force)
        with console.status("Training ..."):
            from hashembed.cli.demo_page import write_demo_page

            size = write_demo_page(page, TEXTS)
        console.print(f"Wrote {page}, {size / 1e6:.1f} MB. Open it in a browser.", markup=False)
        return
    with console.status("Loading ..."):
        from hashembed.cli import demo_task as demo

        task = demo.load_task()
    tokens = len(task.train_vocabulary)
    console.print(
        f"{len(task.train):,} sentences in {len(task.languages)} languages; their words and "
        f"character n-grams are {tokens:,} distinct tokens. Tested on {len(task.test):,} others."
    )

    with console.status("Training ...") as status:
        results = demo.compare(task, lambda r: status.update(f"Trained the {r.embedding.name} ..."))
    console.print()
    console.print(_accuracies(results, tokens))
    console.print(
        f"\nAccuracy: mean and standard deviation of {demo.SEEDS} trainings with different seeds. "
        "Each embedding has its own best learning rate, found on held-out training sentences. The "
        "hashing trick has as many parameters as the hash embedding."
    )

    spec = demo.HASH
    console.print(
        f"\nThe hash embedding has K = {spec.num_embeddings:,} rows of k = {spec.num_hashes} "
        f"importance weights and B = {spec.num_buckets:,} shared components of d = {demo.DIM}.\n"
        "How many tokens share with some other token ...\n"
    )
    console.print(_collisions(demo.collisions(task)))
    console.print("\nWhy the model recognises the languages of two texts:\n")
    for text in TEXTS:
        console.print(demo.explain(task, results[-1].model, text))
        console.print()
    console.print(
        "Next, train on your own labelled text (CSV, JSON lines, Parquet, fastText's format):\n"
        "  hashembed train train.csv -o model.safetensors\n"
        "or choose the sizes of an embedding for your own network:\n"
        "  hashembed plan --vocabulary 10M --dim 64",
        markup=False,
    )


def _accuracies(results: "list[Result]", tokens: int) -> "Table":
    table = number_table("dictionary", "parameters", "accuracy", "training")
    for r in results:
        table.add_row(
            r.embedding.name,
            f"{tokens:,} keys" if r.embedding.dictionary else "none",
            f"{r.embedding.parameters:,}",
            f"{100 * r.accuracy:.1f} ± {100 * r.spread:.1f}%",
            f"{r.seconds:.1f} s",
        )
    return table


def _collisions(counted: "list[Collision]") -> "Table":
    table = number_table("predicted", "measured")
    for c in counted:
        table.add_row(c.what, f"{c.predicted:,.0f}", f"{c.measured:,}")
    return table
