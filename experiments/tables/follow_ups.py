"""Tables and plots of two follow-ups: `pruning` (of table 4) and `classes` (of `buckets`)."""

import statistics
from pathlib import Path

from experiments.studies.classes import BUCKETS, KINDS
from experiments.studies.phrases import PRUNING
from experiments.tables.cells import accuracy, drawing, gather, grid, markdown, ordered, signed

SHARES = (0.1, 0.01)
ORDERS = {"weight": "importance", "count": "frequency", "both": "both"}


def _kept(runs: list[dict], share: float, key: str) -> float:
    """Accuracy with that share of the n-grams, mean over seeds."""
    return statistics.mean(
        row[key] for run in runs for row in run["metrics"]["kept"] if row["share"] == share
    )


def pruning(folder: Path) -> str:
    """Accuracy with a part of the n-grams, by the order they are chosen in."""
    rows = []
    for dataset, methods in ordered(gather(folder, "pruning")):
        for name in PRUNING:
            if runs := methods[name]:
                left = [
                    " / ".join(f"{100 * _kept(runs, share, key):.1f}" for key in ORDERS)
                    for share in SHARES
                ]
                counts = [run["metrics"]["count_of_important"] for run in runs]
                count = f"{statistics.mean(counts):.0f}"
                rows.append([dataset, name, accuracy(runs), *left, count])
    orders = " / ".join(ORDERS.values())
    shares = [f"{share:.0%}, by {orders}" for share in SHARES]
    header = ["set", "model", "all n-grams", *shares, "median count of the important tenth"]
    return markdown(header, rows)


def plot_pruning(folder: Path, path: Path) -> None:
    """Points lost by the share that is kept; dashed: chosen by frequency."""
    cells = ordered(gather(folder, "pruning"))
    if not cells:
        return
    with drawing(path, *grid(len(cells), 3, 3)) as (figure, panels):
        for axes, (dataset, methods) in zip(panels.flat, cells, strict=False):
            for number, name in enumerate(PRUNING):
                if not (runs := methods[name]):
                    continue
                shares = [row["share"] for row in runs[0]["metrics"]["kept"]]
                whole = statistics.mean(run["metrics"]["test_accuracy"] for run in runs)
                for key, style in (("weight", "-"), ("count", "--")):
                    left = [100 * (_kept(runs, share, key) - whole) for share in shares]
                    label = name if key == "weight" else None
                    x = [100 * share for share in shares]
                    axes.plot(x, left, style, color=f"C{number}", marker=".", label=label)
            axes.set_xscale("log")
            axes.set_title(dataset, fontsize="medium")
            axes.grid(alpha=0.3)
        lines = panels[0][0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside right", fontsize="small")
        figure.supylabel("points above all n-grams")
        figure.supxlabel("n-grams kept, %, by importance (by frequency: dashed)")


def _buckets(methods: dict[str, list[dict]], kind: str) -> list[list[dict]]:
    return [methods[f"{kind}, B = {B:,}"] for B in BUCKETS]


def _whole(methods: dict[str, list[dict]], kind: str = "all classes") -> bool:
    return all(_buckets(methods, kind))


def _ahead(runs: list[dict], best: list[dict]) -> float:
    """Points above the largest table (below: negative), means over seeds."""
    means = [statistics.mean(run["metrics"]["test_accuracy"] for run in of) for of in (runs, best)]
    return 100 * (means[0] - means[1])


def classes(folder: Path) -> str:
    """Accuracy with the largest table, and the points of smaller ones above it."""
    rows = []
    for dataset, methods in ordered(gather(folder, "classes")):
        for kind in KINDS:
            if _whole(methods, kind):
                *few, most = _buckets(methods, kind)
                ahead = [signed(_ahead(runs, most)) for runs in few]
                rows.append([dataset, kind, accuracy(most), *ahead[::-1]])
    header = ["set", "rows and labels", *(f"B = {B:,}" for B in BUCKETS[::-1])]
    return markdown(header, rows)


def plot_classes(folder: Path, path: Path) -> None:
    """The smallest table against the largest, by the number of classes."""
    cells = [(name, of) for name, of in ordered(gather(folder, "classes")) if _whole(of)]
    if not cells:
        return
    with drawing(path, (1, 1), (5, 3.5)) as (_, panels):
        axes = panels[0][0]
        for number, (dataset, methods) in enumerate(cells):
            for merged, style in ((False, "o-"), (True, "s--")):
                points = []
                for kind, (count, merge) in KINDS.items():
                    if _whole(methods, kind) and (merge == merged or count is None):
                        runs, _, most = _buckets(methods, kind)
                        points.append((count or runs[0]["classes"], _ahead(runs, most)))
                name = f"{dataset}, {'groups' if merged else 'largest classes'}"
                axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=name)
        axes.set(xscale="log", xlabel="classes", ylabel=f"B = {BUCKETS[0]}: points above B = 1M")
        axes.legend(fontsize="small", loc="upper right")
        axes.grid(alpha=0.3)
