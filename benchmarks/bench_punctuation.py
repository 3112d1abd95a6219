"""Accuracy with punctuation dropped and kept, on a held-out tenth of the training data. The default
of `punctuation` was chosen by this.

python -m benchmarks.bench_punctuation --data FOLDER      -> results/punctuation.csv
"""

import csv
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import SETS, folders
from benchmarks.machine import RESULTS, table
from hashembed.classify.classifier import TextClassifier
from hashembed.engine.labels import split

MORE_SETS = (*SETS, "sst2", "trec", "sms_spam")
SEEDS = (0, 1, 2)
HELD_OUT = 0.1


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    with table(RESULTS / "punctuation.csv", ["set", "texts", "seed", "drop", "keep"]) as add:
        for name in MORE_SETS:
            labels, texts = training_rows(Path(options.data) / name)
            for seed in SEEDS:
                found = [
                    accuracy(labels, texts, seed, punctuation, options.threads)
                    for punctuation in ("drop", "keep")
                ]
                row = [name, len(texts), seed, *(f"{100 * a:.2f}" for a in found)]
                add(row)
                print(*row, flush=True)


def training_rows(folder, fine=False):
    """Labels and texts of a set as they stand: neither lower-cased nor without punctuation.

    fine: the labels of the second column, which trec has.
    """
    path = folder / "train.csv"
    if not path.exists():  # a set in one file
        path = folder / "all.csv"
    with open(path, newline="", encoding="utf8") as file:
        rows = list(csv.reader(file))
    first = 2 if folder.name == "trec" else 1  # the second column of trec is another label
    texts = [" ".join(row[first:]).replace("\\n", " ") for row in rows]
    return np.array([row[int(fine)].strip() for row in rows]), np.array(texts, object)


def accuracy(labels, texts, seed, punctuation, threads):
    kept, held = split(len(texts), HELD_OUT, seed)
    model = TextClassifier(effort="fast", punctuation=punctuation, seed=seed, threads=threads)
    model.fit(texts[kept], labels[kept])
    return model.score(texts[held], labels[held])


if __name__ == "__main__":
    main()
