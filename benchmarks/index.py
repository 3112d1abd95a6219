"""The index of all benchmarks: what each measures, its command, its result file, its headline.

python -m benchmarks.index      -> README.md, from the files in results
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.machine import COLUMNS, RESULTS, read

PAGE = Path(__file__).parent / "README.md"
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Benchmark:
    """`headline` makes one sentence of the first result file."""

    measures: str
    command: str
    results: tuple[str, ...]
    headline: Callable[[Path], str]

    @property
    def recorded(self) -> list[str]:
        """The result files that are there."""
        return [name for name in self.results if (RESULTS / name).exists()]

    def row(self) -> str:
        if not self.recorded:
            cells = (
                self.measures,
                f"`python -m benchmarks.{self.command}`",
                "",
                "",
                "not measured yet",
            )
            return f"| {' | '.join(cells)} |"
        files = ", ".join(f"[{name}](results/{name})" for name in self.results)
        said = self.headline(RESULTS / self.results[0])
        command = f"`python -m benchmarks.{self.command}`"
        cells = self.measures, command, files, machine_of(RESULTS / self.results[0]), said
        return f"| {' | '.join(cells)} |"


def machine_of(path: Path) -> str:
    """As the result file has it."""
    if path.suffix != ".csv":
        found = re.search(r"\d+ cores of .*", path.read_text())
        return found[0] if found else ""
    row = read(path)[0]
    return row["gpu"] or f"{row['cores']} cores of {row['cpu']}"


def span(values: list[float], form: str = ".1f") -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def by_set(rows: Rows, *columns: str) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(", ".join(row[column] for column in columns or ("set",)), []).append(row)
    return found


# --- on a CPU -----------------------------------------------------------------------------------


def compress(path: Path) -> str:
    from benchmarks.bench_compress import SIZES, best

    rows = read(path)
    names = list(dict.fromkeys(row["set"] for row in rows))
    gains, losses = [], []
    for name in names:
        full = best(rows, name, "hashembed", "")
        for size in map(str, SIZES):
            ours, peer = (best(rows, name, tool, size) for tool in ("hashembed", "fastText"))
            if ours and peer:
                gains.append(100 * (float(ours["accuracy"]) - float(peer["accuracy"])))
            if ours and full and size == str(SIZES[-1]):
                losses.append(100 * (float(full["accuracy"]) - float(ours["accuracy"])))
    ahead = sum(gain > 0 for gain in gains)
    return (
        f"ahead of fastText at {ahead} of {len(gains)} points, by {span(gains)}; 1 MB costs "
        f"{span(losses)} points"
    )


def compress_parts(path: Path) -> str:
    rows = read(path)
    lost = [
        100 * (float(row["full"]) - float(row["accuracy"]))
        for row in rows
        if row["change"] == "as it is"
    ]
    return f"100 kB cost {span(lost)} points of accuracy"


def few(path: Path) -> str:
    best: dict[tuple[str, str], float] = {}
    for row in read(path):
        kind = "ours" if row["tool"] == "hashembed" else "peers"
        at = (f"{row['set']} {row['texts_a_class']}", kind)
        best[at] = max(best.get(at, 0.0), 100 * float(row["accuracy"]))
    gains = [best[at, "ours"] - best[at, "peers"] for at, kind in best if kind == "ours"]
    ahead = sum(gain > 0 for gain in gains)
    return (
        f"more accurate than the best of three peers at {ahead} of {len(gains)} points, by "
        f"{span(gains, '+.1f')}"
    )


def few_vectors(path: Path) -> str:
    at = {(row["set"], row["start"]): row for row in read(path) if row["texts_a_class"] == "32"}
    names = dict.fromkeys(name for name, start in at if start == "unlabelled")
    gains = [
        100 * (float(at[n, "unlabelled"]["accuracy"]) - float(at[n, "none"]["accuracy"]))
        for n in names
    ]
    mean = sum(gains) / len(gains)
    return (
        f"with 32 texts a class, {mean:+.1f} points of accuracy by unlabelled text on average over "
        f"{len(gains)} sets, from {span(gains, '+.1f')}"
    )


def vectors(path: Path) -> str:
    rows = [row for row in read(path) if row["stored"] in ("", "8 bits")]
    by = {(row["tool"], row["passes"]): row for row in rows}
    parts = []
    for passes in ("1", "5"):
        ours, theirs = by["hashembed", passes], by["fastText", passes]
        times = float(theirs["seconds"]) / float(ours["seconds"])
        parts.append(
            f"{passes} pass{'es' if passes != '1' else ''}: mean correlation "
            f"{float(ours['mean']):.1f}, fastText {float(theirs['mean']):.1f}, "
            f"{times:.1f} times as fast"
        )
    sizes = [float(by[tool, "5"]["bytes"]) for tool in ("hashembed", "fastText")]
    return f"{'; '.join(parts)}; file a {sizes[1] / sizes[0]:.0f}th of fastText's"


def vectors_settings(path: Path) -> str:
    rows = read(path)
    means = [float(row["mean"]) for row in rows if row["settings"] == "default"]
    return f"defaults: mean correlation {mean(means):.1f} over {len(means)} seeds ({span(means)})"


def vectors_gpu(path: Path) -> str:
    parts = [f"{row['model']} {float(row['seconds']):.2f} s" for row in read(path)]
    return f"one pass over 12.3M words: {', '.join(parts)}"


def autotune(path: Path) -> str:
    ours, theirs = (
        {row["set"]: row for row in read(path) if row["tool"] == tool}
        for tool in ("hashembed", "fastText")
    )
    points = [100 * (float(ours[s]["accuracy"]) - float(theirs[s]["accuracy"])) for s in theirs]
    return f"{span(points, '+.1f')} points of accuracy over fastText's autotune"


def classify(path: Path) -> str:
    ours, theirs = (
        {row["set"]: row for row in read(path) if row["tool"] == tool}
        for tool in ("hashembed", "fastText")
    )
    faster = [float(theirs[s]["train_seconds"]) / float(ours[s]["train_seconds"]) for s in ours]
    points = [100 * (float(ours[s]["accuracy"]) - float(theirs[s]["accuracy"])) for s in theirs]
    return (
        f"trains {span(faster)} times as fast as fastText, {span(points, '+.1f')} points of "
        f"accuracy, {len(ours)} sets"
    )


def choice(path: Path) -> str:
    found: dict[str, dict[str, float]] = {}
    for row in read(path):
        found.setdefault(row["set"], {})[row["tool"]] = 100 * float(row["accuracy"])
    points = []
    for tools in found.values():
        ours = tools.pop("hashembed")
        tools.pop("hashembed, fast", None)
        points.append(ours - max(tools.values()))
    ahead = sum(point >= 0 for point in points)
    return (
        f"defaults against the best peer: {span(points, '+.1f')} points, ahead on {ahead} of "
        f"{len(points)} sets"
    )


def startup(path: Path) -> str:
    rows = read(path)
    ratios: dict[str, list[float]] = {}
    for row in rows:  # older files have one effort
        ratios.setdefault(row["measure"].removesuffix(", effort fast"), []).append(row["ratio"])
    whole, single = (list(map(float, ratios[name])) for name in ("whole command", "single texts"))
    return f"whole commands {span(whole)} times as fast as fastText, single texts {span(single)}"


def first_fit(path: Path) -> str:
    found = re.findall(r"first fit ([\d.]+)", path.read_text())
    return f"first fit {found[0]} s, with kernels on disk {found[-1]} s"


def latency(path: Path) -> str:
    ours, theirs = (
        re.search(rf"^{tool}, one text: median ([\d.]+) us", path.read_text(), re.M)
        for tool in ("hashembed", "fastText")
    )
    return f"median {ours[1]} µs a text; fastText {theirs[1]} µs"


def distributed(path: Path) -> str:
    found = {(r["stage"], r["what"], r["where"]): r["value"] for r in read(path)}
    ratio = "two nodes / one process"
    keys, predict = (float(found["overhead", what, ratio]) for what in ("keys", "predict"))
    return f"time of two nodes / one process: keys {keys:.2f}, predictions {predict:.2f}"


def javascript(path: Path) -> str:
    own = [row for row in read(path) if row["language"] == "JavaScript"]
    loads, reviews = ([float(row[name]) for row in own] for name in ("load_ms", "review_ms"))
    return f"loads in {span(loads, '.0f')} ms, answers in {span(reviews, '.2f')} ms"


def text(path: Path) -> str:
    rates = [
        re.search(rf"^{name} .*?([\d.]+) M n-grams/s", path.read_text(), re.M)
        for name in ("words and bigrams", "scikit-learn, words and bigrams")
    ]
    return f"{rates[0][1]}M n-grams a second; scikit-learn {rates[1][1]}M"


def step(path: Path) -> str:
    ms: dict[str, float] = {}
    for row in read(path):  # the better of idle threads that spin and idle threads that sleep
        ms[row["case"]] = min(float(row["median_ms"]), ms.get(row["case"], float("inf")))
    return (
        f"RowAdam {ms['hashembed, RowAdam']:.0f} ms; nn.EmbeddingBag with Adam "
        f"{ms['nn.EmbeddingBag, Adam']:,.0f} ms, with SparseAdam "
        f"{ms['nn.EmbeddingBag, SparseAdam']:.0f} ms; plain hash with Adam "
        f"{ms['plain hash, Adam']:.0f} ms"
    )


def columns(path: Path) -> str:
    time = {row["case"]: float(row["median_ms"]) for row in read(path)}
    ours, theirs = time["one hash layer, RowAdagrad"], time["26 nn.Embedding, Adagrad"]
    return f"one layer with RowAdagrad {ours:.0f} ms; 26 nn.Embedding with Adagrad {theirs:.0f} ms"


def step_scaling(path: Path) -> str:
    rows = [row for row in read(path) if row["optimizer"] == "RowAdam"]
    first, last = rows[0], rows[-1]
    return (
        f"RowAdam {float(first['median_ms']):.0f} ms with K = {int(first['K']):,}, "
        f"{float(last['median_ms']):.0f} ms with K = {int(last['K']):,}"
    )


def dictionary(path: Path) -> str:
    row = max(read(path), key=lambda row: (int(row["size"]), int(row["threads"])))
    return (
        f"the {int(row['size']):,} most frequent 1- to 9-grams of {row['set']} in "
        f"{float(row['seconds']):.1f} s, {row['threads']} threads"
    )


# --- choices behind the defaults ----------------------------------------------------------------


def rates(path: Path) -> str:
    lost = []
    for row in read(path):
        tried = [float(row[name]) for name in row if re.fullmatch(r"[\d.]+", name)]
        lost.append(max(tried) - float(row["default"]))
    return f"the default rate is at most {max(lost):.1f} points below the best of eight"


def patience(path: Path) -> str:
    rows = read(path)
    gains = [float(row["patience"]) - float(row["default"]) for row in rows]
    passes = [float(row["passes_patience"]) / float(row["passes"]) for row in rows]
    return f"early stopping: {span(gains, '+.1f')} points, for {span(passes)} times the passes"


def hidden(path: Path) -> str:
    gains = []
    for row in read(path):
        passes = [name for name in row if re.match(r"\d+ pass", name)]
        gains.append(max(float(row[name]) for name in passes) - float(row["no hidden layer"]))
    return f"the best hidden layer: {span(gains, '+.1f')} points over none"


def punctuation(path: Path) -> str:
    gains = [
        mean(float(row["keep"]) - float(row["drop"]) for row in rows)
        for rows in by_set(read(path)).values()
    ]
    return f"punctuation kept: {span(gains, '+.1f')} points, {len(gains)} sets"


def imbalance(path: Path) -> str:
    gains = []
    for rows in by_set(read(path)).values():
        recall = {
            weights: mean(float(r["macro recall"]) for r in rows if r["weights"] == weights)
            for weights in ("", "balanced")
        }
        gains.append(recall["balanced"] - recall[""])
    return f"balanced weights: {span(gains, '+.1f')} points of macro recall, {len(gains)} sets"


# --- online and on a GPU ------------------------------------------------------------------------


def online(path: Path) -> str:
    last = {row["tool"]: row for row in read(path) if row["stream"] == "as it comes"}
    ours, theirs = last["hashembed"], last["Vowpal Wabbit"]
    return (
        f"{100 * float(ours['accuracy']):.1f}% progressive accuracy over {int(ours['texts']):,} "
        f"texts; Vowpal Wabbit {100 * float(theirs['accuracy']):.1f}%"
    )


def gpu(path: Path) -> str:
    ms = {row["case"]: float(row["median_ms"]) for row in read(path) if row["how"] == "graph"}
    return (
        f"a step with RowAdam {ms['hashembed, RowAdam in backward']:.2f} ms; nn.EmbeddingBag with "
        f"Adam {ms['nn.EmbeddingBag, Adam']:.2f} ms"
    )


def gpu_eager(path: Path) -> str:
    ms = {
        (row["size"], row["case"]): float(row["median_ms"])
        for row in read(path)
        if row["how"] == "eager" and not row["launches"]
    }
    ours, peer = "hashembed, RowAdam in backward", "nn.EmbeddingBag, Adam"
    return "; ".join(
        f"{size}: RowAdam {ms[size, ours]:.2f} ms, nn.EmbeddingBag with Adam "
        f"{ms[size, peer]:.2f} ms"
        for size in ("large", "everyday")
    )


def gpu_scaling(path: Path) -> str:
    rows = [row for row in read(path) if row["what"] == "K"]
    first, last = rows[0], rows[-1]
    return (
        f"a step takes {float(first['median_ms']):.2f} ms with K = {int(first['value']):,}, "
        f"{float(last['median_ms']):.2f} ms with K = {int(last['value']):,}"
    )


def gpu_text(path: Path) -> str:
    seconds = {row["how"]: float(row["seconds"]) for row in read(path)}
    peer = next(name for name in seconds if name.startswith("fastText"))
    return (
        f"{seconds['hashembed, cuda']:.2f} s from a file to a model; fastText {seconds[peer]:.2f} s"
    )


def language_model(path: Path) -> str:
    rows = [row for row in read(path) if row["study"] == "sizes"]

    def test(table: str, share: float) -> float:
        mine = [row for row in rows if (row["table"], float(row["share"])) == (table, share)]
        return mean(float(row["test_perplexity"]) for row in mine)

    return (
        f"test perplexity {test('hash', 1 / 2):.0f} with half of the table, "
        f"{test('hash', 1 / 8):.0f} with an eighth; full {test('full', 1.0):.0f}; "
        f"quotient-remainder {test('quotient-remainder', 1 / 8):.0f} with an eighth"
    )


def ids(path: Path) -> str:
    rows = [r for r in read(path) if r["task"] == "bookcrossing rating" and r["fields"] == "both"]
    rmse = {(r["model"], r["method"], r["fraction"]): float(r["rmse"]) for r in rows}
    said = []
    for model in ("network", "factorisation machine"):
        full = rmse[model, "full table", "1.0"]
        cut, plain = (rmse[model, f"hash embedding{x}", "0.0625"] for x in (", cut", ""))
        said.append(f"{model}: {plain:.3f}, with a frequency cut {cut:.3f}, full table {full:.3f}")
    return f"Book-Crossing, RMSE with a sixteenth of the parameters: {'; '.join(said)}"


SECTIONS = {
    "On a CPU": [
        Benchmark(
            "text classification beside fastText, scikit-learn, Vowpal Wabbit and PyTorch: "
            "accuracy, time, memory, size",
            "bench_classify --data FOLDER",
            ("classify.csv", "classify.png"),
            classify,
        ),
        Benchmark(
            "defaults, which are chosen from the data, beside peers that were tuned: fastText, "
            "tf-idf + SVM, NB-SVM",
            "bench_choice --data FOLDER",
            ("choice.csv",),
            choice,
        ),
        Benchmark(
            "few labels: accuracy by the number of texts a class, beside tuned peers",
            "bench_few --data FOLDER",
            ("few.csv",),
            few,
        ),
        Benchmark(
            "few labels: accuracy with and without vectors of unlabelled text",
            "bench_few_vectors --data FOLDER --wikipedia FILE",
            ("few_vectors.csv",),
            few_vectors,
        ),
        Benchmark(
            "word vectors beside fastText and gensim: agreement with people, bytes, time",
            "bench_vectors --data FOLDER",
            ("vectors.csv",),
            vectors,
        ),
        Benchmark(
            "small models: accuracy against bytes, beside fastText's quantize",
            "bench_compress --data FOLDER",
            ("compress.csv",),
            compress,
        ),
        Benchmark(
            "small models: which parts of compression pay",
            "bench_compress_parts --data FOLDER",
            ("compress_parts.csv",),
            compress_parts,
        ),
        Benchmark(
            "the same seconds for both: a time limit beside fastText's autotune",
            "bench_autotune --data FOLDER",
            ("autotune.csv",),
            autotune,
        ),
        Benchmark(
            "a new installation: first runs, cold starts, whole commands, memory, single texts",
            "bench_startup --data FOLDER",
            ("startup.csv",),
            startup,
        ),
        Benchmark(
            "one text at a time; the start of the command; a stream",
            "bench_latency --data FOLDER",
            ("latency.txt",),
            latency,
        ),
        Benchmark(
            "a model of 1 MB in JavaScript: loading it, one review at a time",
            "bench_javascript --data FOLDER",
            ("javascript.csv",),
            javascript,
        ),
        Benchmark(
            "a Ray cluster of two nodes beside one process",
            "bench_distributed --data FOLDER",
            ("distributed.csv",),
            distributed,
        ),
        Benchmark("text to keys", "bench_text --data FOLDER/imdb", ("text_imdb.txt",), text),
        Benchmark(
            "one training step of the layers beside PyTorch", "bench_step", ("step_cpu.csv",), step
        ),
        Benchmark(
            "the same for larger tables",
            "bench_step --scaling",
            ("step_scaling.csv", "step_scaling.png"),
            step_scaling,
        ),
        Benchmark(
            "26 columns of ids: one hash layer beside a table for each column",
            "bench_columns",
            ("columns.csv",),
            columns,
        ),
        Benchmark(
            "counting a dictionary: time and memory",
            "bench_dictionary --data FOLDER/imdb",
            ("dictionary.csv",),
            dictionary,
        ),
    ],
    "Choices behind the defaults": [
        Benchmark("learning rates and passes", "bench_rates --data FOLDER", ("rates.csv",), rates),
        Benchmark("early stopping", "bench_patience --data FOLDER", ("patience.csv",), patience),
        Benchmark("hidden layers", "bench_hidden --data FOLDER", ("hidden.csv",), hidden),
        Benchmark(
            "punctuation dropped or kept",
            "bench_punctuation --data FOLDER",
            ("punctuation.csv",),
            punctuation,
        ),
        Benchmark("class weights", "bench_imbalance --data FOLDER", ("imbalance.csv",), imbalance),
    ],
    "Learn online": [
        Benchmark(
            "a stream of texts, each answered and then learned, beside other online learners",
            "bench_online --data FOLDER",
            ("online.csv", "online.png"),
            online,
        ),
    ],
    "Ids of users and items": [
        Benchmark(
            "tables of ids under a budget, beside a full table, the hashing trick, "
            "quotient-remainder, ROBE, CCE, tensor train and a frequency cut",
            "bench_ids --data FOLDER search",
            ("ids.csv", "ids_init.csv", "ids_speed.csv"),
            ids,
        ),
    ],
    "On a GPU": [
        Benchmark(
            "word vectors: seconds of a pass, where they go",
            "bench_vectors_gpu FILE",
            ("vectors_gpu.csv", "vectors_gpu_kernels.csv"),
            vectors_gpu,
        ),
        Benchmark(
            "settings of word vectors, four seeds each",
            "bench_vectors_settings --data FOLDER",
            ("vectors_settings.csv",),
            vectors_settings,
        ),
        Benchmark(
            "forward passes and steps of the layers beside PyTorch; where the time goes",
            "bench_gpu",
            ("gpu.csv", "gpu_kernels.csv", "gpu_timeline.csv"),
            gpu,
        ),
        Benchmark(
            "steps of the layers launched from Python",
            "bench_gpu_eager",
            ("gpu_eager.csv",),
            gpu_eager,
        ),
        Benchmark(
            "steps in a CUDA graph for other sizes",
            "bench_gpu --scaling",
            ("gpu_scaling.csv", "gpu_scaling.png"),
            gpu_scaling,
        ),
        Benchmark(
            "the first fit of a process on a GPU",
            "bench_gpu_first FILE",
            ("gpu_first_fit.txt",),
            first_fit,
        ),
        Benchmark(
            "from a text file to a model; a pass over three million documents",
            "bench_gpu_text --train FILE --test FILE --fasttext COMMAND",
            ("gpu_text.csv",),
            gpu_text,
        ),
        Benchmark(
            "a language model by the size of its token table; initial values; n-grams",
            "bench_lm --data FOLDER/wikitext-2",
            ("lm.csv", "lm_starts.csv", "lm_small.csv"),
            language_model,
        ),
    ],
}
OTHERS = {
    "gpu_tests.txt": "the tests that passed on a GPU, and at which revision",
    "gpu_ncu.txt": "Nsight Compute on the kernels of one step",
}

BEGIN = """<!-- Made by `python -m benchmarks.index`, from the files in results. -->

# Benchmarks

`make bench DATA=FOLDER` runs those for a CPU, `make bench-gpu` and `make bench-gpu-text`
those for a GPU, `make bench-ids DATA=FOLDER` that of ids.
`python -m benchmarks.report` puts their tables into the documentation.
"""
END = f"""
Every CSV file ends with columns for the machine and the versions, which `machine.py` fills:
{", ".join(f"`{column}`" for column in COLUMNS)}.
A cell is empty if it does not apply, or if it was not recorded when the benchmark ran.
"""


def page() -> str:
    parts = [BEGIN]
    for title, benchmarks in SECTIONS.items():
        rows = "\n".join(benchmark.row() for benchmark in benchmarks)
        head = "| what it measures | command | result | machine | headline |\n" + "| --- " * 5 + "|"
        parts.append(f"\n## {title}\n\n{head}\n{rows}\n")
    others = "\n".join(f"- [{name}](results/{name}): {what}." for name, what in OTHERS.items())
    return "".join([*parts, f"\nAlso measured:\n\n{others}\n", END])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf8")
