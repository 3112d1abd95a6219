"""The tables and the plot of `best`."""

import statistics
from pathlib import Path
from typing import Any

from experiments.best.search import AS_IT_IS, NotThereYet, from_files, steps
from experiments.best.sized import FIRST, MEGABYTES, Sized, Step
from experiments.tables.cells import Cells, accuracy, drawing, gather, markdown, ordered

WHO = ("start", "best", "best, fewer bits", "fastText")


def table(folder: Path) -> str:
    """Test accuracies, then the steps of each walk."""
    cells = gather(folder, "best")
    parts = [reached(cells)]
    for megabytes in MEGABYTES:
        made = walks(folder, cells, megabytes)
        if made:
            parts.append(
                f"Steps at {megabytes} MB, and what they gained on validation rows:\n\n{made}"
            )
    return "\n".join(parts)


def reached(cells: Cells) -> str:
    """Accuracy on test rows, and the size of the file."""
    rows = []
    for dataset, methods in ordered(cells):
        for megabytes in MEGABYTES:
            found = [methods[f"{megabytes} MB, {who}"] for who in WHO]
            if any(found):
                rows.append([dataset, f"{megabytes} MB", *(cell(runs) for runs in found)])
        for name, bits in AS_IT_IS.items():
            if runs := methods[name]:
                file = f"`TextClassifier()`, {bits} bits: {megabytes_of(runs):.1f} MB"
                rows.append([dataset, file, accuracy(runs), *[""] * (len(WHO) - 1)])
    return markdown(["set", "file", *WHO], rows)


def cell(runs: list[dict]) -> str:
    """Accuracy, and the bits if they are not 16."""
    bits = {run["configuration"].get("bits", 16) for run in runs} - {16}
    return accuracy(runs) + "".join(f", {b} bits" for b in bits)


def megabytes_of(runs: list[dict]) -> float:
    return statistics.mean(run["metrics"]["file_bytes"] for run in runs) / 1e6


def walks(folder: Path, cells: Cells, megabytes: int) -> str:
    """A row for each choice, a column for each set."""
    columns: dict[str, list[Step]] = {}
    for dataset, methods in ordered(cells):
        classes = next(runs[0]["classes"] for runs in methods.values() if runs)
        try:
            first, second = steps(dataset, classes, megabytes, from_files(folder))
        except NotThereYet:
            continue
        columns[dataset] = first + second
    if not columns:
        return ""
    rows = []
    for number, step in enumerate(next(iter(columns.values()))):
        name = step.what + (", again" if step.what in FIRST[: number - 1] else "")
        row = [name, *(moved(column, number) for column in columns.values())]
        rows.append(row)
    return markdown(["choice", *columns], rows)


def moved(column: list[Step], number: int) -> str:
    """The value that a step chose and its gain; empty if nothing changed."""
    step = column[number]
    if number == 0:
        return f"{100 * step.accuracy:.2f}"
    before = column[number - 1]
    if step.model == before.model:
        return ""
    return f"{changed(before.model, step.model)}: +{100 * (step.accuracy - before.accuracy):.2f}"


def changed(before: Sized, after: Sized) -> str:
    """The value that differs."""
    names = before.__dataclass_fields__
    value: Any = next(getattr(after, n) for n in names if getattr(after, n) != getattr(before, n))
    if isinstance(value, tuple):
        return " to ".join(map(str, value))
    return f"{value:.0%}" if isinstance(value, float) and value < 1 else f"{value}"


def plot(folder: Path, path: Path) -> None:
    """Accuracy against the size of the file, a panel for each set."""
    cells = ordered(gather(folder, "best"))
    if not cells:
        return
    with drawing(path, (1, len(cells)), (3.5 * len(cells), 3.5)) as (_, panels):
        for axes, (dataset, methods) in zip(panels[0], cells, strict=True):
            for who in WHO:
                found = [methods[f"{m} MB, {who}"] for m in MEGABYTES if methods[f"{m} MB, {who}"]]
                values = [[100 * run["metrics"]["test_accuracy"] for run in runs] for runs in found]
                spread = [statistics.stdev(v) if len(v) > 1 else 0.0 for v in values]
                means = [statistics.mean(v) for v in values]
                sizes = [megabytes_of(runs) for runs in found]
                axes.errorbar(sizes, means, spread, marker="o", capsize=3, label=who)
            own = [methods[name] for name in AS_IT_IS if methods[name]]
            means = [
                statistics.mean(100 * r["metrics"]["test_accuracy"] for r in runs) for runs in own
            ]
            label = "TextClassifier(), 4 to 16 bits"
            axes.plot([megabytes_of(runs) for runs in own], means, "k*:", label=label)
            axes.set_xscale("log")
            axes.set_xlim(0.7, 140)
            axes.set_xticks(MEGABYTES, map(str, MEGABYTES))
            axes.set_title(dataset, fontsize="medium")
            axes.set_xlabel("file, MB")
        panels[0, 0].set_ylabel("test accuracy, %")
        panels[0, -1].legend(fontsize="small")
