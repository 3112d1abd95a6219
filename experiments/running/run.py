"""A run: a method, a data set and a seed, made once."""

import json
import os
import time
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from experiments.data.datasets import Dataset
from experiments.running import machine, store

APART = ("device",)  # fields of a method that are not part of its configuration


class Method(Protocol):
    """A dataclass whose fields, except those in `APART`, are the configuration."""

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics, with `parameters` and `train_seconds`.

        They may have `device`, the name of a GPU.
        """


@dataclass(frozen=True)
class Run:
    """One run to make. `name` is the name of the method in tables."""

    experiment: str
    dataset: str
    name: str
    seed: int
    method: Any

    @property
    def place(self) -> store.Place:
        return store.place_of(self.experiment, self.dataset, self.name, self.seed)

    def configuration(self) -> dict:
        settings = {k: v for k, v in asdict(self.method).items() if k not in APART}
        return json.loads(json.dumps({"kind": type(self.method).__name__, **settings}))

    def on(self, device: str) -> "Run":
        """The same run on that device, if its method has one."""
        if not hasattr(self.method, "device"):
            return self
        return replace(self, method=replace(self.method, device=device))

    def record(self, folder: Path) -> dict | None:
        """What the run reached, None if it was not made; another configuration is an error."""
        record = store.find(folder, self.place)
        if record is None:
            return None
        found = record["configuration"]
        # A setting that is newer than the run had its default.
        known = {
            f.name: f.default
            for f in fields(self.method)
            if f.default is not MISSING and f.name not in APART
        }
        if {**json.loads(json.dumps(known)), **found} != self.configuration():
            raise SystemExit(
                f"the run {'/'.join(self.place)} in {folder} has another configuration: {found}\n"
                f"--again replaces it by a run of {self.configuration()}"
            )
        return record

    def make(self, data: Dataset, folder: Path, threads: int | None, quiet: bool) -> dict:
        """Run it and write its file."""
        start = time.perf_counter()
        metrics = self.method.run(data, self.seed, threads)
        place = metrics.pop("device", None)
        record = {
            "experiment": self.experiment,
            "dataset": self.dataset,
            "name": self.name,
            "seed": self.seed,
            "configuration": self.configuration(),
            "metrics": metrics,
            "rows": [len(data.train), len(data.test)],
            "classes": data.classes,
            "note": data.note,
            "seconds": round(time.perf_counter() - start, 2),
            "quiet": quiet,
            "threads": threads or os.cpu_count(),
            "device": place or machine.device(),
            "versions": machine.versions(),
            "commit": machine.commit(),
            "date": time.strftime("%Y-%m-%d"),
        }
        store.write_file(folder, self.place, record)
        return record
