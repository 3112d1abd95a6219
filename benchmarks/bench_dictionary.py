"""Time and memory to count the most frequent 1- to 9-grams of a corpus.

    python -m benchmarks.bench_dictionary --data FOLDER/imdb      -> results/dictionary.csv

The text is in memory before the clock starts; every case is a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import RESULTS, table

THREADS = (1, 2)
SIZES = (100_000, 1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train.csv")
    parser.add_argument("--out", type=Path, default=RESULTS / "dictionary.csv")
    parser.add_argument("--one", nargs=2, type=int, metavar=("SIZE", "THREADS"))
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.data, *options.one)))
        return
    rows = []
    for size in SIZES:
        for threads in THREADS:
            command = [sys.executable, "-m", "benchmarks.bench_dictionary"]
            command += ["--data", str(options.data), "--one", str(size), str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
            print(rows[-1], flush=True)
    with table(options.out, list(rows[0])) as add:
        for row in rows:
            add(row)


def measure(data: Path, size: int, threads: int) -> dict:
    import numba
    from experiments.data.datasets import zhang_csv

    from hashembed.text.dictionary import Dictionary

    numba.set_num_threads(threads)
    texts = zhang_csv(data / "train.csv").texts
    Dictionary.count(texts[:10], size=10, threads=threads)  # compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    dictionary = Dictionary.count(texts, size=size, threads=threads)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    saved = sum(array.nbytes for array in dictionary.tensors().values())
    return {
        "set": data.name,
        "text_megabytes": round(texts.nbytes / 1e6, 1),
        "size": size,
        "threads": threads,
        "seconds": round(seconds, 2),
        "megabytes_over_the_text": round((peak - before) / 1e3),
        "saved_megabytes": round(saved / 1e6, 2),
        "least_count": int(dictionary.counts[-1]),
    }


if __name__ == "__main__":
    main()
