"""A small transformer on wikitext-2 whose token table, tied to the output, is a hash layer.

    python -m benchmarks.bench_lm --data FOLDER
        -> results/lm.csv, one row for each run
    python -m benchmarks.bench_lm --starts --data FOLDER
        -> results/lm_starts.csv: more initial values
    python -m benchmarks.bench_lm --small --data FOLDER
        -> results/lm_small.csv: a small copy, for a CPU

FOLDER has train.txt, validation.txt and test.txt. Several processes train at the same time. Short
runs choose settings on the validation split; long ones then use them, and end with the test split.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.language_model import small, studies
from benchmarks.language_model.data import Corpus, read
from benchmarks.language_model.training import Job, Sizes, run
from benchmarks.machine import RESULTS, table

MEASURED = (
    "table_parameters",
    "ngram_parameters",
    "parameters",
    "start_loss",
    "perplexity_by_epoch",
    "validation_perplexity",
    "test_perplexity",
    "seconds",
)
SHOWN = ("study", "table", "share", "hashes", "weights", "weight_size", "std", "scale", "rate")
STARTUP = 12  # seconds of the first runs in which nothing is trained yet
CHOOSING = 0.35  # of the time, at most
_here: dict = {}  # what every run of a worker process needs


def begin(corpus: Corpus, sizes: Sizes, device: str, compiled: bool) -> None:
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    _here.update(corpus=corpus, sizes=sizes, device=device, compiled=compiled, epoch=0.0)


def work(job: Job, deadline: float) -> dict | None:
    """Nothing if the run would not end in time, judged by the one before."""
    start = time.time()
    if start + job.epochs * _here["epoch"] > deadline:
        return None
    found = run(job, _here["sizes"], _here["corpus"], _here["device"], _here["compiled"])
    _here["epoch"] = (time.time() - start) / job.epochs
    return found


def train_all(
    pool: ProcessPoolExecutor, jobs: list[Job], deadline: float, add: Callable[[dict], None]
) -> list[dict]:
    rows = []
    for done in as_completed([pool.submit(work, job, deadline) for job in jobs]):
        if done.exception():
            print("a run failed:", done.exception(), flush=True)
            continue
        row = done.result()
        if row is None:  # left out
            continue
        add(row)
        rows.append(row)
        shown = [row[name] for name in (*SHOWN, "longest", "seed", "perplexity_by_epoch")]
        print(*shown, row["test_perplexity"], row["seconds"], flush=True)
    return rows


def affordable(rows: list, elapsed: float, seconds: float, runs: int) -> int:
    """Epochs of each run, if the next seconds pass as the ones before."""
    rate = sum(row["epochs"] for row in rows) / max(1.0, elapsed - STARTUP)
    return max(3, min(8, int(rate * seconds / runs)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--starts", action="store_true", help="initial values only")
    parser.add_argument("--small", action="store_true", help="a small copy only")
    parser.add_argument("--epochs", type=int, default=5, help="0: as many as the seconds allow")
    parser.add_argument("--workers", type=int, default=12, help="processes")
    parser.add_argument("--seconds", type=float, default=1e6, help="leave out runs that end later")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> None:
    begun = time.time()
    options = arguments()
    corpus, sizes = read(options.data), Sizes()
    if options.small:
        corpus, sizes = small.cut(corpus), small.SIZES
    device = "cuda" if torch.cuda.is_available() else "cpu"
    columns = [*(field.name for field in fields(Job)), *MEASURED]
    settings = (corpus, sizes, device, not options.eager)
    deadline = begun + options.seconds
    context = multiprocessing.get_context("spawn")
    name = "lm_starts" if options.starts else "lm_small" if options.small else "lm"
    with (
        ProcessPoolExecutor(options.workers, context, begin, settings) as pool,
        table(options.results / f"{name}.csv", columns) as add,
    ):
        if options.starts or options.small:
            jobs = studies.starts() if options.starts else small.sharing() + small.untied()
            train_all(pool, jobs, deadline, add)
            return
        early = begun + CHOOSING * options.seconds
        rows = train_all(pool, studies.tuning() + studies.others(), early, add)
        now = time.time()
        runs = len(studies.final(rows, 1))
        epochs = options.epochs or affordable(rows, now - begun, deadline - now, runs)
        print(f"{now - begun:.0f} s; {runs} runs of {epochs} epochs follow", flush=True)
        train_all(pool, studies.final(rows, epochs), deadline, add)


if __name__ == "__main__":
    main()
