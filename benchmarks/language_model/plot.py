"""The picture of docs/results/language-model.md: test perplexity against parameters (lm.csv)."""

from pathlib import Path
from statistics import mean
from zlib import crc32

from benchmarks.language_model.report import KINDS, by_table, of_study
from benchmarks.machine import RESULTS
from benchmarks.plot_readme import INK

COLOUR = {
    "hash": {"light": "#0b6bcb", "dark": "#58a6ff"},
    "quotient-remainder": {"light": "#b35900", "dark": "#e09b4f"},
    "low rank": {"light": "#2e7d32", "dark": "#7ac77f"},
    "hashing trick": {"light": "#8e4585", "dark": "#cf8fc7"},
}


def picture(shade: str) -> Path:
    return RESULTS / f"lm-{shade}.svg"


def source() -> str:
    """What a picture says it was drawn from: the checksum of the rows that it shows."""
    return f"lm.csv {crc32(repr(of_study('sizes')).encode()):08x}"


def draw(shade: str, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    ink = INK[shade]
    colours = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    with matplotlib.rc_context({"svg.hashsalt": "hashembed", **dict.fromkeys(colours, ink)}):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots()
        draw_lines(axes, shade)
        axes.set(xscale="log", yscale="log", ylim=(145, 370))
        axes.set_xlabel("parameters of the token table, millions")
        axes.set_ylabel("test perplexity")
        ticks = (0.25, 0.5, 1, 2, 4, 8)
        axes.set_xticks([tick * 1e6 for tick in ticks], [f"{tick:g}" for tick in ticks])
        heights = (150, 200, 250, 300, 350)
        axes.set_yticks(heights, [str(height) for height in heights])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
        metadata = {"Date": None, "Description": source()}
        figure.savefig(path, transparent=True, metadata=metadata)


def draw_lines(axes, shade: str) -> None:
    """One line for each kind of table, and a point for the full one."""
    perplexities = by_table(of_study("sizes"), "test_perplexity")
    parameters = by_table(of_study("sizes"), "table_parameters")
    for kind in KINDS:
        points = sorted(
            (parameters[key][0], mean(values))
            for key, values in perplexities.items()
            if key[0] == kind
        )
        colour = COLOUR[kind][shade]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=5)
        name = "hash embedding" if kind == "hash" else kind
        axes.annotate(
            name,
            points[0],
            xytext=(0, 7),
            textcoords="offset points",
            ha="left",
            color=colour,
        )
    x, y = parameters["full", 1.0][0], mean(perplexities["full", 1.0])
    axes.plot([x], [y], "s", color=INK[shade], markersize=6)
    axes.annotate("full table", (x, y), xytext=(0, 8), textcoords="offset points", ha="center")
    axes.axhline(y, color=INK[shade], alpha=0.3, linewidth=1, linestyle="--")


def draw_all() -> None:
    for shade in INK:
        draw(shade, picture(shade))
