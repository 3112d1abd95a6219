"""Parts of tables: runs by set and method, means over seeds, Markdown; figures for plots."""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.running.store import records

Cells = dict[str, dict[str, list[dict]]]  # data set -> method -> runs


def gather(folder: Path, experiment: str) -> Cells:
    cells: Cells = defaultdict(lambda: defaultdict(list))
    for run in records(folder, experiment):
        cells[run["dataset"]][run["name"]].append(run)
    return cells


def accuracy(runs: list[dict], single: str = " (1 seed)", key: str = "test_accuracy") -> str:
    """Mean and standard deviation over seeds, in percent."""
    values = [100 * run["metrics"][key] for run in runs]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.2f}{single}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def signed(points: float) -> str:
    """One decimal with its sign; zero has none."""
    text = f"{points:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def seconds(runs: list[dict]) -> str:
    """The median time of training; only runs on a quiet machine count."""
    quiet = [run["metrics"]["train_seconds"] for run in runs if run["quiet"]]
    return f", {statistics.median(quiet):.1f} s" if quiet else ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) if rows else "No runs yet.\n"


def ordered(cells: Cells) -> list[tuple[str, dict[str, list[dict]]]]:
    """Larger sets first."""

    def rows(item: tuple[str, dict[str, list[dict]]]) -> int:
        return -next(run["rows"][0] for runs in item[1].values() for run in runs)

    return sorted(cells.items(), key=rows)


@contextmanager
def drawing(
    path: Path, panels: tuple[int, int], size: tuple[float, float], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """A figure and its panels (rows, columns), saved to a file at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        *panels, figsize=size, layout="constrained", squeeze=False, **options
    )
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def grid(count: int, width: float, height: float) -> tuple[tuple[int, int], tuple[float, float]]:
    """Rows and columns for a number of panels, and the size of the figure."""
    columns = min(count, 4)
    rows = -(-count // columns)
    return (rows, columns), (1 + width * columns, 0.6 + height * rows)


def can_plot() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True
