"""Tables and plots from the files of runs.

Tables go into README.md between the marks <!-- NAME --> and <!-- end -->.
"""

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import (
    best_report,
    collisions_table,
    costs,
    curves,
    datasets,
    deep_tables,
    follow_ups,
    plans,
)
from experiments.phrases_table import plot4, table4
from experiments.runs import RUNS, records
from experiments.tables import accuracy, can_plot, drawing, gather, grid, markdown, ordered
from experiments.zhang import SETS

AT_HAND = (*datasets.SOURCES, *datasets.SENTENCES)

README = Path(__file__).parent / "README.md"

# Table 2 of the paper: hash, standard without a dictionary; hash, standard, ensemble with one.
PAPER2 = {
    "ag_news": (92.4, 92.0, 91.5, 91.7, 92.0),
    "amazon_full": (60.0, 58.3, 59.4, 58.5, 60.5),
    "dbpedia": (98.5, 98.6, 98.7, 98.6, 98.8),
    "yahoo": (72.3, 72.3, 71.3, 65.8, 72.9),
    "yelp_full": (63.8, 62.6, 62.6, 61.4, 62.9),
    "amazon_polarity": (94.4, 94.2, 94.7, 93.6, 94.7),
    "yelp_polarity": (95.9, 95.5, 95.8, 95.0, 95.7),
}
# Table 3: BoW, n-grams, n-grams TFIDF, fastText.
PAPER3 = {
    "ag_news": (88.8, 92.0, 92.4, 92.5),
    "dbpedia": (96.6, 98.6, 98.7, 98.6),
    "yelp_polarity": (92.2, 95.6, 95.4, 95.7),
    "yelp_full": (58.0, 56.3, 54.8, 63.9),
    "yahoo": (68.9, 68.5, 68.5, 72.3),
    "amazon_full": (54.6, 54.3, 52.4, 60.2),
    "amazon_polarity": (90.4, 92.0, 91.5, 94.6),
}
# Ours with the test rows of one of theirs.
SAME_TEST_ROWS = {"ag_news_partial": "ag_news"}
OURS = "hash 40M, default protocol"
COSTS = ("parameters, M", "seconds")  # of the methods in the columns before, in their order


def table1(folder: Path) -> str:
    """The sets as they were read, and the paper's table corrected."""
    rows = []
    for run in records(folder, "table1"):
        m = run["metrics"]
        count = [f"{m[key]:,}" for key in ("train_rows", "test_rows", "classes")]
        classes = f"{m['smallest_class']:,} to {m['largest_class']:,}"
        ngrams = [f"{m['ngrams']:,}", f"{m['distinct_ngrams']:,}"]
        rows.append([run["dataset"], *count, classes, *ngrams, run["note"]])
    header = [
        "set",
        "train",
        "test",
        "classes",
        "rows of a class",
        "1- and 2-grams",
        "distinct, about",
        "",
    ]
    zhang = []
    for name, spec in SETS.items():
        real = [f"{n:,}" for n in spec.rows]
        printed = f"{spec.printed}k" + (" (wrong)" if spec.rows[0] != 1000 * spec.printed else "")
        zhang.append([name, *real, printed, str(spec.classes)])
    return (
        markdown(header, rows)
        + "\nThe seven sets of Zhang et al.:\n\n"
        + markdown(["set", "train", "test", "train, as printed in the paper", "classes"], zhang)
    )


def paper2(dataset: str, columns: slice) -> list[str]:
    """What the paper has, where the test rows are the same."""
    numbers = PAPER2.get(SAME_TEST_ROWS.get(dataset, dataset), ())[columns]
    more = " (more training rows)" if dataset in SAME_TEST_ROWS else ""
    blank = [""] * len(range(5)[columns])
    return [f"{number:.1f}{more}" for number in numbers] or blank


def table2(folder: Path) -> str:
    cells = gather(folder, "table2")
    out = []
    for protocol in ("default", "paper"):
        names = [f"{name}, {protocol} protocol" for name in plans.TABLE2]
        rows = []
        for dataset, methods in ordered(cells):
            if not any(methods[name] for name in names):
                continue
            runs = [methods[name] for name in names]
            cells_of = [accuracy(found) for found in runs]
            paid = costs.parameters(runs), costs.seconds(runs)
            rows.append([dataset, *cells_of, *paid, *paper2(dataset, slice(0, 2))])
        header = ["set", *plans.TABLE2, *COSTS, "paper, hash", "paper, standard"]
        out.append(f"The {protocol} protocol:\n\n{markdown(header, rows)}")
    return "\n".join(out)


def table3(folder: Path) -> str:
    ours = gather(folder, "table2")
    rows = []
    for dataset, methods in ordered(gather(folder, "table3")):
        found = [accuracy(methods[name], "") for name in plans.TABLE3]
        runs = [*(methods[name] for name in plans.TABLE3), ours[dataset][OURS]]
        cells = [costs.parameters(runs), costs.seconds(runs)]
        theirs = PAPER3.get(SAME_TEST_ROWS.get(dataset, dataset), ())
        paper = ", ".join(f"{value:.1f}" for value in theirs)
        rows.append([dataset, *found, accuracy(ours[dataset][OURS]), *cells, paper])
    header = ["set", *plans.TABLE3, "hash 40M", *COSTS, "paper: BoW, n-grams, TFIDF, fastText"]
    return markdown(header, rows)


def embedding_parameters(runs: list[dict]) -> str:
    """In thousands, where runs tell them apart from those of the layers above."""
    counts = {run["metrics"].get("embedding_parameters") for run in runs} - {None}
    return "".join(f", {count / 1e3:,.0f}k" for count in counts)


def reached(runs: list[dict]) -> str:
    return accuracy(runs) + embedding_parameters(runs)


# What the tables of ablations show, where it is not accuracy.
CELLS: dict[str, Callable[[list[dict]], str]] = {"time": lambda runs: costs.seconds([runs], 2)}


def ablation(name: str) -> Callable[[Path], str]:
    cell = CELLS.get(name, reached)

    def table(folder: Path) -> str:
        cells = dict(ordered(gather(folder, name)))
        rows = []
        for label in plans.ABLATIONS[name]:
            runs = [cells[dataset][label] for dataset in cells]
            found = [cell(of) for of in runs]
            if any(found):
                rows.append([label, *found])
        return markdown(["", *cells], rows) + (f"\n![{name}](figures/{name}.png)\n" if rows else "")

    return table


SECTIONS: dict[str, Callable[[Path], str]] = {
    "table1": table1,
    "table2": table2,
    "table2 adam": lambda folder: deep_tables.adam(folder, paper2),
    "table2 dictionary": lambda folder: deep_tables.dictionary(folder, paper2),
    "table2 lengths": deep_tables.lengths,
    "table2 normalisation": deep_tables.normalisation,
    "table3": table3,
    "table4": table4,
    "collisions": collisions_table.table,
    **{name: ablation(name) for name in plans.ABLATIONS},
    "regularising": curves.table,
    "pruning": follow_ups.pruning,
    "classes": follow_ups.classes,
    "best": best_report.table,
}
# Plots that are not those of all ablations.
PLOTS: dict[str, Callable[[Path, Path], None]] = {
    "regularising": curves.plot,
    "pruning": follow_ups.plot_pruning,
    "classes": follow_ups.plot_classes,
}


MEASURES = {"time": ("train_seconds", 1, "seconds of training")}  # where it is not accuracy


def plot(folder: Path, name: str, figures: Path) -> None:
    """Accuracy, or time, by setting, a panel for each set, with the deviation over seeds."""
    key, scale, label = MEASURES.get(name, ("test_accuracy", 100, "test accuracy, %"))
    cells = ordered(gather(folder, name))
    if not cells:
        return
    labels = [x for x in plans.ABLATIONS[name] if any(methods[x] for _, methods in cells)]
    shape, (width, height) = grid(len(cells), 2.2, 0.6 + 0.28 * len(labels))
    path = figures / f"{name}.png"
    with drawing(path, shape, (width + 2, height), sharey=True) as (figure, panels):
        for axes, (dataset, methods) in zip(panels.flat, cells, strict=False):
            runs = [[scale * run["metrics"][key] for run in methods[x]] for x in labels]
            means = [statistics.mean(values) if values else float("nan") for values in runs]
            spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in runs]
            axes.errorbar(means, range(len(labels)), xerr=spread, fmt="o", capsize=3)
            axes.set_title(dataset, fontsize="medium")
            axes.grid(alpha=0.3)
        for axes in panels.flat[len(cells) :]:
            axes.set_axis_off()
        panels[0][0].set_yticks(range(len(labels)), labels)
        panels[0][0].invert_yaxis()
        figure.supxlabel(label)


# What the parts of table 2 fill, where it is not the first of its tables.
OF_PARTS = {
    "adam": "table2 adam",
    "dictionary": "table2 dictionary",
    "small-start": "table2 dictionary",
    "ensemble": "table2 dictionary",
    "lengths": "table2 lengths",
    "normalisation": "table2 normalisation",
}


def sections(what: str, parts: Sequence[str]) -> list[str]:
    """The tables that an experiment fills."""
    if what == "table2":
        return list(dict.fromkeys(OF_PARTS.get(part, what) for part in parts))
    return [what] if what in SECTIONS else []


def excerpt(section: str, sets: Sequence[str], folder: Path) -> str:
    """A table without the rows of other sets, and without pictures."""
    lines, by_sets = [], False
    for line in SECTIONS[section](folder).splitlines():
        first = line.split(" | ")[0].removeprefix("| ")
        if line.startswith("|") and lines[-1:] in ([], [""]):  # a header
            by_sets = first == "set"
        elif by_sets and first in AT_HAND and first not in sets:
            continue
        if not line.startswith("!["):
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def write(folder: Path = RUNS, template: Path = README) -> None:
    """All tables that the template has marks for, and all plots: beside it, or beside the runs."""
    readme = template if folder == RUNS else folder / "README.md"
    figures = readme.parent / "figures"
    text = template.read_text(encoding="utf8")
    for name, section in SECTIONS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        made = section(folder)
        text = re.sub(pattern, lambda m, made=made: m[1] + made + m[2], text, flags=re.DOTALL)
    readme.parent.mkdir(parents=True, exist_ok=True)
    readme.write_text(text, encoding="utf8")
    if can_plot():
        best_report.plot(folder, figures / "best.png")
        for name in plans.ABLATIONS:
            if name in PLOTS:
                PLOTS[name](folder, figures / f"{name}.png")
            else:
                plot(folder, name, figures)
        plot4(folder, figures)
        collisions_table.plot(folder, figures / "collisions.png")
    else:
        print('no plots without matplotlib: pip install "hashembed[plot]"')
