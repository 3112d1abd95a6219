"""From the files in benchmarks/results to a plot and to the tables in README and docs/training.md.

usage: python -m benchmarks.report
"""

import csv
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent.parent / "README.md"
TRAINING = Path(__file__).parent.parent / "docs" / "training.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
OURS, ONE_PASS, PEER = "hashembed", "hashembed, one pass", "fastText"


def read(path: Path = RESULTS / "classify.csv") -> tuple[list[str], list[dict]]:
    """-> the comment lines, the rows."""
    lines = path.read_text().splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    return comments, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def table(rows: list[dict]) -> str:
    """Markdown: for each set, accuracy, time and size of our two settings and of fastText."""
    by = {(row["set"], row["tool"]): row for row in rows}
    out = [
        "| set | accuracy: two passes / one / fastText | training | model: ours / fastText |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        runs = [by[name, tool] for tool in (OURS, ONE_PASS, PEER)]
        accuracy = " / ".join(f"{100 * float(run['accuracy']):.1f}" for run in runs)
        seconds = [float(run["train_seconds"]) for run in runs]
        times = [f"{s:.2f} s ({seconds[2] / s:.1f}x)" for s in seconds[:2]]
        size = [float(run["model_bytes"]) / 1e6 for run in runs]
        out.append(
            f"| {name} | {accuracy} | {' / '.join(times)} / {seconds[2]:.2f} s "
            f"| {size[0]:.0f} / {size[2]:.0f} MB |"
        )
    return "\n".join(out)


def rates_table(rows: list[dict]) -> str:
    """Markdown: accuracy by rate, the best of each line in bold, and at the default rate."""
    rates = [name for name in rows[0] if name[0].isdigit()]
    heads = ["set (n-grams a document)", "passes", *rates, "at the default rate"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        best = max(float(row[rate]) for rate in rates)
        cells = [f"{float(row[r]):.1f}" for r in rates]
        cells = [
            f"**{c}**" if float(row[r]) == best else c for c, r in zip(cells, rates, strict=True)
        ]
        name = f"{row['set']} ({row['ngrams_per_document']})"
        default = f"{float(row['default']):.1f} ({row['default_rate']})"
        out.append(f"| {name} | {row['passes']} | {' | '.join(cells)} | {default} |")
    return "\n".join(out)


def plot(rows: list[dict], path: Path) -> None:
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row["set"] for row in rows))
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    figure = Figure(figsize=(13, 7), layout="constrained")
    for axes, name in zip(figure.subplots(2, -(-len(sets) // 2)).flat, sets, strict=False):
        for row in (row for row in rows if row["set"] == name):
            x, y = float(row["train_seconds"]), 100 * float(row["accuracy"])
            axes.plot(x, y, "o", color=f"C{tools.index(row['tool'])}", label=row["tool"])
        axes.set(title=name, xscale="log", xlabel="training, seconds", ylabel="test accuracy, %")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(tools))
    figure.savefig(path, dpi=80)


def fill(page: Path, content: str) -> None:
    """Put a table where the page has a place for it."""
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}")


def main() -> None:
    _, rows = read()
    plot(rows, RESULTS / "classify.png")
    fill(README, table(rows))
    fill(TRAINING, rates_table(read(RESULTS / "rates.csv")[1]))


if __name__ == "__main__":
    main()
