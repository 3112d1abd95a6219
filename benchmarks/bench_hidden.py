"""Hidden layers by number of passes, with and without batch normalisation, on a tenth of
held-out training data. `TextClassifier` has no hidden layers because of this.

python -m benchmarks.bench_hidden --data FOLDER      -> results/hidden.csv
"""

from pathlib import Path

from benchmarks.bench_classify import SETS, folders
from benchmarks.bench_rates import accuracy as shallow_accuracy
from benchmarks.bench_rates import held_out
from benchmarks.machine import RESULTS, table
from hashembed.engine.defaults import TrainConfig, default_batch, default_rate
from hashembed.engine.loop import evaluate, fit
from hashembed.hashing.sizes import choose_dim
from hashembed.nn.engine.model import DeepModel

LAYERS = (100,)
PASSES = (1, 2, 3, 5)
RATE = 0.003  # of Adam; it falls to zero


def main() -> None:
    options = folders(__doc__).parse_args()
    heads = [f"{p} pass{'es' * (p > 1)}" for p in PASSES]
    normal = [f"{head}, normalised" for head in heads]
    columns = ["set", "texts", "no hidden layer", *heads, *normal]
    with table(RESULTS / "hidden.csv", columns) as add:
        for name in SETS:
            data, spec, classes = held_out(Path(options.data) / name, options.work / name)
            texts = len(data[0][0])
            rate = default_rate(data[0][0], classes)
            found = [shallow_accuracy(data, spec, classes, 1, rate)]
            for batch_norm in (False, True):
                found += [accuracy(data, spec, classes, passes, batch_norm) for passes in PASSES]
            row = [name, texts, *(f"{100 * a:.2f}" for a in found)]
            add(row)
            print(*row, flush=True)


def accuracy(data, spec, classes, passes, batch_norm):
    model = DeepModel(spec, choose_dim(classes), classes, LAYERS, batch_norm=batch_norm)
    batch_size = default_batch(data[0][0])
    config = TrainConfig(passes=passes, learning_rate=RATE, decay=True, batch_size=batch_size)
    fit(model, *data[0], config)
    return evaluate(model, *data[1])["validation_accuracy"]


if __name__ == "__main__":
    main()
