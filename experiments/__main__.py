"""python -m experiments table2 --dataset imdb --data FOLDER

Runs what a table or plot needs and is not there yet, one run after the other, each into a file of
its own under experiments/runs, and prints the table. Stop it whenever you like: it goes on where it
was. `report` makes the whole page, with plots. With --runs YOURS none of the runs that come with
the project counts, and `report` writes YOURS/README.md.
"""

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

from experiments import best, datasets, plans, report, zhang
from experiments.runs import RUNS, Run

TABLES = ("table1", "table2", "table3", "table4")
KNOWN = [*datasets.SOURCES, *datasets.SENTENCES, *zhang.SETS]


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*TABLES, *plans.ABLATIONS, "collisions", "best", "report"]
    parser.add_argument("what", choices=names)
    parser.add_argument("--dataset", nargs="+", default=None, metavar="NAME", help=", ".join(KNOWN))
    parser.add_argument("--data", type=Path, default=os.environ.get("HASHEMBED_DATA"))
    protocols = ["default", "paper"]
    parser.add_argument("--protocol", nargs="+", default=protocols, choices=protocols)
    parts = (*plans.PARTS, *plans.FOLLOW_UPS)
    parser.add_argument("--part", nargs="+", default=plans.PARTS, choices=parts)
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--seeds", type=int, default=len(plans.SEEDS), help="the first so many")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the files of runs")
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--quiet-machine", action="store_true", help="nothing else runs: times may be reported"
    )
    options = parser.parse_args()
    try:
        carry_out(options)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SystemExit('this needs PyTorch: pip install "hashembed[torch]"') from None


def carry_out(options: argparse.Namespace) -> None:
    if options.what == "report":
        report.write(options.runs)
        return
    data = Path(options.data) if options.data else None
    sets = options.dataset or default_sets(options.what)
    for name in sets:
        if options.what == "best":
            search_best(datasets.load(name, data), options)
            continue
        found, loaded = 0, None
        for run in planned(options, name):
            if options.only not in run.name or run.seed >= options.seeds:
                continue
            if run.done(options.runs):
                found += 1
                continue
            loaded = loaded or datasets.load(name, data)
            record = run.on(options.device).make(
                loaded, options.runs, options.threads, options.quiet_machine
            )
            print(f"{name}: {run.name}, seed {run.seed}: {summary(record['metrics'])}", flush=True)
        if loaded is None:
            print(f"{name}: all {found} runs are there", flush=True)
    for section in report.sections(options.what, options.part):
        print(f"\n{report.excerpt(section, sets, options.runs)}", end="", flush=True)


def search_best(data: datasets.Dataset, options: argparse.Namespace) -> None:
    """Its later runs follow from what earlier ones reached."""
    from experiments.best_search import search

    def make(run: Run) -> dict:
        if run.done(options.runs):
            return json.loads(run.path(options.runs).read_text())
        record = run.make(data, options.runs, options.threads, options.quiet_machine)
        print(f"{data.name}: {run.name}, seed {run.seed}: {summary(record['metrics'])}", flush=True)
        return record

    search(data.name, data.classes, make, options.only)


def default_sets(what: str) -> list[str]:
    if what == "best":
        return list(best.SETS)
    if what in plans.ABLATIONS:
        return list(plans.OTHER_SETS.get(what, plans.ABLATION_SETS))
    return list(datasets.SOURCES)


def planned(options: argparse.Namespace, dataset: str) -> Iterable[Run]:
    """One after the other: what is to be run may depend on what has been."""
    if options.what == "table1":
        return plans.table1(dataset)
    if options.what == "table2":
        return plans.table2(dataset, tuple(options.protocol), tuple(options.part), options.runs)
    if options.what == "table3":
        return plans.table3(dataset)
    if options.what == "table4":
        return plans.table4(dataset)
    return plans.ablation(options.what, dataset)


def summary(metrics: dict) -> str:
    for key, where in (("test_accuracy", ""), ("validation_accuracy", " on validation rows")):
        if metrics.get(key) is not None:
            time = f", {metrics['train_seconds']:.1f} s" if "train_seconds" in metrics else ""
            return f"{100 * metrics[key]:.2f}%{where}{time}"
    return ", ".join(f"{k} {v:,}" for k, v in metrics.items() if isinstance(v, int))


if __name__ == "__main__":
    main()
