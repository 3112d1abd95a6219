"""Few labels: accuracy by the number of texts a class, beside tuned peers.

    python -m benchmarks.bench_few --data FOLDER [--sets trec ...]    -> results/few.csv, few.svg

Each point is the mean over three samples of the training rows, drawn by class. hashembed has its
defaults. The peers take the setting with the best accuracy in a cross-validation of three folds on
the sample. Test rows (5,000 of them at most) are scored once for each sample.
"""

import random
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.bench_choice import SETS, read_rows
from benchmarks.bench_classify import folders, plain
from benchmarks.machine import RESULTS, table
from benchmarks.tools import TOOLS

CHOSEN = ("trec", "sst2", "emotions", "ag_news_partial", "yahoo_small", "20newsgroups")
COUNTS = (8, 16, 32, 64, 128, 256)  # texts a class
TRIED = ("hashembed", "fastText", "tf-idf + SVM", "tf-idf + logistic regression")
SAMPLES, FOLDS, MOST_TEST = 3, 3, 5_000
BUCKETS = 200_000  # for fastText: enough for few texts, and quick to make
SETTINGS = {
    "fastText": [{"lr": r, "epoch": n, "bucket": BUCKETS} for r in (0.25, 1.0) for n in (10, 50)]
}
COLUMNS = ("set", "classes", "tool", "texts_a_class", "accuracy", "spread")

Rows = list[tuple[str, str]]


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=CHOSEN)
    options = parser.parse_args()
    with table(RESULTS / "few.csv", COLUMNS) as add:
        for name in options.sets:
            train, test = rows_of(Path(options.data), name)
            for count in COUNTS:
                samples = [draw(train, count, seed) for seed in range(SAMPLES)]
                if samples[0] is None:
                    continue
                for tool in TRIED:
                    found = [accuracy(tool, sample, test) for sample in samples]
                    mean = sum(found) / SAMPLES
                    spread = (sum((a - mean) ** 2 for a in found) / (SAMPLES - 1)) ** 0.5
                    classes = len({c for c, _ in train})
                    add([name, classes, tool, count, f"{mean:.4f}", f"{spread:.4f}"])
                    print(name, tool, count, f"{mean:.4f}", flush=True)
    plot(RESULTS / "few.csv", RESULTS / "few.svg")


def rows_of(data: Path, name: str) -> tuple[Rows, Rows]:
    train, test, label, text = SETS[name]
    rows = read_rows(data / train, label, text)
    held = read_rows(data / str(test), label, text)
    random.Random(0).shuffle(held)
    return rows, held[:MOST_TEST]


def draw(rows: Rows, count: int, seed: int) -> Rows | None:
    """So many rows of every class; None if the rarest has fewer than half as many."""
    by_class = defaultdict(list)
    for row in rows:
        by_class[row[0]].append(row)
    if min(map(len, by_class.values())) < count / 2:
        return None
    rng = random.Random(seed)
    found = [row for own in by_class.values() for row in rng.sample(own, min(count, len(own)))]
    rng.shuffle(found)
    return found


def accuracy(tool: str, train: Rows, test: Rows) -> float:
    settings = SETTINGS.get(tool, list(TOOLS[tool].settings))
    best = settings[0]
    if len(settings) > 1:
        best = max(settings, key=lambda setting: validated(tool, train, setting))
    return share_right(tool, train, test, best)


def validated(tool: str, rows: Rows, setting: dict) -> float:
    folds = [rows[i::FOLDS] for i in range(FOLDS)]
    right = 0.0
    for i, held in enumerate(folds):
        rest = [row for j, fold in enumerate(folds) if j != i for row in fold]
        right += share_right(tool, rest, held, setting) * len(held)
    return right / len(rows)


def share_right(tool: str, train: Rows, test: Rows, setting: dict) -> float:
    made = TOOLS[tool]()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf8") as file:
        for label, text in train:
            file.write(f"__label__{label.replace(' ', '_')} {shown(tool, text)}\n")
        file.flush()
        made.train(file.name, setting)
    said = made.predict([shown(tool, text) for _, text in test])
    return sum(a == b.replace(" ", "_") for a, (b, _) in zip(said, test, strict=True)) / len(test)


def shown(tool: str, text: str) -> str:
    """fastText needs text in lower case, without punctuation."""
    return plain(text) if tool == "fastText" else " ".join(text.split())


def plot(source: Path, target: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    from benchmarks.machine import read

    matplotlib.rcParams["svg.hashsalt"] = "hashembed"
    rows = read(source)
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure, grid = pyplot.subplots(2, -(-len(names) // 2), figsize=(10, 6), layout="constrained")
    for axes, name in zip(grid.flat, names, strict=False):
        for i, tool in enumerate(TRIED):
            own = [row for row in rows if (row["set"], row["tool"]) == (name, tool)]
            x = [int(row["texts_a_class"]) for row in own]
            y = [100 * float(row["accuracy"]) for row in own]
            axes.plot(x, y, "o-", color=f"C{i}", label=tool, lw=2.5 if i == 0 else 1, ms=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(x, [str(n) for n in x])
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.3)
    figure.supxlabel("training texts a class")
    figure.supylabel("test accuracy, %")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(TRIED))
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
