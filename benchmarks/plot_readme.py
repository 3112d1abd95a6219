"""The picture of the README: training time against accuracy, beside fastText; from choice.csv.

usage: python -m benchmarks.plot_readme
"""

from pathlib import Path
from zlib import crc32

from benchmarks.bench_classify import SETS
from benchmarks.report import CHOICE, OURS, PEER, RESULTS, read

INK = {"light": "#1f2328", "dark": "#e6e9ee"}
COLOUR = {
    OURS: {"light": "#0b6bcb", "dark": "#58a6ff"},
    PEER: {"light": "#b35900", "dark": "#e09b4f"},
}
AREA = 4.0  # of a marker, points^2 for each megabyte


def picture(shade: str) -> Path:
    return RESULTS / f"readme-{shade}.svg"


def source() -> str:
    """What a picture says it was drawn from: the checksum of the rows that it shows."""
    return f"choice.csv {crc32(repr(_shown()).encode()):08x}"


def _shown() -> list[dict]:
    """Our rows and fastText's, of the larger sets."""
    rows = read(CHOICE)[1]
    return [row for row in rows if row["tool"] in (OURS, PEER) and row["set"] in SETS]


def draw(shade: str, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    runs = {(row["set"], row["tool"]): row for row in _shown()}
    ink = INK[shade]
    with matplotlib.rc_context(
        {
            "svg.hashsalt": "hashembed",
            "text.color": ink,
            "axes.edgecolor": ink,
            "axes.labelcolor": ink,
            "xtick.color": ink,
            "ytick.color": ink,
        }
    ):
        figure = Figure(figsize=(8, 3.9), layout="constrained")
        axes = figure.subplots()
        sets = list(dict.fromkeys(name for name, _ in runs))
        for y, name in enumerate(sets):
            _draw_set(axes, y, runs[name, OURS], runs[name, PEER], shade)
        axes.set(xscale="log", xlim=(0.5, 130), ylim=(len(sets) - 0.4, -0.6))
        axes.set_xlabel("training time in seconds, from the text file to the model, two cores")
        ticks = (1, 2, 5, 10, 20, 50)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(range(len(sets)), sets)
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.2)
        _legend(figure, axes, shade)
        metadata = {"Date": None, "Description": source()}
        figure.savefig(path, transparent=True, metadata=metadata)


def _draw_set(axes, y: int, ours: dict, peer: dict, shade: str) -> None:
    """Two markers as large as the model files, their accuracies, and how far apart they are."""
    seconds = [float(run["train_seconds"]) for run in (ours, peer)]
    accuracies = [float(run["accuracy"]) for run in (ours, peer)]
    axes.plot(seconds, [y, y], color=INK[shade], alpha=0.35, linewidth=1.2, zorder=1)
    for run, x, accuracy, side in zip((ours, peer), seconds, accuracies, (-1, 1), strict=True):
        size = AREA * float(run["model_bytes"]) / 1e6
        colour = COLOUR[run["tool"]][shade]
        axes.scatter(x, y, s=size, color=colour, alpha=0.9, linewidths=0, zorder=2)
        axes.annotate(
            f"{accuracy:.1%}",
            (x, y),
            xytext=(side * (size**0.5 / 2 + 4), 0),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            va="center",
            color=colour,
            fontweight="bold" if accuracy == max(accuracies) else "normal",
        )
    middle = (seconds[0] * seconds[1]) ** 0.5
    axes.annotate(
        f"{seconds[1] / seconds[0]:.1f}x faster",
        (middle, y),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=8.5,
    )


def _legend(figure, axes, shade: str) -> None:
    handles = [
        axes.scatter([], [], s=70, color=COLOUR[tool][shade], alpha=0.9, linewidths=0, label=label)
        for tool, label in ((OURS, "hashembed, defaults"), (PEER, "fastText, tuned"))
    ]
    title = "test accuracy beside each point; area: size of the model file"
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, title=title)


def main() -> None:
    for shade in INK:
        draw(shade, picture(shade))


if __name__ == "__main__":
    main()
