"""Embeddings of user and item ids under a budget, beside other ways to make tables small.

    python -m benchmarks.bench_ids --data FOLDER search   -> build/ids/search.jsonl
    python -m benchmarks.bench_ids --data FOLDER final    -> build/ids/final.jsonl
    python -m benchmarks.bench_ids --data FOLDER speed    -> build/ids/speed.jsonl
    python -m benchmarks.bench_ids table       -> results/ids*.csv, docs/results/ids.md, from these

`search` chooses the variant and the learning rate of every method on validation rows. `final`
trains what was chosen from three seeds and judges the test rows, once. `speed` times steps, alone.
FOLDER has bookcrossing and renttherunway; `pack` makes one small file of them.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.ids import jobs, page, results
from benchmarks.ids.data import pack, read_sets
from benchmarks.ids.pool import work_through

STAGES = ("pack", "smoke", "search", "final", "speed", "table")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--data", type=Path, help="folder of data sets, or a packed file")
    parser.add_argument("--out", type=Path, default=Path("build/ids"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about this time")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage == "table":
        results.write_tables(options.out)
        page.write()
    elif options.stage == "pack":
        pack(read_sets(options.data), options.out / "ids.npz")
    else:
        work = {
            "smoke": jobs.smoke,
            "search": lambda: jobs.searches(options.out),
            "final": lambda: jobs.finals(options.out),
            "speed": jobs.speeds,
        }[options.stage]()
        out = options.out / f"{options.stage}.jsonl"
        work_through(work, options.data, options.device, options.workers, options.seconds, out)


if __name__ == "__main__":
    main()
