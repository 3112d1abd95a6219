"""Accuracy by learning rate and number of passes, on a held-out tenth of the training data. The
default rate was fitted to this.

python -m benchmarks.bench_rates --data FOLDER      -> results/rates.csv
"""

from dataclasses import replace
from pathlib import Path

from benchmarks.bench_classify import SETS, folders, prepare
from benchmarks.machine import RESULTS, table
from hashembed.classify.targets import encode
from hashembed.engine.defaults import TrainConfig, default_rate
from hashembed.engine.labels import split
from hashembed.engine.loop import evaluate, fit
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.sizes import choose_dim, choose_sizes
from hashembed.hashing.spec import HashSpec
from hashembed.readers import read_fasttext
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.pipeline import text_to_bags

RATES = (0.01, 0.02, 0.03, 0.045, 0.07, 0.1, 0.15, 0.22)
HELD_OUT = 0.1


def main() -> None:
    options = folders(__doc__).parse_args()
    heads = ["set", "ngrams_per_document", "classes", "passes", *RATES, "default_rate", "default"]
    with table(RESULTS / "rates.csv", heads) as add:
        for name in SETS:
            data, spec, classes = held_out(Path(options.data) / name, options.work / name)
            bags = data[0][0]
            length = len(bags.keys) / len(bags)
            for passes in (1, 2):
                default = default_rate(bags, classes, passes)
                tried = [accuracy(data, spec, classes, passes, rate) for rate in (*RATES, default)]
                row = [f"{100 * a:.2f}" for a in tried]
                row = [name, round(length), classes, passes, *row[:-1], f"{default:.3f}", row[-1]]
                add(row)
                print(*row, flush=True)


def held_out(folder, work):
    """-> bags and labels of the training rows and of the held-out tenth; sizes; classes."""
    labels, texts = read_fasttext(prepare(folder, work)["train"])
    targets, bags = encode(labels), text_to_bags(texts)
    parts = split(len(bags), HELD_OUT, 0)
    data = [(bags.take(part), targets.labels.take(part)) for part in parts]
    classes = len(targets.classes)
    sizes = choose_sizes(count_distinct(bags.keys), choose_dim(classes))
    return data, HashSpec(*sizes), classes


def accuracy(data, spec, classes, passes, rate):
    """The mean of two seeds."""
    found = []
    for seed in (0, 1):
        model = ShallowModel(replace(spec, seed=seed), choose_dim(classes), classes, seed=seed)
        fit(model, *data[0], TrainConfig(passes=passes, learning_rate=rate, seed=seed))
        found.append(evaluate(model, *data[1])["validation_accuracy"])
    return sum(found) / len(found)


if __name__ == "__main__":
    main()
