"""Error against parameters, for each way to make a table of ids small; from ids.csv.

usage: python -m benchmarks.plot_ids
"""

from pathlib import Path
from zlib import crc32

from benchmarks.machine import RESULTS, read
from benchmarks.plot_readme import COLOUR, INK
from benchmarks.report import OURS

METHODS = {
    "hash embedding": ("o", "-"),
    "hash embedding, cut": ("D", "-"),
    "frequency cut": ("s", "--"),
    "ROBE": ("^", "--"),
    "tensor train": ("v", "--"),
    "CCE": ("P", "--"),
    "quotient-remainder": ("X", "--"),
    "hashing trick": ("d", "--"),
}
PEERS = {  # as many colours as peers, for both backgrounds
    "light": ("#b35900", "#8250df", "#1a7f37", "#cf222e", "#6e7781", "#9a6700"),
    "dark": ("#e09b4f", "#bc8cff", "#56d364", "#ff7b72", "#9da7b3", "#d29922"),
}
PANELS = (
    ("bookcrossing rating", "network", "rmse"),
    ("bookcrossing rating", "factorisation machine", "rmse"),
    ("bookcrossing ranking", "network", "auc"),
    ("renttherunway rating", "network", "rmse"),
    ("renttherunway rating", "factorisation machine", "rmse"),
    ("bookcrossing ranking", "factorisation machine", "auc"),
)
SETS = {"bookcrossing": "Book-Crossing", "renttherunway": "Rent the Runway"}


def picture(shade: str) -> Path:
    return RESULTS / f"ids-{shade}.svg"


def source() -> str:
    """What a picture says it was drawn from."""
    rows = [row for row in read(RESULTS / "ids.csv") if row["fields"] == "both"]
    shown = [(row["task"], row["model"], row["method"], row["rmse"], row["auc"]) for row in rows]
    return f"ids.csv {crc32(repr(shown).encode()):08x}"


def draw(shade: str, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    ink = INK[shade]
    colours = {"text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"}
    with matplotlib.rc_context({"svg.hashsalt": "hashembed", **dict.fromkeys(colours, ink)}):
        figure = Figure(figsize=(9.5, 6.2), layout="constrained")
        for axes, panel in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
            _draw_panel(axes, shade, *panel)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
        metadata = {"Date": None, "Description": source()}
        figure.savefig(path, transparent=True, metadata=metadata)


def _draw_panel(axes, shade: str, task: str, model: str, measure: str) -> None:
    rows = [r for r in read(RESULTS / "ids.csv") if (r["task"], r["model"]) == (task, model)]
    rows = [r for r in rows if r["fields"] == "both"]
    peers = iter(PEERS[shade])
    for method, (marker, line) in METHODS.items():
        own = sorted(
            (float(r["fraction"]), float(r[measure])) for r in rows if r["method"] == method
        )
        ours = method.startswith("hash embedding")
        axes.plot(
            *zip(*own, strict=True),
            color=COLOUR[OURS][shade] if ours else next(peers),
            linestyle=line if method != "hash embedding, cut" else ":",
            marker=marker,
            markersize=4.5,
            linewidth=2 if ours else 1.2,
            zorder=3 if ours else 2,
            label=method,
        )
    full = [float(r[measure]) for r in rows if r["method"] == "full table"]
    axes.axhline(full[0], color=INK[shade], linewidth=1, alpha=0.6, label="full table")
    axes.set_xscale("log", base=2)
    axes.set_xticks([2.0**-i for i in range(6, 0, -1)], [f"1/{2**i}" for i in range(6, 0, -1)])
    name, kind = task.split()
    axes.set_title(f"{SETS[name]}, {kind}\n{model}", fontsize=9.5)
    axes.set_ylabel({"rmse": "RMSE (less is better)", "auc": "AUC (more is better)"}[measure])
    axes.set_xlabel("parameters, of the full table")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)


def main() -> None:
    for shade in INK:
        draw(shade, picture(shade))


if __name__ == "__main__":
    main()
