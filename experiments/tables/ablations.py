"""The tables and plots of ablations: a row for each setting, a column for each set."""

import statistics
from collections.abc import Callable
from pathlib import Path

from experiments.plans.ablations import ABLATIONS
from experiments.tables import costs
from experiments.tables.cells import accuracy, drawing, gather, grid, markdown, ordered


def embedding_parameters(runs: list[dict]) -> str:
    """Thousands of parameters of the embedding, if the runs record them."""
    counts = {run["metrics"].get("embedding_parameters") for run in runs} - {None}
    return "".join(f", {count / 1e3:,.0f}k" for count in counts)


def reached(runs: list[dict]) -> str:
    return accuracy(runs) + embedding_parameters(runs)


# What a table shows instead of accuracy.
CELLS: dict[str, Callable[[list[dict]], str]] = {"time": lambda runs: costs.seconds([runs], 2)}


def table(name: str) -> Callable[[Path], str]:
    cell = CELLS.get(name, reached)

    def made(folder: Path) -> str:
        cells = dict(ordered(gather(folder, name)))
        rows = []
        for label in ABLATIONS[name]:
            runs = [cells[dataset][label] for dataset in cells]
            found = [cell(of) for of in runs]
            if any(found):
                rows.append([label, *found])
        return markdown(["", *cells], rows)

    return made


MEASURES = {"time": ("train_seconds", 1, "seconds of training")}  # where it is not accuracy


def plot(name: str) -> Callable[[Path, Path], None]:
    """Accuracy, or time, by setting, a panel for each set, with the deviation over seeds."""
    key, scale, label = MEASURES.get(name, ("test_accuracy", 100, "test accuracy, %"))

    def draw(folder: Path, path: Path) -> None:
        cells = ordered(gather(folder, name))
        if not cells:
            return
        labels = [x for x in ABLATIONS[name] if any(methods[x] for _, methods in cells)]
        shape, (width, height) = grid(len(cells), 2.2, 0.6 + 0.28 * len(labels))
        with drawing(path, shape, (width + 2, height), sharey=True) as (figure, panels):
            for axes, (dataset, methods) in zip(panels.flat, cells, strict=False):
                runs = [[scale * run["metrics"][key] for run in methods[x]] for x in labels]
                means = [statistics.mean(values) if values else float("nan") for values in runs]
                spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in runs]
                axes.errorbar(means, range(len(labels)), xerr=spread, fmt="o", capsize=3)
                axes.set_title(dataset, fontsize="medium")
                axes.grid(alpha=0.3)
            for axes in panels.flat[len(cells) :]:
                axes.set_axis_off()
            panels[0][0].set_yticks(range(len(labels)), labels)
            panels[0][0].invert_yaxis()
            figure.supxlabel(label)

    return draw
