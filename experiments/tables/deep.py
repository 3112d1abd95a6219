"""Table 2 with Adam, and its right half: dictionary, deep models, ensemble."""

import re
from collections import Counter
from pathlib import Path

from experiments.plans import paper as plans
from experiments.tables.cells import accuracy, gather, markdown, ordered, seconds
from experiments.tables.paper import paper2


def adam(folder: Path) -> str:
    names = [f"{name}, paper protocol" for name in plans.ADAM]
    rows = []
    for dataset, methods in ordered(gather(folder, "table2")):
        if any(methods[name] for name in names):
            found = [accuracy(methods[name]) for name in names]
            costs = [cost(methods[name]) for name in names]
            rows.append([dataset, *found, *paper2(dataset, slice(0, 2)), *costs])
    costs = [f"{name}: cost" for name in plans.TABLE2]
    return markdown(["set", *plans.TABLE2, "paper, hash", "paper, standard", *costs], rows)


def dictionary(folder: Path) -> str:
    """The right half, the cost of the chosen models, and the search that chose them."""
    cells = ordered(gather(folder, "table2"))
    families = {**plans.DICTIONARY, "ensemble of 10": plans.ENSEMBLE}
    reached, costs = [], []
    for dataset, methods in cells:
        best = {
            family: plans.chosen(dataset, sizes, folder) or "" for family, sizes in families.items()
        }
        if not any(best.values()):
            continue
        picked = {family: methods[name] for family, name in best.items() if name}
        found = [
            ", ".join(filter(None, [accuracy(picked.get(family, [])), varied(best[family])]))
            for family in families
        ]
        reached.append([dataset, *found, *paper2(dataset, slice(2, 5))])
        costs.append([dataset, *(cost(picked.get(family, [])) for family in families)])
    theirs = ["paper, hash", "paper, standard", "paper, ensemble"]
    out = [
        f"Test accuracy, and the size that was chosen:\n\n"
        f"{markdown(['set', *families, *theirs], reached)}",
        f"Parameters and passes:\n\n{markdown(['set', *families], costs)}",
    ]
    for family, sizes in plans.DICTIONARY.items():
        rows = []
        for dataset, methods in cells:
            pairs = [validation_and_test(methods[name]) for name in sizes]
            if any(pairs):
                rows.append([dataset, *pairs])
        header = ["set", *(varied(name) for name in sizes)]
        out.append(
            f"The search, {family}: accuracy on validation / test rows, the first seed\n\n"
            f"{markdown(header, rows)}"
        )
    names = {name for sizes in families.values() for name in sizes}
    devices = Counter(r["device"] for _, m in cells for n in names for r in m[n])
    counted = ", ".join(f"{count} on {device}" for device, count in devices.most_common())
    return "\n".join([*out, f"Runs of this half: {counted or 'none'}.\n"])


def lengths(folder: Path) -> str:
    """Models of one size on snippets and on whole documents; then means and shallow models."""
    cells = ordered(gather(folder, "table2"))
    deep = [name for name in plans.LENGTHS if name.startswith("deep") and "mean" not in name]
    table = _of_one_size(cells, deep, deep[1])
    more = [name for name in plans.LENGTHS if name not in deep]
    sets = {dataset: m for dataset, m in cells if any(m[name] for name in more)}
    others = [[name, *(accuracy(m[name]) for m in sets.values())] for name in more]
    return f"{table}\n{markdown(['', *sets], others)}" if sets else table


def normalisation(folder: Path) -> str:
    """With and without it, beside the shallow model."""
    names = list(plans.NORMALISATION)
    shallow = f"{next(iter(plans.ADAM))}, paper protocol"
    return _of_one_size(ordered(gather(folder, "table2")), [*names, shallow], names[2])


def _of_one_size(cells: list[tuple[str, dict]], names: list[str], needed: str) -> str:
    """A row for each set that has the needed run."""
    rows = [
        [dataset, *(accuracy(methods[name]) for name in names)]
        for dataset, methods in cells
        if methods[needed]
    ]
    return markdown(["set", *names], rows)


def varied(name: str) -> str:
    """The size in a name such as "deep hash, B = 500" or "deep standard, 10,000 n-grams"."""
    found = re.search(r"B = [\d,]+|[\d,]+ n-grams", name)
    return found[0] if found else ""


def cost(runs: list[dict]) -> str:
    """Parameters, passes and, if measured on a quiet machine, the time."""
    if not runs:
        return ""
    passes = [run["metrics"]["passes"] for run in runs]
    spread = f"{min(passes)} to {max(passes)}" if min(passes) < max(passes) else f"{passes[0]}"
    size = f"{runs[0]['metrics']['parameters'] / 1e6:.1f}M"
    devices = " and ".join(sorted({run["device"] for run in runs if run["quiet"]}))
    return f"{size}, {spread} passes{seconds(runs)}" + (f" on {devices}" if devices else "")


def validation_and_test(runs: list[dict]) -> str:
    first = [run["metrics"] for run in runs if run["seed"] == plans.SEEDS[0]]
    return " / ".join(
        f"{100 * m[key]:.2f}" for m in first for key in ("validation_accuracy", "test_accuracy")
    )
