"""Table 4: our n-grams beside the paper's."""

from pathlib import Path

from experiments.running.store import records
from experiments.tables.cells import drawing, grid, markdown

SHOWN = 12
# Table 4 of the paper, with a deep model and case kept.
PAPER = {
    "paper, Yelp polarity": (
        "What a joke, not a good experience, Great experience, wanted to love, and lacking, "
        "Awful, by far the worst",
        "The service was, got a cinnamon, 15 you can, while touching, and that table, "
        "style There is",
    ),
    "paper, Amazon full": (
        "gave it 4, it two stars because, 4 stars instead of 5, 4 stars, four stars, "
        "gave it two stars",
        "that my wife and I, the state I, power back on, years and though, you want a real good",
    ),
}


def table(folder: Path) -> str:
    runs = list(records(folder, "table4"))
    if not runs:
        return "No runs yet.\n"
    out = "| set | most important n-grams | least important n-grams |\n| --- | --- | --- |\n"
    for run in runs:
        most, least = (
            ", ".join(text for text, _, _ in run["metrics"][key][:SHOWN])
            for key in ("most", "least")
        )
        out += f"| {run['dataset']} | {most} | {least} |\n"
    for name, (most, least) in PAPER.items():
        out += f"| {name} | {most} | {least} |\n"
    return f"{out}\n{kept(runs)}"


def kept(runs: list[dict]) -> str:
    """Accuracy with a share of the n-grams."""
    shares = [f"{100 * row['share']:g}%" for row in runs[0]["metrics"]["kept"]]
    rows = [
        [
            run["dataset"],
            f"{100 * run['metrics']['test_accuracy']:.2f}",
            *(f"{100 * c['weight']:.2f} / {100 * c['count']:.2f}" for c in run["metrics"]["kept"]),
        ]
        for run in runs
    ]
    made = markdown(["set", "all", *shares], rows)
    return f"Accuracy with a part of the dictionary, by importance / by frequency:\n\n{made}"


def plot(folder: Path, path: Path) -> None:
    """Accuracy against the share of n-grams that is kept, a panel for each set."""
    runs = list(records(folder, "table4"))
    if not runs:
        return
    with drawing(path, *grid(len(runs), 2.6, 2.4)) as (figure, panels):
        for axes, run in zip(panels.flat, runs, strict=False):
            rows = run["metrics"]["kept"]
            shares = [100 * row["share"] for row in rows]
            for key, label in (("weight", "by importance"), ("count", "by frequency")):
                axes.plot(shares, [100 * row[key] for row in rows], marker=".", label=label)
            axes.axhline(100 * run["metrics"]["test_accuracy"], color="grey", lw=1, label="all")
            axes.set_xscale("log")
            axes.set_title(run["dataset"], fontsize="medium")
            axes.grid(alpha=0.3)
        for axes in panels.flat[len(runs) :]:
            axes.set_axis_off()
        panels[0][0].legend(fontsize="small")
        figure.supylabel("test accuracy, %")
        figure.supxlabel("n-grams kept, %")
