"""The table and the plot of `regularising`: training and test rows, pass by pass."""

import statistics
from pathlib import Path

from experiments.studies.regularising import MODELS, NOISE
from experiments.tables.cells import accuracy, drawing, gather, markdown, ordered


def table(folder: Path) -> str:
    """Accuracies after the pass that was chosen on held-out training rows."""
    rows = []
    for dataset, methods in ordered(gather(folder, "regularising")):
        for noise in NOISE:
            for model in MODELS:
                runs = methods[f"{model}, {noise:.0%} wrong labels"]
                if runs:
                    millions = f"{runs[0]['metrics']['parameters'] / 1e6:.1f}M"
                    passes = sorted(run["metrics"]["chosen"]["passes"] for run in runs)
                    chosen = ", ".join(map(str, passes))
                    found = [accuracy(runs, key=f"{part}_accuracy") for part in ("train", "test")]
                    rows.append([dataset, f"{noise:.0%}", model, millions, chosen, *found])
    header = ["set", "wrong labels", "embedding", "parameters", "passes chosen", "train", "test"]
    return markdown(header, rows)


def plot(folder: Path, path: Path) -> None:
    """A panel for each set and share of wrong labels; training rows are dashed."""
    cells = ordered(gather(folder, "regularising"))
    if not cells:
        return
    with drawing(path, (len(NOISE), len(cells)), (4 * len(cells), 6)) as (_, panels):
        for column, (dataset, methods) in enumerate(cells):
            for axes, noise in zip(panels[:, column], NOISE, strict=True):
                for number, model in enumerate(MODELS):
                    runs = methods[f"{model}, {noise:.0%} wrong labels"]
                    if not runs:
                        continue
                    curves = [run["metrics"]["curve"] for run in runs]
                    passes = [point["passes"] for point in curves[0]]
                    for part, style in (("train", "--"), ("test", "-")):
                        means = [
                            statistics.mean(100 * point[f"{part}_accuracy"] for point in points)
                            for points in zip(*curves, strict=True)
                        ]
                        label = model if part == "test" else None
                        axes.plot(passes, means, style, color=f"C{number}", marker=".", label=label)
                axes.set_xscale("log")
                axes.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
                axes.set_title(f"{dataset}, {noise:.0%} wrong labels", fontsize="medium")
        panels[0, 0].legend(fontsize="small")
        panels[0, 0].set_ylabel("accuracy, % (training rows dashed)")
        panels[-1, 0].set_xlabel("passes")
