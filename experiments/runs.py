"""Runs: each is one JSON file, made once."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from experiments.datasets import Dataset

RUNS = Path(__file__).parent / "runs"
PACKAGES = ("numba", "numpy", "scikit-learn", "fasttext-wheel", "torch")
APART = ("device",)  # fields of a method that are no part of its configuration


class Method(Protocol):
    """A dataclass whose fields are the configuration, but for those of `APART`."""

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics; `parameters` and `train_seconds` are among them.

        `device` may be: the name of one that is not the CPU.
        """


@dataclass(frozen=True)
class Run:
    """What is to be run: `name` is the method's in tables."""

    experiment: str
    dataset: str
    name: str
    seed: int
    method: Any

    def path(self, folder: Path) -> Path:
        file = re.sub(r"[^a-z0-9.]+", "-", f"{self.name}-seed{self.seed}".lower())
        return folder / self.experiment / self.dataset / f"{file}.json"

    def configuration(self) -> dict:
        settings = {k: v for k, v in asdict(self.method).items() if k not in APART}
        return json.loads(json.dumps({"kind": type(self.method).__name__, **settings}))

    def on(self, device: str) -> "Run":
        """The same run on that device, if its method cares."""
        if not hasattr(self.method, "device"):
            return self
        return replace(self, method=replace(self.method, device=device))

    def done(self, folder: Path) -> bool:
        """Whether its file is there; one of another configuration is an error."""
        path = self.path(folder)
        if not path.exists():
            return False
        found = json.loads(path.read_text())["configuration"]
        # A setting that is newer than the file had its default.
        known = {
            f.name: f.default
            for f in fields(self.method)
            if f.default is not MISSING and f.name not in APART
        }
        if {**json.loads(json.dumps(known)), **found} != self.configuration():
            raise SystemExit(
                f"{path} is of another configuration: {found}\nRemove it to run "
                f"{self.configuration()}"
            )
        return True

    def make(self, data: Dataset, folder: Path, threads: int | None, quiet: bool) -> dict:
        """Run it and write its file, whole or not at all."""
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
            "device": place or device(),
            "versions": versions(),
            "commit": commit(),
            "date": time.strftime("%Y-%m-%d"),
        }
        path = self.path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        os.replace(temporary, path)
        return record


def records(folder: Path, experiment: str) -> Iterator[dict]:
    """All runs of an experiment that there are."""
    for path in sorted((folder / experiment).rglob("*.json")):
        yield json.loads(path.read_text())


def device() -> str:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores of {model[1] if model else platform.processor()}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip()
