"""The tables of docs/results/ids.md, from the result files."""

from pathlib import Path

from benchmarks.machine import RESULTS, read
from benchmarks.report import fill

PAGE = Path(__file__).parents[2] / "docs" / "results" / "ids.md"
Rows = list[dict[str, str]]
FRACTIONS = ("0.5", "0.25", "0.125", "0.0625", "0.03125", "0.015625")
OURS = "hash embedding"
ORDER = ("hash embedding, ranks", "hash embedding, cut", "hash embedding, slices")
MAIN = (
    OURS,
    "hash embedding, cut",
    "frequency cut",
    "ROBE",
    "tensor train",
    "CCE",
    "quotient-remainder",
    "hashing trick",
)
IDEAS = (OURS, *ORDER, "hash embedding, clustered")
BETTER = {"rmse": min, "auc": max}


def names(fractions: tuple[str, ...]) -> list[str]:
    return [f"1/{round(1 / float(fraction))}" for fraction in fractions]


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def comparison(rows: Rows, task: str, model: str, measure: str, methods=MAIN) -> str:
    """A line for each method, a column for each fraction; the best of a column in bold."""
    rows = [r for r in rows if (r["task"], r["model"], r["fields"]) == (task, model, "both")]
    values = {(r["method"], r["fraction"]): float(r[measure]) for r in rows}
    best = {f: BETTER[measure](values[m, f] for m in methods) for f in FRACTIONS}
    lines = []
    for method in methods:
        cells = [f"{values[method, f]:.3f}" for f in FRACTIONS]
        bold = [f"{best[f]:.3f}" for f in FRACTIONS]
        cells = [f"**{c}**" if c == b else c for c, b in zip(cells, bold, strict=True)]
        lines.append([method, *cells])
    full = values["full table", "1.0"]
    return markdown([f"full table: {full:.3f}", *names(FRACTIONS)], lines)


def at_an_eighth(rows: Rows) -> str:
    """The ranking task that has one fraction."""
    values = {r["method"]: r for r in rows if r["task"] == "renttherunway ranking"}
    lines = [[m, f"{float(r['auc']):.3f}", f"{float(r['auc_std']):.3f}"] for m, r in values.items()]
    lines.sort(key=lambda line: line[1], reverse=True)
    return markdown(["", "AUC", "standard deviation"], lines)


def one_field(rows: Rows) -> str:
    """The users or the items alone are compressed."""
    fractions = ("0.125", "0.03125")
    values = {(r["method"], r["fields"], r["fraction"]): float(r["rmse"] or 0) for r in rows
              if r["task"] == "bookcrossing rating" and r["model"] == "network"}  # fmt: skip
    heads = [f"{field}, {name}" for field in ("users", "items") for name in names(fractions)]
    keys = [(field, fraction) for field in ("users", "items") for fraction in fractions]
    best = [min(values[m, *key] for m in MAIN) for key in keys]
    lines = []
    for method in MAIN:
        cells = [values[method, *key] for key in keys]
        shown = [
            f"**{c:.3f}**" if f"{c:.3f}" == f"{b:.3f}" else f"{c:.3f}"
            for c, b in zip(cells, best, strict=True)
        ]
        lines.append([method, *shown])
    return markdown(["", *heads], lines)


def speed(rows: Rows) -> str:
    by = {row["method"]: row for row in rows}
    lines = [
        [m, f"{float(by[m]['step_ms']):.2f}", f"{int(by[m]['table_bytes']) / 1e6:.1f}"]
        for m in ("full table", *MAIN, "hash embedding, slices")
    ]
    return markdown(["", "a step, ms", "tables and assignments, MB"], lines)


def initial(rows: Rows) -> str:
    """Validation rows: RMSE of the rating tasks, AUC of the ranking tasks."""
    columns = list(dict.fromkeys((row["task"], row["model"]) for row in rows))
    columns.sort(key=lambda c: (c[0].endswith("ranking"), c))
    values = {}
    for row in rows:
        init = row["E_std"], row["P_mean"], row["P_std"]
        values[init, row["task"], row["model"]] = row["valid_rmse"] or row["valid_auc"]
    lines = []
    for init in dict.fromkeys(key[0] for key in values):
        E, mean, std = (f"{float(x):g}" for x in init)
        P = f"N({mean}, {std})" if float(std) else mean
        cells = [values.get((init, *column)) for column in columns]
        lines.append([f"N(0, {E})", P, *(f"{float(c):.3f}" if c else "" for c in cells)])
    lines.sort(key=lambda line: line[2])
    short = {"network": "net", "factorisation machine": "FM"}
    return markdown(["E", "P", *(f"{task}, {short[model]}" for task, model in columns)], lines)


def tables() -> dict[str, str]:
    """Marker -> table."""
    rows = read(RESULTS / "ids.csv")
    found = {}
    for name in ("bookcrossing", "renttherunway"):
        for model in ("network", "factorisation machine"):
            key = f"<!-- {name} rating {model} -->"
            found[key] = comparison(rows, f"{name} rating", model, "rmse")
    for model in ("network", "factorisation machine"):
        table = comparison(rows, "bookcrossing ranking", model, "auc")
        found[f"<!-- bookcrossing ranking {model} -->"] = table
        ideas = comparison(rows, "bookcrossing rating", model, "rmse", IDEAS)
        found[f"<!-- ideas {model} -->"] = ideas
    found["<!-- renttherunway ranking -->"] = at_an_eighth(rows)
    found["<!-- one field -->"] = one_field(rows)
    found["<!-- speed -->"] = speed(read(RESULTS / "ids_speed.csv"))
    found["<!-- initial -->"] = initial(read(RESULTS / "ids_init.csv"))
    return found


def write() -> None:
    for marker, table in tables().items():
        fill(PAGE, table, marker)


if __name__ == "__main__":
    write()
