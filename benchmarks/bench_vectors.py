"""Word vectors beside fastText and gensim: agreement with people, bytes, time.

python -m benchmarks.bench_vectors --data FOLDER      -> results/vectors.csv

FOLDER has enwik8/enwik8 and wordsim/ (thirteen similarity sets, analogies). Every tool runs in a
process of its own, on two threads, on the same plain text.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import RESULTS, table
from benchmarks.word_vectors.judging import analogies, judge, sets_of, vocabulary_of
from benchmarks.word_vectors.plain_text import make_plain
from benchmarks.word_vectors.tools import TOOLS

RUNS = [(tool, passes) for passes in (1, 5) for tool in TOOLS]
COLUMNS = [
    "tool", "passes", "stored", "numbers", "bytes", "seconds", "peak_megabytes",
    "mean", "large", "rw_known", "rw_unknown", "analogies",
]  # fmt: skip


def run_one(tool: str, passes: int, text: Path, folder: Path) -> None:
    """In a process of its own: prints a row for each form in which vectors are stored."""
    model = TOOLS[tool]()
    sample = text.with_suffix(".sample")
    if not sample.exists():
        with open(text, encoding="utf-8") as file:
            sample.write_text("".join(next(file) for _ in range(20)), encoding="utf-8")
    model.train(sample, 1)  # imports, and what is compiled once
    start = time.perf_counter()
    model.train(text, passes)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    words, sets = vocabulary_of(text), sets_of(folder)
    row = {"numbers": model.numbers(), "seconds": seconds, "peak_megabytes": peak}
    questions = folder / "wordsim" / "questions-words.txt"
    right = analogies(model.vectors, words, questions)
    with tempfile.TemporaryDirectory() as place:
        for stored, size, vectors in model.sizes(Path(place)):
            found = judge(vectors, sets, set(words))
            print(json.dumps({**row, **found, "stored": stored, "bytes": size, "analogies": right}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="plain text; by default made from enwik8")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "PASSES"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    text = args.text or make_plain(args.data / "enwik8/enwik8", args.data / "enwik8/plain.txt")
    if args.one:
        run_one(args.one[0], int(args.one[1]), text, args.data)
        return
    columns = [*COLUMNS[:9], *sets_of(args.data), *COLUMNS[9:]]
    with table(RESULTS / "vectors.csv", columns) as add:
        for tool, passes in RUNS:
            order = [sys.executable, "-m", "benchmarks.bench_vectors", "--data", str(args.data)]
            order += ["--text", str(text), "--one", tool, str(passes)]
            done = subprocess.run(order, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            for line in done.stdout.splitlines():
                row = {"tool": tool, "passes": passes, **json.loads(line)}
                rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}
                add(rounded)
                print({k: rounded[k] for k in COLUMNS if k in rounded}, flush=True)


if __name__ == "__main__":
    main()
