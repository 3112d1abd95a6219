"""Early stopping against the default passes, on a held-out tenth of the training data.

Patience validates on another tenth. Mean of three seeds.

python -m benchmarks.bench_patience --data FOLDER      -> results/patience.csv
"""

from pathlib import Path

import numpy as np

from benchmarks.bench_classify import SETS, folders, prepare
from benchmarks.machine import RESULTS, table
from hashembed import TextClassifier
from hashembed.engine.labels import split
from hashembed.readers import read_fasttext

HELD_OUT, PATIENCE, SEEDS = 0.1, 3, (0, 1, 2)


def main() -> None:
    options = folders(__doc__).parse_args()
    heads = ["set", "classes", "passes", "default", "passes_patience", "patience"]
    with table(RESULTS / "patience.csv", heads) as add:
        for name in (*SETS, "sst2"):
            row = [name, *compare(Path(options.data) / name, options.work / name)]
            add(row)
            print(*row, flush=True)


def compare(folder, work):
    """-> classes; passes and accuracy by default; the same with patience."""
    labels, texts = (np.array(c.to_pylist()) for c in read_fasttext(prepare(folder, work)["train"]))
    kept, held = split(len(texts), HELD_OUT, 0)
    found = []
    for settings in ({}, {"validation_fraction": HELD_OUT, "patience": PATIENCE}):
        runs = []
        for seed in SEEDS:
            clf = TextClassifier(effort="fast", **settings, seed=seed).fit(
                texts[kept], labels[kept]
            )
            runs.append((len(clf.history_.epochs), 100 * clf.score(texts[held], labels[held])))
        passes, accuracy = np.mean(runs, axis=0)
        found += [f"{passes:.1f}", f"{accuracy:.2f}"]
    return len(clf.classes_), *found


if __name__ == "__main__":
    main()
