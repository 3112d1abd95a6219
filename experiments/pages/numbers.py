"""Numbers as templates quote them: one for each data set, and what they have in common.

A template writes {adam[imdb]} for one set, {adam.span} for the smallest and the largest, and so on.
A number whose runs are missing is a dash, so that pages can be made of any folder of runs.
"""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from experiments.tables.cells import gather, signed

EVEN = 0.1  # points; differences that round to no more are called even
CLOSE = 0.5
NONE = "–"


class Number(float):
    """One decimal; `:+` adds the sign, `:abs` leaves it out; other formats are those of floats."""

    def __format__(self, spec: str) -> str:
        if self != self:
            return NONE
        if spec == "+":
            return signed(self)
        if spec == "abs":
            return f"{abs(self):.1f}"
        text = float.__format__(self, spec or ".1f")
        return text.removeprefix("-") if set(text) <= set("-0.") else text

    def __str__(self) -> str:
        return format(self, "")


class PerSet(dict[str, float]):
    """A number for each data set; `spec` is the format of the cells in its column of a table."""

    def __init__(self, values: dict[str, float], title: str = "", spec: str = ""):
        super().__init__(values)
        self.title, self.spec = title, spec

    def __missing__(self, dataset: str) -> Number:
        return Number("nan")

    def __getitem__(self, dataset: str) -> Number:
        return Number(super().__getitem__(dataset))

    @property
    def sets(self) -> int:
        return len(self)

    @property
    def span(self) -> str:
        """From the smallest to the largest."""
        return span(self.values(), self.spec.removeprefix("+"))

    @property
    def lowest(self) -> Number:
        return Number(min(self.values(), default=float("nan")))

    @property
    def highest(self) -> Number:
        return Number(max(self.values(), default=float("nan")))

    @property
    def each(self) -> str:
        """All of them, with their sets."""
        return listed(self, "+")


class Lead(PerSet):
    """How many points one method is ahead of another."""

    def part(self, sign: int) -> dict[str, float]:
        """The sets where it is ahead (1), even (0) or behind (-1)."""
        found = {name: round(value, 1) for name, value in self.items()}
        return {
            name: self[name]
            for name, value in found.items()
            if (abs(value) <= EVEN and sign == 0) or value * sign > EVEN
        }

    @property
    def ahead(self) -> int:
        return len(self.part(1))

    @property
    def even(self) -> int:
        return len(self.part(0))

    @property
    def behind(self) -> int:
        return len(self.part(-1))

    @property
    def close_on(self) -> str:
        """The sets where the two are within half a point."""
        return ", ".join(name for name, value in self.items() if abs(value) <= CLOSE) or "none"

    @property
    def lead(self) -> str:
        """How much it is ahead by, where it is ahead."""
        return span(self.part(1).values())

    @property
    def lag(self) -> str:
        """How much it is behind by, where it is behind."""
        return span(-value for value in self.part(-1).values())

    @property
    def ahead_on(self) -> str:
        return listed(self.part(1))

    @property
    def even_on(self) -> str:
        return ", ".join(self.part(0)) or "none"

    @property
    def behind_on(self) -> str:
        return listed({name: -value for name, value in self.part(-1).items()})


def span(values: Iterable[float], spec: str = "") -> str:
    found = sorted(values)
    if not found:
        return NONE
    ends = [format(Number(value), spec) for value in (found[0], found[-1])]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def listed(values: dict[str, float], spec: str = "") -> str:
    """imdb (0.5), emotions (0.2): the largest first."""
    order = sorted(values, key=lambda name: -values[name])
    return ", ".join(f"{name} ({format(Number(values[name]), spec)})" for name in order) or "none"


def lead(ours: PerSet, theirs: PerSet, title: str = "", spec: str = "+") -> Lead:
    """On the sets that both ran on."""
    return Lead({name: ours[name] - theirs[name] for name in ours if name in theirs}, title, spec)


class Reached:
    """Means over seeds of one metric: `reached("table2", "hash 40M")` has a number for each set."""

    def __init__(
        self,
        folder: Path,
        metric: Callable[[dict], float] = lambda m: 100 * m["test_accuracy"],
        keep: Callable[[dict], bool] = lambda run: True,
    ):
        self.folder, self.metric, self.keep = folder, metric, keep

    def __call__(self, experiment: str, name: str) -> PerSet:
        found = {}
        for dataset, methods in gather(self.folder, experiment).items():
            values = [self.metric(run["metrics"]) for run in methods[name] if self.keep(run)]
            if values:
                found[dataset] = statistics.mean(values)
        return PerSet(found)

    def best(self, experiment: str, names: Iterable[str]) -> PerSet:
        """The largest of several methods, set by set."""
        found: dict[str, float] = {}
        for name in names:
            for dataset, value in self(experiment, name).items():
                found[dataset] = max(value, found.get(dataset, value))
        return PerSet(found)

    def __getitem__(self, experiment: str) -> "_Experiment":
        """For templates: {reached[pruning][10 passes][imdb]}."""
        return _Experiment(self, experiment)


class _Experiment:
    def __init__(self, reached: Reached, experiment: str):
        self.reached, self.experiment = reached, experiment

    def __getitem__(self, name: str) -> PerSet:
        return self.reached(self.experiment, name)
