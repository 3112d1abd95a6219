"""Small models: accuracy against bytes, beside fastText's quantised models.

    python -m benchmarks.bench_compress --data FOLDER [--sets trec ...] [--update]
                                                     -> results/compress.csv, compress.svg

Both tools train on all training rows, once. hashembed has its defaults and compresses the model to
each size with the training rows; a tenth of them decides whether tuning helped. fastText has the
learning rate and epochs that bench_choice found on training rows, and `quantize` with qnorm and the
number of n-grams (`cutoff`) that fits each size, with and without retraining. Of these two the
better one *on test rows* counts, which favours fastText. Accuracy is that on test rows.
"""

import csv
import json
import tempfile
from pathlib import Path

from benchmarks.bench_choice import SETS, prepare
from benchmarks.bench_classify import folders
from benchmarks.machine import RESULTS, read, table
from benchmarks.tools import THREADS, FastText, read_lines

SIZES = (30_000, 100_000, 300_000, 1_000_000)
COLUMNS = ("set", "classes", "tool", "size", "setting", "bytes", "accuracy")
ENTRY = 22  # bytes of an n-gram in fastText's file, about
TRIES = 3  # to find the number of n-grams for a size


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--tools", nargs="*", default=list(TOOLS))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "compress.csv"
    kept = read(path) if options.update else []
    with table(path, COLUMNS) as add:
        for row in kept:
            if row["set"] not in options.sets or row["tool"] not in options.tools:
                add(row)
        for name in options.sets:
            files, classes, _ = prepare(Path(options.data), name, options.work / "choice")
            for tool in options.tools:
                for found in TOOLS[tool](name, files):
                    add([name, classes, tool, *found])
                    print(name, tool, *found, flush=True)
    plot(path, RESULTS / "compress.svg")


def hashembed_sizes(name: str, files: dict):
    """Size asked for (empty for the full model), setting, bytes, accuracy."""
    from hashembed import TextClassifier
    from hashembed.readers import read_fasttext

    labels, texts = read_fasttext(files["raw"]["train"])
    truth, test = read_fasttext(files["raw"]["test"])
    full = TextClassifier(threads=THREADS).fit(texts, labels)
    with tempfile.NamedTemporaryFile() as file:
        full.save(file.name)
        yield "", "", Path(file.name).stat().st_size, f"{full.score(test, truth):.4f}"
        for size in SIZES:
            try:
                small = full.compress(texts, labels, size=size)
            except ValueError:  # labels and settings alone take more
                continue
            small.save(file.name)
            loaded = TextClassifier.load(file.name, threads=THREADS)
            score = loaded.score(test, truth)
            yield size, "", Path(file.name).stat().st_size, f"{score:.4f}"
        small = full.compress(size=SIZES[-1])
        small.save(file.name)
        score = small.score(test, truth)
        yield SIZES[-1], "without texts", Path(file.name).stat().st_size, f"{score:.4f}"


def fasttext_sizes(name: str, files: dict):
    import fasttext

    truth, test = read_lines(files["plain"]["test"])
    train = str(files["plain"]["train"])
    tool, setting = FastText(), chosen_setting(name)
    tool.train(train, setting)

    def accuracy() -> str:
        said = tool.predict(test)
        return f"{sum(a == b for a, b in zip(said, truth, strict=True)) / len(truth):.4f}"

    with tempfile.TemporaryDirectory() as folder:
        whole, small = str(Path(folder) / "whole.bin"), Path(folder) / "small.ftz"
        tool.model.save_model(whole)
        yield "", json.dumps(setting), Path(whole).stat().st_size, accuracy()

        def quantized(cutoff: int, retrain: bool) -> int:
            tool.model = fasttext.load_model(whole)
            tool.model.quantize(
                input=train, cutoff=cutoff, retrain=retrain, qnorm=True, thread=THREADS, verbose=0
            )
            tool.model.save_model(str(small))
            return small.stat().st_size

        for size in SIZES:
            cutoff = max(size // ENTRY, 300)  # fastText needs more than 256 rows
            for _ in range(TRIES):
                found = quantized(cutoff, False)
                if 0.93 * size <= found <= size:
                    break
                cutoff = max(int(cutoff * 0.97 * size / found), 300)
            for retrain in (False, True):
                found = quantized(cutoff, retrain)
                how = json.dumps({**setting, "cutoff": cutoff, "retrain": retrain})
                yield size, how, found, accuracy()


def chosen_setting(name: str) -> dict:
    """What bench_choice found for fastText on training rows."""
    rows = csv.DictReader((RESULTS / "choice.csv").open())
    found = [row["setting"] for row in rows if (row["set"], row["tool"]) == (name, "fastText")]
    return json.loads(found[0]) if found else {"lr": 0.5}


def best(rows: list[dict], name: str, tool: str, size: str) -> dict | None:
    """The row of a tool with the best accuracy for a size; models without texts do not count."""
    own = [row for row in rows if (row["set"], row["tool"], row["size"]) == (name, tool, size)]
    own = [row for row in own if row["setting"] != "without texts"]
    return max(own, key=lambda row: float(row["accuracy"]), default=None)


def plot(source: Path, target: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "hashembed"
    rows = read(source)
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure, grid = pyplot.subplots(
        -(-len(names) // 4), 4, figsize=(11, 2.6 * -(-len(names) // 4)), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for axes, name in zip(grid.flat, names, strict=False):
        for i, tool in enumerate(TOOLS):
            found = [best(rows, name, tool, str(size)) for size in SIZES]
            points = [(int(r["bytes"]), 100 * float(r["accuracy"])) for r in found if r]
            style = "o-" if i == 0 else "s--"
            axes.plot(*zip(*points, strict=True), style, color=f"C{i}", label=tool, ms=4)
            if whole := best(rows, name, tool, ""):
                level = 100 * float(whole["accuracy"])
                axes.axhline(level, color=f"C{i}", lw=0.8, ls=":")
        axes.set_xscale("log")
        axes.set_title(name, fontsize=9)
        axes.grid(alpha=0.3)
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    figure.supxlabel("bytes of the model file (dotted: the full model)")
    figure.supylabel("test accuracy, %")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.savefig(target, metadata={"Date": None})


TOOLS = {"hashembed": hashembed_sizes, "fastText": fasttext_sizes}

if __name__ == "__main__":
    main()
