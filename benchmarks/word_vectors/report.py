"""The tables of docs/results/vectors.md, from the result files.

python -m benchmarks.word_vectors.report
"""

from pathlib import Path
from statistics import mean, stdev

from benchmarks.machine import RESULTS, read
from benchmarks.report import fill
from benchmarks.word_vectors.judging import LARGE

PAGE = Path(__file__).parents[2] / "docs" / "results" / "vectors.md"
SHOWN = {"WS-353": "WS-353-ALL", "MEN": "MEN-TR-3k", "rare words": "RW-STANFORD",
         "SimLex": "SIMLEX-999"}  # fmt: skip
Rows = list[dict[str, str]]


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def large(row: dict[str, str]) -> float:
    return mean(float(row[name]) for name in LARGE)


def size(row: dict[str, str]) -> str:
    return f"{float(row['bytes']) / 1e6:.1f} MB"


def tools_table(rows: Rows) -> str:
    """Each tool with 1 and 5 passes; of our files, the default one."""
    shown = [row for row in rows if row["stored"] in ("", "8 bits")]
    heads = ["", "passes", "numbers", "file", "seconds", "mean", *SHOWN, "analogies"]
    cells = [
        [
            row["tool"],
            row["passes"],
            f"{int(row['numbers']) / 1e6:.1f}M",
            size(row),
            f"{float(row['seconds']):.0f}",
            f"{float(row['mean']):.1f}",
            *(f"{float(row[name]):.1f}" for name in SHOWN.values()),
            f"{float(row['analogies']):.1f}%",
        ]
        for row in shown
    ]
    return markdown(heads, cells)


def sizes_table(rows: Rows) -> str:
    """What fewer bits cost, with 5 passes."""
    heads = ["stored in", "file", "mean", *SHOWN]
    cells = [
        [
            row["stored"],
            size(row),
            f"{float(row['mean']):.1f}",
            *(f"{float(row[name]):.1f}" for name in SHOWN.values()),
        ]
        for row in rows
        if row["tool"] == "hashembed" and row["passes"] == "5"
    ]
    return markdown(heads, cells)


def gpu_table(rows: Rows) -> str:
    heads = ["", "seconds of a pass", "words a second", "same bits in three runs", "GPU"]
    cells = [
        [
            row["model"],
            f"{float(row['seconds']):.2f}",
            f"{int(row['words per second']) / 1e6:.1f}M",
            "yes" if row["same bits"] == "True" else "no",
            row["gpu"],
        ]
        for row in rows
    ]
    return markdown(heads, cells)


def settings_table(rows: Rows) -> str:
    """Means over seeds, and the deviation of single seeds."""
    names = list(dict.fromkeys(row["settings"] for row in rows))
    heads = ["settings", "numbers", "mean", "large sets", *SHOWN]
    cells = []
    for name in names:
        own = [row for row in rows if row["settings"] == name]
        means = [float(row["mean"]) for row in own]
        spread = f" ± {stdev(means):.1f}" if len(means) > 1 else ""
        cells.append(
            [
                name,
                f"{int(own[0]['numbers']) / 1e6:.1f}M",
                f"{mean(means):.1f}{spread}",
                f"{mean(map(large, own)):.1f}",
                *(f"{mean(float(row[set_]) for row in own):.1f}" for set_ in SHOWN.values()),
            ]
        )
    return markdown(heads, cells)


def main() -> None:
    rows = read(RESULTS / "vectors.csv")
    fill(PAGE, tools_table(rows), "<!-- tools -->")
    fill(PAGE, sizes_table(rows), "<!-- sizes -->")
    fill(PAGE, gpu_table(read(RESULTS / "vectors_gpu.csv")), "<!-- gpu -->")
    fill(PAGE, settings_table(read(RESULTS / "vectors_settings.csv")), "<!-- settings -->")


if __name__ == "__main__":
    main()
