"""Tables 1 to 3 of the paper: our numbers beside those that it prints."""

from pathlib import Path

from experiments.data.zhang import SETS
from experiments.plans import paper
from experiments.running.store import records
from experiments.tables import costs
from experiments.tables.cells import accuracy, gather, markdown, ordered

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
# Our sets that have the test rows of one of theirs.
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
    """The paper's numbers, if the test rows are the same."""
    numbers = PAPER2.get(SAME_TEST_ROWS.get(dataset, dataset), ())[columns]
    more = " (more training rows)" if dataset in SAME_TEST_ROWS else ""
    blank = [""] * len(range(5)[columns])
    return [f"{number:.1f}{more}" for number in numbers] or blank


def table2(folder: Path) -> str:
    cells = gather(folder, "table2")
    out = []
    for protocol in ("default", "paper"):
        names = [f"{name}, {protocol} protocol" for name in paper.TABLE2]
        rows = []
        for dataset, methods in ordered(cells):
            if not any(methods[name] for name in names):
                continue
            runs = [methods[name] for name in names]
            cells_of = [accuracy(found) for found in runs]
            paid = costs.parameters(runs), costs.seconds(runs)
            rows.append([dataset, *cells_of, *paid, *paper2(dataset, slice(0, 2))])
        header = ["set", *paper.TABLE2, *COSTS, "paper, hash", "paper, standard"]
        out.append(f"The {protocol} protocol:\n\n{markdown(header, rows)}")
    return "\n".join(out)


def table3(folder: Path) -> str:
    ours = gather(folder, "table2")
    rows = []
    for dataset, methods in ordered(gather(folder, "table3")):
        found = [accuracy(methods[name], "") for name in paper.TABLE3]
        runs = [*(methods[name] for name in paper.TABLE3), ours[dataset][OURS]]
        cells = [costs.parameters(runs), costs.seconds(runs)]
        theirs = PAPER3.get(SAME_TEST_ROWS.get(dataset, dataset), ())
        printed = ", ".join(f"{value:.1f}" for value in theirs)
        rows.append([dataset, *found, accuracy(ours[dataset][OURS]), *cells, printed])
    header = ["set", *paper.TABLE3, "hash 40M", *COSTS, "paper: BoW, n-grams, TFIDF, fastText"]
    return markdown(header, rows)
