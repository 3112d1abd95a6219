"""Accuracy with default settings on text as it is, beside peers that were tuned.

    python -m benchmarks.bench_choice --data FOLDER [--sets trec ...]    -> results/choice.csv
    python -m benchmarks.bench_choice --data FOLDER --update --tools hashembed

FOLDER holds the data sets. All tools but fastText get the text as it is (fastText gets it
lower-cased and without punctuation, which it needs). hashembed has its defaults. The others take
the setting with the best accuracy on a tenth of the training rows, then train on all of them. Test
rows are scored once. A peer that takes longer than a limit has no result. `--update` keeps the rows
of what is not measured again.
"""

import csv
import json
import random
import subprocess
from pathlib import Path

from benchmarks.bench_classify import folders, plain, run
from benchmarks.machine import RESULTS, read, table
from benchmarks.tools import TOOLS

csv.field_size_limit(1 << 30)

# name -> file of training rows, file of test rows (None: a fifth of the training rows), columns of
# the label and of the text (None: all others)
SETS = {
    "trec": ("trec/train.csv", "trec/test.csv", 0, 2),
    "trec, fine": ("trec/train.csv", "trec/test.csv", 1, 2),
    "sms_spam": ("sms_spam/all.csv", None, 0, 1),
    "sst2": ("sst2/train.csv", "sst2/test.csv", 0, 1),
    "dbpedia219": (
        "zhang_small/bolt_dbpedia219_train.tsv", "zhang_small/bolt_dbpedia219_test.tsv", 1, 0,
    ),
    "yahoo_small": ("zhang_small/bolt_yahoo_train.tsv", "zhang_small/bolt_yahoo_test.tsv", 1, 0),
    "20newsgroups": ("20newsgroups/train.csv", "20newsgroups/test.csv", 0, None),
    "ag_news_partial": ("ag_news_partial/train.csv", "ag_news_partial/test.csv", 0, None),
    "imdb": ("imdb/train.csv", "imdb/test.csv", 0, None),
    "news_category": ("news_category/train.csv", "news_category/test.csv", 0, None),
    "emotions": ("emotions/train.csv", "emotions/test.csv", 0, None),
    "langid_commonvoice": ("langid_commonvoice/train.csv", "langid_commonvoice/test.csv", 0, None),
}  # fmt: skip
TRIED = (
    "hashembed", "hashembed, fast", "fastText", "tf-idf + SVM", "tf-idf + logistic regression",
    "NB-SVM", "Vowpal Wabbit",
)  # fmt: skip
# Settings that are tried here alone.
MORE_SETTINGS = {
    "fastText": [{"lr": 0.5, "epoch": 25}],
    "Vowpal Wabbit": [{"rate": 0.25}, {"rate": 1.0}],
}
SEEDS = (0, 1, 2)  # of hashembed with defaults; the mean counts
# More take many minutes.
MOST_ROWS = {"tf-idf + SVM": 100_000, "tf-idf + logistic regression": 70_000, "NB-SVM": 70_000}
MOST_CLASSES = {"NB-SVM": 10}  # it trains a model for each class
COLUMNS = (
    "set", "classes", "texts", "tool", "setting", "accuracy", "spread", "train_seconds",
    "model_bytes", "single_per_second",
)  # fmt: skip


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--tools", nargs="*", default=TRIED)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    kept = read(RESULTS / "choice.csv") if options.update else []
    with table(RESULTS / "choice.csv", COLUMNS) as add:
        for row in kept:
            if row["set"] not in options.sets or row["tool"] not in options.tools:
                add(row)
        for name in options.sets:
            files, classes, texts = prepare(Path(options.data), name, options.work / "choice")
            for tool in options.tools:
                too_large = texts > MOST_ROWS.get(tool, texts)
                if too_large or classes > MOST_CLASSES.get(tool, classes):
                    continue
                try:
                    found = measure(tool, files["plain" if tool == "fastText" else "raw"])
                except subprocess.TimeoutExpired:
                    continue
                row = [found.get(column, "") for column in COLUMNS[4:]]
                add([name, classes, texts, tool, *row])
                print(name, tool, *row, flush=True)
    if options.update:
        in_order(RESULTS / "choice.csv")


def in_order(path: Path) -> None:
    """Sort the rows by set and tool."""
    names = list(SETS)
    rows = sorted(read(path), key=lambda r: (names.index(r["set"]), TRIED.index(r["tool"])))
    with table(path, COLUMNS) as add:
        for row in rows:
            add(row)


def prepare(data: Path, name: str, work: Path) -> tuple[dict, int, int]:
    """Files in fastText's format, as they are and plain; the number of classes and of texts."""
    train, test, label, text = SETS[name]
    rows = {"train": read_rows(data / train, label, text)}
    random.Random(0).shuffle(rows["train"])
    if test is None:
        fifth = len(rows["train"]) // 5
        rows["test"], rows["train"] = rows["train"][:fifth], rows["train"][fifth:]
    else:
        rows["test"] = read_rows(data / test, label, text)
    held = len(rows["train"]) // 10
    rows["held"], rows["most"] = rows["train"][:held], rows["train"][held:]
    number = {c: i for i, c in enumerate(sorted({c for c, _ in rows["train"] + rows["test"]}))}
    files: dict[str, dict[str, Path]] = {"raw": {}, "plain": {}}
    for kind, own in files.items():
        for part, pairs in rows.items():
            own[part] = work / f"{name}-{part}-{kind}.txt".replace(", ", "-")
            own[part].parent.mkdir(parents=True, exist_ok=True)
            with open(own[part], "w", encoding="utf8") as file:
                for c, content in pairs:
                    line = plain(content) if kind == "plain" else " ".join(content.split())
                    file.write(f"__label__{number[c]} {line}\n")
    return files, len(number), len(rows["train"])


def read_rows(path: Path, label: int, text: int | None) -> list[tuple[str, str]]:
    tabs = path.suffix == ".tsv"
    with open(path, newline="", encoding="utf8") as file:
        rows = list(csv.reader(file, delimiter="\t" if tabs else ","))[1 if tabs else 0 :]
    pairs = []
    for row in rows:
        rest = [cell for i, cell in enumerate(row) if i != label] if text is None else [row[text]]
        pairs.append((row[label].strip(), " ".join(rest).replace("\\n", "\n")))
    return pairs


def measure(tool: str, files: dict[str, Path]) -> dict:
    settings = [*TOOLS[tool].settings, *MORE_SETTINGS.get(tool, [])]
    best = settings[0]
    if len(settings) > 1:
        tried = [run(tool, files["most"], files["held"], s)["accuracy"] for s in settings]
        best = settings[max(range(len(settings)), key=tried.__getitem__)]
    seeds = [{**best, "seed": seed} for seed in SEEDS] if tool == "hashembed" else [best]
    runs = [run(tool, files["train"], files["test"], s, "--full") for s in seeds]
    accuracies = [r["accuracy"] for r in runs]
    mean = sum(accuracies) / len(runs)
    spread = (sum((a - mean) ** 2 for a in accuracies) / max(len(runs) - 1, 1)) ** 0.5
    fastest = min(runs, key=lambda r: r["train_seconds"])
    known = {"setting": json.dumps(best), "accuracy": mean, "spread": spread if runs[1:] else ""}
    return {**fastest, **known}


if __name__ == "__main__":
    main()
