"""`hashembed demo`."""

import click

TEXTS = ("Wo ist der Bahnhof?", "Onde fica a estação?")


@click.command("demo", epilog="\b\nExample:\n  hashembed demo")
def demo_command() -> None:
    """See a hash embedding at work: 16 languages, three embeddings, some seconds, no torch."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    with console.status("Loading, and compiling on the first run (seconds, kept on disk) ..."):
        from hashembed.cli import demo_task as demo

        task = demo.load_task()
    tokens = len(task.train_vocabulary)
    console.print(
        f"{len(task.train):,} sentences in {len(task.languages)} languages; their words and "
        f"character n-grams make {tokens:,} distinct tokens. Tested on {len(task.test):,} others."
    )

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for head in ("dictionary", "parameters", "accuracy", "training"):
        table.add_column(head, justify="right")
    with console.status("Training ...") as status:
        results = demo.compare(task, lambda r: status.update(f"Trained the {r.embedding.name} ..."))
    for r in results:
        table.add_row(
            r.embedding.name,
            f"{tokens:,} keys" if r.embedding.dictionary else "none",
            f"{r.embedding.parameters:,}",
            f"{100 * r.accuracy:.1f} ± {100 * r.spread:.1f}%",
            f"{r.seconds:.1f} s",
        )
    console.print()
    console.print(table)
    console.print(
        f"\nAccuracy: mean and standard deviation of {demo.SEEDS} trainings with different seeds. "
        "Each embedding has its own best learning rate, found on held-out training sentences. The "
        "hashing trick has as many parameters as the hash embedding."
    )

    spec = demo.HASH
    console.print(
        f"\nThe hash embedding has K = {spec.num_embeddings:,} rows of k = {spec.num_hashes} "
        f"importance weights and B = {spec.num_buckets:,} shared components of d = {demo.DIM}.\n"
        "How many of its tokens share with some other token ...\n"
    )
    counts = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    counts.add_column("")
    counts.add_column("predicted", justify="right")
    counts.add_column("measured", justify="right")
    for c in demo.collisions(task):
        counts.add_row(c.what, f"{c.predicted:,.0f}", f"{c.measured:,}")
    console.print(counts)
    console.print("\nWhy it takes two texts for their languages:\n")
    for text in TEXTS:
        console.print(demo.explain(task, results[-1].model, text))
        console.print()
    console.print(
        "Next, with labelled text of yours (CSV, JSON lines, Parquet, fastText's format):\n"
        "  hashembed train train.csv -o model.safetensors\n"
        "and for the sizes of an embedding in a network of yours:\n"
        "  hashembed plan --vocabulary 10M --dim 64",
        markup=False,
    )
