"""Test accuracy by learning rate and number of passes: what the default rate is fitted to.

python -m benchmarks.bench_rates --data FOLDER      -> results/rates.csv
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import RESULTS, SETS, machine, prepare, versions
from hashembed.hashing import HashSpec
from hashembed.labels import Labels
from hashembed.readers import read_fasttext
from hashembed.shallow import ShallowModel
from hashembed.text import text_to_bags
from hashembed.training import TrainConfig, default_rate, evaluate, fit

RATES = (0.02, 0.04, 0.08, 0.16, 0.32)
SPEC, DIM = HashSpec(1_000_000, 100_000), 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("HASHEMBED_DATA"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/hashembed-bench"))
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "rates.csv", "w", newline="") as file:
        file.write(f"# {time.strftime('%Y-%m-%d')}, {machine()}\n# {versions()}\n")
        file.write(f"# K = {SPEC.num_embeddings}, B = {SPEC.num_buckets}, k = 2, d = {DIM}\n")
        writer = csv.writer(file)
        writer.writerow(["set", "ngrams_per_document", "passes", *RATES, "default_rate", "default"])
        for name in SETS:
            files = prepare(Path(options.data) / name, options.work / name)
            (train, labels), (test, truth) = load(files["train"]), load(files["test"])
            length = len(train.keys) / len(train)
            for passes in (1, 2, 3):
                default = default_rate(train, passes)
                tried = [accuracy(train, labels, test, truth, passes, r) for r in (*RATES, default)]
                row = [f"{100 * a:.2f}" for a in tried]
                row = [name, round(length), passes, *row[:-1], f"{default:.3f}", row[-1]]
                writer.writerow(row)
                print(*row, flush=True)


def load(path):
    labels, texts = read_fasttext(path)
    names = np.unique(labels.to_pylist())
    return text_to_bags(texts), Labels.single(np.searchsorted(names, labels.to_pylist()))


def accuracy(train, labels, test, truth, passes, rate):
    model = ShallowModel(SPEC, DIM, int(labels.labels.max()) + 1)
    fit(model, train, labels, TrainConfig(passes=passes, learning_rate=rate))
    return evaluate(model, test, truth)["validation_accuracy"]


if __name__ == "__main__":
    main()
