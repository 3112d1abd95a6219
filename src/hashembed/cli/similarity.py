"""`hashembed similarity`."""

import json
import math
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.options import Subcommand, json_option, threads_option, vectors_argument

if TYPE_CHECKING:
    from rich.table import Table

    from hashembed.vectors.evaluation import AnalogyResult
    from hashembed.vectors.model import VectorModel

EXAMPLE = """\b
Examples:
  hashembed similarity vectors.safetensors word-similarity/
  hashembed similarity vectors.safetensors ws353.txt rw.csv --json
  hashembed similarity vectors.safetensors --analogies questions-words.txt"""
SUFFIXES = (".txt", ".csv", ".tsv")


@dataclass(frozen=True)
class Agreement:
    """How well cosines agree with people on one set: Spearman's correlation x 100.

    None if a correlation is not defined. unknown: pairs with a word that is not in the vocabulary.
    rare: other pairs with a word that occurs less often than --rare says.
    """

    name: str
    pairs: int
    spearman: float | None
    unknown_pairs: int
    unknown_spearman: float | None
    rare_pairs: int
    rare_spearman: float | None


@click.command("similarity", cls=Subcommand, epilog=EXAMPLE)
@vectors_argument
@click.argument("data", nargs=-1, type=click.Path(exists=True), metavar="[FOLDER|FILE]...")
@click.option(
    "--analogies",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Also answer analogies: lines of four words, and lines ': name' that begin a section.",
)
@click.option(
    "--rare",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="COUNT",
    help="Show pairs with a word that occurs less often apart.",
)
@threads_option
@json_option
def similarity_command(
    vectors: str,
    data: tuple[str, ...],
    analogies: str | None,
    rare: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure how well word vectors agree with people.

    A set is a file (.txt, .csv, .tsv) with two words and a score in each line, or a folder of such
    files. Prints Spearman's correlation between the scores and the cosines, times 100. All pairs
    count. A pair with a word without a vector has the cosine 0.
    """
    if not data and analogies is None:
        raise click.UsageError("give a file or a folder of sets, or --analogies FILE.")
    files = [file for path in data for file in _sets(path)]
    from hashembed.vectors.word_vectors import WordVectors

    model = WordVectors.load(vectors, threads=threads).model
    agreements = [_agreement(model, file, rare) for file in files]
    answered: list[AnalogyResult] = []
    if analogies is not None:
        from hashembed.vectors.evaluation import evaluate_analogies

        answered = evaluate_analogies(model, analogies)
        if not answered:
            raise click.ClickException(f"{analogies}: found no line of four words.")
    if as_json:
        found = {
            "sets": [asdict(one) for one in agreements],
            "mean": _mean(agreements),
            "analogies": [{**one._asdict(), "accuracy": _share(one)} for one in answered],
            "analogy_accuracy": _total_share(answered),
        }
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if agreements:
        console.print(_set_table(agreements))
        click.echo(
            "\nSpearman's correlation x 100: of all pairs, and of some alone.\n"
            "unknown: pairs with a word that is not in the vocabulary\n"
            f"rare: other pairs with a word that occurs less than {rare:,} times\n"
        )
    if answered:
        console.print(_analogy_table(answered))


def _sets(path: str) -> list[str]:
    """The files of a folder, or the file."""
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.lower().endswith(SUFFIXES))
    files = [os.path.join(path, name) for name in names if not name.startswith(".")]
    if not files:
        raise click.ClickException(f"{path}: found no file that ends in .txt, .csv or .tsv.")
    return files


def _agreement(model: "VectorModel", file: str, rare: int) -> Agreement:
    import numpy as np

    from hashembed.vectors.evaluation import evaluate_pairs, read_pairs

    pairs = read_pairs(file)
    name = os.path.splitext(os.path.basename(file))[0]
    found = evaluate_pairs(model, name, pairs)
    ranks = np.stack([model.ranks([pair[i] for pair in pairs]) for i in (0, 1)])
    counts = np.append(model.dictionary.counts, 0)[ranks]  # of a rank of -1: 0
    apart = np.flatnonzero((counts > 0).all(axis=0) & (counts < rare).any(axis=0))
    rare_ones = [pairs[place] for place in apart]
    of_rare = evaluate_pairs(model, name, rare_ones).correlation if rare_ones else math.nan
    return Agreement(
        name,
        found.pairs,
        _hundredfold(found.correlation),
        found.unknown_pairs,
        _hundredfold(found.unknown_correlation),
        len(rare_ones),
        _hundredfold(of_rare),
    )


def _hundredfold(correlation: float) -> float | None:
    return None if math.isnan(correlation) else round(100 * correlation, 2)


def _mean(agreements: list[Agreement]) -> float | None:
    """Of all sets that have a correlation."""
    found = [one.spearman for one in agreements if one.spearman is not None]
    return round(sum(found) / len(found), 2) if found else None


def _share(one: "AnalogyResult") -> float | None:
    return one.right / one.questions if one.questions else None


def _total_share(answered: "list[AnalogyResult]") -> float | None:
    questions = sum(one.questions for one in answered)
    return sum(one.right for one in answered) / questions if questions else None


def _set_table(agreements: list[Agreement]) -> "Table":
    from hashembed.cli.tables import number_table

    table = number_table("pairs", "Spearman", "unknown", "Spearman", "rare", "Spearman")
    for one in agreements:
        table.add_row(
            one.name,
            f"{one.pairs:,}",
            _shown(one.spearman),
            f"{one.unknown_pairs:,}",
            _shown(one.unknown_spearman),
            f"{one.rare_pairs:,}",
            _shown(one.rare_spearman),
        )
    if len(agreements) > 1:
        table.add_row(
            f"mean of {len(agreements)} sets",
            f"{sum(one.pairs for one in agreements):,}",
            _shown(_mean(agreements)),
            f"{sum(one.unknown_pairs for one in agreements):,}",
            "",
            f"{sum(one.rare_pairs for one in agreements):,}",
            "",
        )
    return table


def _analogy_table(answered: "list[AnalogyResult]") -> "Table":
    from hashembed.cli.tables import number_table

    table = number_table("questions", "right", "accuracy", "unknown words")
    totals = (
        sum(one.questions for one in answered),
        sum(one.right for one in answered),
        sum(one.left_out for one in answered),
    )
    for one in answered:
        _add_analogies(table, one.name, one.questions, one.right, one.left_out)
    if len(answered) > 1:
        _add_analogies(table, "all analogies", *totals)
    return table


def _add_analogies(table: "Table", name: str, questions: int, right: int, left_out: int) -> None:
    accuracy = f"{right / questions:.1%}" if questions else "-"
    table.add_row(name, f"{questions:,}", f"{right:,}", accuracy, f"{left_out:,}")


def _shown(correlation: Any) -> str:
    return "-" if correlation is None else f"{correlation:.1f}"
