"""What `class_weight` does for rare classes, on a held-out fifth of the training data:
accuracy (several labels: micro F1), macro recall and macro F1, without weights, with the square
roots of balanced ones, and with balanced ones.

python -m benchmarks.bench_imbalance --data FOLDER      -> results/imbalance.csv
"""

import csv
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import folders
from benchmarks.bench_punctuation import SEEDS, training_rows
from benchmarks.machine import RESULTS, table
from hashembed.classify.classifier import TextClassifier
from hashembed.classify.targets import encode
from hashembed.engine.labels import split

SETS = (
    "news_category",
    "emotions",
    "trec, fine classes",
    "sms_spam",
    "renttherunway, fit",
    "renttherunway, rating",
    "renttherunway, several labels",
)
SEVERAL = ("fit", "rating", "rented for", "category", "body type")
LEAST = 20  # texts a label must have in the set with several labels
HELD_OUT = 0.2


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    heads = ["set", "texts", "classes", "largest / smallest", "weights", "seed"]
    measures = ["accuracy or micro F1", "macro recall", "macro F1"]
    with table(RESULTS / "imbalance.csv", [*heads, *measures]) as add:
        for name in SETS:
            labels, texts = labelled(Path(options.data), name)
            counts = encode(labels).labels.counts(len(encode(labels).classes))
            shape = [len(texts), len(counts), round(counts.max() / counts.min())]
            for seed in SEEDS:
                for weights in (None, "sqrt", "balanced"):
                    found = measure(labels, texts, weights, seed, options.threads)
                    row = [name, *shape, weights, seed, *(f"{100 * x:.2f}" for x in found)]
                    add(row)
                    print(*row, flush=True)


def labelled(data, name):
    """Labels and texts of a set; renttherunway has labels in one column or in several."""
    folder, _, wish = name.partition(", ")
    if folder != "renttherunway":
        return training_rows(data / folder, fine=bool(wish))
    with open(data / folder / "rtr.csv", newline="", encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    if wish != "several labels":
        rows = [row for row in rows if row[wish]]
    texts = np.array([f"{row['review_summary']} {row['review_text']}" for row in rows], object)
    if wish != "several labels":
        return np.array([row[wish] for row in rows]), texts
    groups = [[f"{name}: {row[name]}" for name in SEVERAL if row[name]] for row in rows]
    counts = Counter(label for group in groups for label in group)
    labels = np.empty(len(groups), object)
    labels[:] = [[label for label in group if counts[label] >= LEAST] for group in groups]
    return labels, texts


def measure(labels, texts, weights, seed, threads):
    kept, held = split(len(texts), HELD_OUT, seed)
    model = TextClassifier(effort="fast", class_weight=weights, seed=seed, threads=threads)
    model.fit(texts[kept], labels[kept].tolist())
    truth, found = (
        encode(given, model.classes_).labels.matrix(len(model.classes_))
        for given in (labels[held].tolist(), model.predict(texts[held]).tolist())
    )
    right, true, said = (truth & found).sum(0), truth.sum(0), found.sum(0)
    present = true > 0
    recall = (right / np.maximum(true, 1))[present].mean()
    f1 = (2 * right / np.maximum(true + said, 1))[present].mean()
    return 2 * right.sum() / (true.sum() + said.sum()), recall, f1


if __name__ == "__main__":
    main()
