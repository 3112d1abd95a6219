"""Walks through the trials of `sized.py`, and makes those that are missing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

from experiments.best.fasttext import SizedFastText
from experiments.best.sized import FIRST, MEGABYTES, SECOND, AsItIs, Sized, Step, start, walk
from experiments.running.run import Run

SEEDS = (0, 1, 2)
TRIALS, TRIAL_SEEDS = "best_trials", (0, 1)  # each seed has validation rows of its own

AS_IT_IS = {"as it is": 16, "as it is, 8 bits": 8, "as it is, 4 bits": 4}

Make = Callable[[Run], dict]  # a run -> its record


class NotThereYet(Exception):
    """A run is missing and must not be made."""


def steps(dataset: str, classes: int, megabytes: int, make: Make) -> tuple[list[Step], list[Step]]:
    """The walk with 16 bits, and the walk with fewer bits from its end."""

    def score(model: Sized) -> float:
        made = [make(Run(TRIALS, dataset, model.label(), seed, model)) for seed in TRIAL_SEEDS]
        return mean(record["metrics"]["validation_accuracy"] for record in made)

    begin = start(megabytes, classes)
    first = [Step("start", begin, score(begin)), *walk(begin, FIRST, score)]
    return first, list(walk(first[-1].model, SECOND, score))


def finals(dataset: str, classes: int, megabytes: int, make: Make) -> Iterator[Run]:
    """The models that see the test rows, at one size."""
    first, second = steps(dataset, classes, megabytes, make)
    models = {"start": first[0], "best": first[-1], "best, fewer bits": second[-1]}
    for name, step in models.items():
        for seed in SEEDS:
            model = replace(step.model, held=False)
            yield Run("best", dataset, f"{megabytes} MB, {name}", seed, model)


def search(dataset: str, classes: int, make: Make, only: str = "") -> None:
    """Make all runs of a set, or those whose part contains `only`."""
    for name, bits in AS_IT_IS.items():
        for seed in SEEDS if only in name else ():
            make(Run("best", dataset, name, seed, AsItIs(bits)))
    for megabytes in MEGABYTES:
        if only in f"{megabytes} MB, walk":
            for run in finals(dataset, classes, megabytes, make):
                make(run)
        if only in (name := f"{megabytes} MB, fastText"):
            make(Run("best", dataset, name, 0, SizedFastText(megabytes)))


def from_files(folder: Path) -> Make:
    """Records of runs that were made; a missing one is an error."""

    def make(run: Run) -> dict:
        if (record := run.record(folder)) is None:
            raise NotThereYet(run.name)
        return record

    return make
