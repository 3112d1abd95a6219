"""What the stages of the benchmark run: searches, final runs, timings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import log
from pathlib import Path

import torch

from benchmarks.ids.data import TASKS, Task
from benchmarks.ids.models import METHODS, MODELS, build
from benchmarks.ids.pool import read_runs
from benchmarks.ids.search import PIVOT, SEEDS, Run, Search, fractions_of, rounds_of_variants
from benchmarks.ids.training import Step

# Variants of ours that try an idea of a peer; on the first task only, slices also for ranking.
EXTRA = ("hash embedding, ranks", "hash embedding, slices", "hash embedding, clustered")
ONE_FIELD = (1 / 8, 1 / 32)  # fractions at which the users or the items alone are compressed
# Units by the time that a run takes, the longest first: no process works alone at the end.
ORDER = ("bookcrossing ranking", "renttherunway ranking", "bookcrossing rating")


@dataclass(frozen=True)
class SearchJob:
    task: str
    model: str
    method: str
    known: tuple[dict, ...] = ()

    def __call__(self, task: Task) -> Iterator[dict]:
        return iter(Search(task, self.model, self.method, self.known))


@dataclass(frozen=True)
class RunJob:
    run: Run

    @property
    def task(self) -> str:
        return self.run.task

    def __call__(self, task: Task) -> Iterator[dict]:
        yield self.run.on(task)


@dataclass(frozen=True)
class SpeedJob:
    """Milliseconds of a step, and the bytes of the tables, their stored assignments included."""

    task: str
    method: str

    def __call__(self, task: Task) -> Iterator[dict]:
        yield self._measure(task, 1.0 if self.method == "full table" else PIVOT)

    def _measure(self, task: Task, fraction: float) -> dict:
        variant = rounds_of_variants(self.method)[0][0]
        model = build(task, "network", self.method, fraction, variant, "both", 0)
        state = [t for table in (model.users, model.items) for t in table.state_dict().values()]
        step = Step(task, model, 0.001)
        rows = torch.randint(len(task.train.users), (task.batch,), device="cuda")
        for _ in range(10):
            step(rows)
        times = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(40):
                step(rows)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / 40)
        return {
            "task": self.task,
            "method": self.method,
            "fraction": fraction,
            "step_ms": sorted(times)[2],
            "table_bytes": sum(t.numel() * t.element_size() for t in state),
        }


def is_compared(task: str, model: str, method: str) -> bool:
    """Not all: the factorisation machine of Rent the Runway's ranking hardly beats chance."""
    if (task, model) == ("renttherunway ranking", "factorisation machine"):
        return False
    if method == "hash embedding, slices":
        return task.startswith("bookcrossing")
    return method not in EXTRA or task == "bookcrossing rating"


def searches(folder: Path) -> list[SearchJob]:
    """Go on from what the folder has."""
    units = [unit for unit in product(TASKS, MODELS, METHODS) if is_compared(*unit)]
    known: dict[tuple, list[dict]] = {unit: [] for unit in units}
    for record in read_runs(folder / "search.jsonl"):
        known[Run.of(record).unit].append(record)
    found = [SearchJob(*unit, tuple(records)) for unit, records in known.items()]
    return sorted(found, key=lambda job: _place(job.task))


def _place(task: str) -> int:
    return ORDER.index(task) if task in ORDER else len(ORDER)


def smoke() -> list[RunJob]:
    """Every method once, on the smallest task."""
    task = "renttherunway rating"
    return [
        RunJob(Run(task, "network", m, PIVOT, 0.004, rounds_of_variants(m)[-1][-1]))
        for m in METHODS
    ]


def speeds() -> list[SpeedJob]:
    return [SpeedJob("bookcrossing rating", method) for method in METHODS]


def chosen(folder: Path) -> list[Run]:
    """What had the least validation loss, for each unit and fraction.

    A fraction that was not searched takes the choice of the nearest one (in logarithms).
    """
    best: dict[tuple, dict[float, dict]] = {}
    for record in read_runs(folder / "search.jsonl"):
        by_fraction = best.setdefault(Run.of(record).unit, {})
        before = by_fraction.get(record["fraction"], {"loss": float("inf")})
        if record["loss"] < before["loss"]:
            by_fraction[record["fraction"]] = record
    found = []
    for (task, _, method), by_fraction in best.items():
        for fraction in fractions_of(method, task):
            nearest = min(by_fraction, key=lambda f: abs(log(f / fraction)))
            found.append(replace(Run.of(by_fraction[nearest]), fraction=fraction))
    return found


def finals(folder: Path) -> list[RunJob]:
    """Three seeds of what was chosen; the users or the items alone for some of them."""
    found = []
    for seed in SEEDS:
        runs = [replace(run, seed=seed, test=True) for run in chosen(folder)]
        alone = [r for r in runs if r.fraction in ONE_FIELD and r.method not in EXTRA]
        alone = [r for r in alone if (r.task, r.model) == ("bookcrossing rating", "network")]
        found += runs + [replace(r, fields=f) for r in alone for f in ("users", "items")]
    order = sorted(found, key=lambda r: (r.seed, r.fields != "both", _place(r.task)))
    return [RunJob(run) for run in order]
