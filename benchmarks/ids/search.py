"""What each method may choose on validation rows, and the search: variants first, then rates."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product

from benchmarks.ids.data import Task
from benchmarks.ids.models import build
from benchmarks.ids.training import train

FRACTIONS = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
PIVOT = 1 / 8  # where variants are compared
SEARCHED = (1 / 8, 1 / 32, 1 / 2)  # where rates are compared; the others take their neighbours'
RATES = (0.001, 0.004, 0.016)  # the search then doubles or halves the best of them
SEEDS = (1, 2, 3)
STDS = ({"std": 0.01}, {"std": 0.001}, {"std": 0.1})
# E's standard deviation, P's mean and standard deviation; the first is the layer's default.
INITS = (
    (0.1, 0.0, 0.0005),
    (0.1, 0.0, 0.01),
    (0.1, 0.0, 0.1),
    (1.0, 0.0, 0.01),
    (1.0, 0.0, 0.1),
    (0.1, 1.0, 0.0),
    (0.01, 1.0, 0.0),
    (0.1, 0.7, 0.7),
)
SHAPES = tuple({"k": k, "share": share} for k, share in ((2, 0.5), (2, 0.25), (1, 0.5), (1, 0.25)))


@dataclass(frozen=True)
class Run:
    """One training; `variant` holds the method's own options."""

    task: str
    model: str
    method: str
    fraction: float
    rate: float
    variant: dict = field(default_factory=dict)
    fields: str = "both"
    seed: int = 0
    test: bool = False

    def on(self, task: Task) -> dict:
        """Train -> what is recorded of the run."""
        model = build(
            task, self.model, self.method, self.fraction, self.variant, self.fields, self.seed
        )
        size = sum(p.numel() for table in (model.users, model.items) for p in table.parameters())
        clusterings = self.variant.get("clusterings", 0)
        outcome = train(task, model, self.rate, self.seed, clusterings, self.test)
        return {**asdict(self), "params": size, **asdict(outcome)}

    @classmethod
    def of(cls, record: dict) -> "Run":
        return cls(**{f.name: record[f.name] for f in fields(cls)})

    @property
    def unit(self) -> tuple[str, str, str]:
        """What is searched on its own."""
        return self.task, self.model, self.method

    def key(self) -> tuple:
        """Tells the runs of a unit apart."""
        return self.fraction, round(self.rate, 9), repr(sorted(self.variant.items()))


def rounds_of_variants(method: str, thorough: bool = True) -> list[tuple[dict, ...]]:
    """Each round adds a choice to the best of the round before.

    `thorough` is the first task; on the others, what was never good there is left out.
    """
    stds = STDS if thorough else STDS[:2]
    if method == "quotient-remainder":
        pairs = product(("add", "mult"), STDS if thorough else STDS[1:])
        return [({"operation": "published"}, *({"operation": o, **std} for o, std in pairs))]
    if method == "ROBE":
        return [tuple({"chunk": chunk, **std} for chunk, std in product((4, 16), stds))]
    if method in ("CCE", "hash embedding, clustered"):
        return [
            stds,
            tuple({"clusterings": count} for count in (0, 1, 2, 4)[:: 1 + (not thorough)]),
        ]
    if method.startswith("hash embedding"):
        own = {"ranks": True} if method.endswith("ranks") else {}
        inits = INITS if method == "hash embedding" else INITS[:3:2]
        inits = inits if thorough else (*inits[:3], *inits[6:7])
        return [
            tuple({**own, "init": list(init)} for init in inits),
            SHAPES[: 4 if thorough else 1],
        ]
    return [stds]


def fractions_of(method: str, task: str) -> tuple[float, ...]:
    """Rent the Runway's ranking, which takes longest, has one."""
    if method == "full table":
        return (1.0,)
    return (PIVOT,) if task == "renttherunway ranking" else FRACTIONS


class Search:
    """Runs of one unit on validation rows. Iterate over it: each run is yielded as it ends.

    `known` are records of an earlier search, which are not repeated.
    """

    def __init__(self, task: Task, model: str, method: str, known: Iterable[dict] = ()):
        self.task, self.start = task, Run(task.name, model, method, PIVOT, RATES[0])
        self.seen = {Run.of(record).key(): record for record in known}
        self.chosen: list[Run] = []

    def __iter__(self) -> Iterator[dict]:
        best, method = self.start, self.start.method
        if method == "full table":
            best = replace(best, fraction=1.0)
        thorough = self.task.name == "bookcrossing rating"
        for variants in rounds_of_variants(method, thorough):
            runs = [
                replace(best, variant={**best.variant, **variant}, rate=rate)
                for variant, rate in product(variants, RATES[:2])
            ]
            for run in runs:
                yield from self._run(run)
            best = min(runs, key=self._loss)
        searched = SEARCHED[: 3 if thorough else 2]
        fractions = set(fractions_of(method, self.task.name))
        for fraction in [f for f in searched if f in fractions] or fractions:
            yield from self._climb(replace(best, fraction=fraction))

    def _climb(self, start: Run) -> Iterator[dict]:
        """Double or halve the best rate as long as that helps."""
        runs = [replace(start, rate=rate) for rate in RATES]
        for run in runs:
            yield from self._run(run)
        best = min(runs, key=self._loss)
        for factor in (2, 1 / 2):
            while True:
                other = replace(best, rate=best.rate * factor)
                yield from self._run(other)
                if self._loss(other) >= self._loss(best):
                    break
                best = other
        self.chosen.append(best)

    def _run(self, run: Run) -> Iterator[dict]:
        if run.key() not in self.seen:
            self.seen[run.key()] = run.on(self.task)
            yield self.seen[run.key()]

    def _loss(self, run: Run) -> float:
        loss = self.seen[run.key()]["loss"]
        return loss if loss == loss else float("inf")
