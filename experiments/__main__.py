"""python -m experiments table2 --dataset imdb --data FOLDER

Makes the runs that a table or plot needs and that were not made yet, each into a file of its own
under experiments/runs, and prints the table. You can stop it at any time: it resumes with the next
run. `collect` adds the files of new runs to the table of all runs; `report` writes the result pages
and plots. With --runs YOURS the runs of the project do not count, and `report` writes into YOURS.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from experiments.best import sized as best
from experiments.data import datasets, zhang
from experiments.pages import report
from experiments.plans import ablations, paper
from experiments.running import store
from experiments.running.run import Run
from experiments.running.store import RUNS
from experiments.tables import sections

TABLES = ("table1", "table2", "table3", "table4")
KNOWN = [*datasets.SOURCES, *datasets.SENTENCES, *zhang.SETS]


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*TABLES, *ablations.ABLATIONS, "collisions", "best", "collect", "report"]
    parser.add_argument("what", choices=names)
    parser.add_argument("--dataset", nargs="+", default=None, metavar="NAME", help=", ".join(KNOWN))
    parser.add_argument("--data", type=Path, default=os.environ.get("HASHEMBED_DATA"))
    protocols = ["default", "paper"]
    parser.add_argument("--protocol", nargs="+", default=protocols, choices=protocols)
    parts = (*paper.PARTS, *paper.FOLLOW_UPS)
    parser.add_argument("--part", nargs="+", default=paper.PARTS, choices=parts)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--seeds", type=int, default=len(paper.SEEDS), help="number of seeds")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the runs")
    parser.add_argument("--again", action="store_true", help="replace runs that were made already")
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
    if options.what == "collect":
        print(f"{store.collect(options.runs):,} runs added to {options.runs / store.TABLE}")
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
            if not options.again and run.record(options.runs):
                found += 1
                continue
            loaded = loaded or datasets.load(name, data)
            record = run.on(options.device).make(
                loaded, options.runs, options.threads, options.quiet_machine
            )
            print(f"{name}: {run.name}, seed {run.seed}: {summary(record['metrics'])}", flush=True)
        if loaded is None:
            print(f"{name}: all {found} runs are there", flush=True)
    for section in sections.sections(options.what, options.part):
        print(f"\n{sections.excerpt(section, sets, options.runs)}", end="", flush=True)


def search_best(data: datasets.Dataset, options: argparse.Namespace) -> None:
    """Later runs depend on the results of earlier ones."""
    from experiments.best.search import search

    made = set()  # the walk comes to some runs twice

    def make(run: Run) -> dict:
        keep = not options.again or run.place in made
        if keep and (record := run.record(options.runs)):
            return record
        made.add(run.place)
        record = run.make(data, options.runs, options.threads, options.quiet_machine)
        print(f"{data.name}: {run.name}, seed {run.seed}: {summary(record['metrics'])}", flush=True)
        return record

    search(data.name, data.classes, make, options.only)


def default_sets(what: str) -> list[str]:
    if what == "best":
        return list(best.SETS)
    if what in ablations.ABLATIONS:
        return list(ablations.OTHER_SETS.get(what, ablations.ABLATION_SETS))
    return list(datasets.SOURCES)


def planned(options: argparse.Namespace, dataset: str) -> Iterable[Run]:
    """Lazily: which runs follow may depend on the results of earlier ones."""
    if options.what == "table1":
        return paper.table1(dataset)
    if options.what == "table2":
        return paper.table2(dataset, tuple(options.protocol), tuple(options.part), options.runs)
    if options.what == "table3":
        return paper.table3(dataset)
    if options.what == "table4":
        return paper.table4(dataset)
    return ablations.ablation(options.what, dataset)


def summary(metrics: dict) -> str:
    for key, where in (("test_accuracy", ""), ("validation_accuracy", " on validation rows")):
        if metrics.get(key) is not None:
            time = f", {metrics['train_seconds']:.1f} s" if "train_seconds" in metrics else ""
            return f"{100 * metrics[key]:.2f}%{where}{time}"
    return ", ".join(f"{k} {v:,}" for k, v in metrics.items() if isinstance(v, int))


if __name__ == "__main__":
    main()
