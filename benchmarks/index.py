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

    def row(self) -> str:
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


def classify(path: Path) -> str:
    ours, theirs = (
        {row["set"]: row for row in read(path) if row["tool"] == tool}
        for tool in ("hashembed", "fastText")
    )
    faster = [float(theirs[s]["train_seconds"]) / float(ours[s]["train_seconds"]) for s in ours]
    points = [100 * (float(ours[s]["accuracy"]) - float(theirs[s]["accuracy"])) for s in ours]
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


def text(path: Path) -> str:
    rates = [
        re.search(rf"^{name} .*?([\d.]+) M n-grams/s", path.read_text(), re.M)
        for name in ("words and bigrams", "scikit-learn, words and bigrams")
    ]
    return f"{rates[0][1]}M n-grams a second; scikit-learn {rates[1][1]}M"


def step(path: Path) -> str:
    ms = {row["case"]: float(row["median_ms"]) for row in read(path)}
    return (
        f"RowAdam {ms['hashembed, RowAdam']:.0f} ms; nn.EmbeddingBag with Adam "
        f"{ms['nn.EmbeddingBag, Adam']:,.0f} ms, with SparseAdam "
        f"{ms['nn.EmbeddingBag, SparseAdam']:.0f} ms; plain hash with Adam "
        f"{ms['plain hash, Adam']:.0f} ms"
    )


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
    "On a GPU": [
        Benchmark(
            "forward passes and steps of the layers beside PyTorch; where the time goes",
            "bench_gpu",
            ("gpu.csv", "gpu_kernels.csv", "gpu_timeline.csv"),
            gpu,
        ),
        Benchmark(
            "the same for other sizes",
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
    ],
}
OTHERS = {
    "gpu_tests.txt": "the tests that passed on a GPU, and at which revision",
    "gpu_ncu.txt": "Nsight Compute on the kernels of one step",
}

BEGIN = """<!-- Made by `python -m benchmarks.index`, from the files in results. -->

# Benchmarks

`make bench DATA=FOLDER` runs those for a CPU, `make bench-gpu` and `make bench-gpu-text`
those for a GPU. `python -m benchmarks.report` puts their tables into the documentation.
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
