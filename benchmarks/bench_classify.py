"""Text classification, side by side: from a text file to a trained model, on two threads.

    python -m benchmarks.bench_classify --data FOLDER [--sets imdb ...] [--tools hashembed ...]

FOLDER holds a folder for each set with train.csv and test.csv (class, text, ... without a header).
Every tool reads the same text: lower-cased, punctuation replaced by spaces, shuffled once, in
fastText's format. A tool with several settings takes the one with the best accuracy on 5% of the
training data, and is then trained on all of it. Every run is a process of its own; imports and
one-time compilation are done before the clock starts. Results go to benchmarks/results/.
"""

import argparse
import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import RESULTS, read, table
from benchmarks.tools import THREADS, TOOLS

SETS = (
    "ag_news_partial",
    "20newsgroups",
    "imdb",
    "news_category",
    "emotions",
    "langid_commonvoice",
)
COLUMNS = (
    "set",
    "tool",
    "setting",
    "accuracy",
    "train_seconds",
    "command_seconds",
    "model_bytes",
    "peak_megabytes",
    "batch_per_second",
    "single_per_second",
)

LIMIT = 100  # seconds for one run of a tool
DEFAULT_TOOLS = [name for name in TOOLS if name not in ("tf-idf + SVM", "NB-SVM")]
REPEATED = ("hashembed", "fastText")  # run three times, the fastest counts; others run once

csv.field_size_limit(1 << 30)


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--tools", nargs="*", default=DEFAULT_TOOLS)
    parser.add_argument("--update", action="store_true", help="keep other rows of the file")
    parser.add_argument("--out", type=Path, default=RESULTS / "classify.csv")
    options = parser.parse_args()
    if options.data is None:
        parser.error("name the folder of data sets with --data or in HASHEMBED_DATA")
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.sets:
        files = prepare(Path(options.data) / name, options.work / name)
        for tool in options.tools:
            try:
                row = {"set": name, "tool": tool, "threads": THREADS, **measure(tool, files)}
            except subprocess.TimeoutExpired:
                row = dict.fromkeys(COLUMNS, "")
                row |= {"set": name, "tool": tool, "threads": THREADS}
                row["train_seconds"] = f">{LIMIT}"
            rows.append(row)
            print("  ".join(f"{k} {_short(row[k])}" for k in COLUMNS), flush=True)
    write(kept(options.out, rows) + rows if options.update else rows, options.out)


def kept(path: Path, rows: list[dict]) -> list[dict]:
    """The rows of the file that were not measured again."""
    anew = {(row["set"], row["tool"]) for row in rows}
    return [row for row in read(path) if (row["set"], row["tool"]) not in anew]


def prepare(source: Path, target: Path) -> dict[str, Path]:
    """CSV -> files in fastText's format: all of train, 95% of it, the other 5%, and test."""
    files = {part: target / f"{part}.txt" for part in ("train", "most", "held", "test")}
    if all(file.exists() for file in files.values()):
        return files
    target.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        with open(source / f"{part}.csv", newline="", encoding="utf8") as file:
            rows = list(csv.reader(file))
        random.Random(0).shuffle(rows)
        lines = [f"__label__{row[0].strip()} {plain(' '.join(row[1:]))}\n" for row in rows]
        files[part].write_text("".join(lines), encoding="utf8")
        if part == "train":
            held = len(lines) // 20
            files["held"].write_text("".join(lines[:held]), encoding="utf8")
            files["most"].write_text("".join(lines[held:]), encoding="utf8")
    return files


def plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.replace("\\n", " ").lower()).split())


def measure(tool: str, files: dict[str, Path]) -> dict:
    settings = TOOLS[tool].settings
    best = settings[0]
    if len(settings) > 1:
        tried = [
            (run(tool, files["most"], files["held"], s)["accuracy"], i)
            for i, s in enumerate(settings)
        ]
        best = settings[max(tried, key=lambda pair: (pair[0], -pair[1]))[1]]
    runs = [run(tool, files["train"], files["test"], best, "--full")]
    if tool in REPEATED:
        runs += [run(tool, files["train"], files["test"], best, "--full") for _ in range(2)]
    fastest = min(runs, key=lambda r: r["train_seconds"])
    fastest["command_seconds"] = time_command(TOOLS[tool](), files["train"], best)
    return {"setting": json.dumps(best), **fastest}


def time_command(tool, train: Path, setting: dict) -> float | str:
    """Seconds from the start of a process to the saved model, with kernels already compiled."""
    if not hasattr(tool, "command"):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        command = tool.command(str(train), f"{folder}/model", setting)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def run(tool: str, train: Path, test: Path, setting: dict, *flags: str) -> dict:
    command = [sys.executable, "-m", "benchmarks.run_one", tool, str(train), str(test)]
    done = subprocess.run(
        [*command, json.dumps(setting), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    if done.returncode:
        raise SystemExit(f"{tool} failed on {train}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def write(rows: list[dict], path: Path) -> None:
    place = {name: i for i, name in enumerate((*SETS, *TOOLS))}
    rows = sorted(rows, key=lambda row: (place.get(row["set"], 99), place[row["tool"]]))
    with table(path, COLUMNS) as add:
        for row in rows:
            add({k: _short(value) for k, value in row.items()})


def folders(description: str | None) -> argparse.ArgumentParser:
    """The arguments that all benchmarks on these sets have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("HASHEMBED_DATA"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/hashembed-bench"))
    return parser


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
