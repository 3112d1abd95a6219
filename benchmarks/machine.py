"""Where a benchmark ran: the columns that every result file ends with, and how they are written."""

import csv
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# Column -> the package whose version it holds.
PACKAGES = {
    "hashembed": "hashembed",
    "numpy": "numpy",
    "numba": "numba",
    "torch": "torch",
    "triton": "triton",
    "fasttext": "fasttext-wheel",
    "scikit-learn": "scikit-learn",
    "vowpalwabbit": "vowpalwabbit",
    "river": "river",
}
COLUMNS = ("date", "commit", "cpu", "cores", "threads", "gpu", "cuda", "python", *PACKAGES)

Row = dict[str, object]


@cache
def machine() -> Row:
    """A cell for each of `COLUMNS`, empty where there is nothing to say.

    Threads are those of torch where it is in use; benchmarks with threads of their own say so.
    """
    torch = sys.modules.get("torch")
    gpu = torch is not None and torch.cuda.is_available()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads() if torch else "",
        "gpu": torch.cuda.get_device_name() if gpu else "",
        "cuda": torch.version.cuda if gpu else "",
        "python": platform.python_version(),
        **{column: installed(package) for column, package in PACKAGES.items()},
    }


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return model[1] if model else platform.processor()


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip()


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def heading() -> str:
    """The same in two lines, for results that are no table."""
    here = machine()
    versions = [f"{name} {here[name]}" for name in ("python", *PACKAGES) if here[name]]
    return f"{here['date']}, {here['cores']} cores of {here['cpu']}\n{', '.join(versions)}\n"


@contextmanager
def table(path: Path, columns: Sequence[object]) -> Iterator[Callable[[Row | Sequence], None]]:
    """A result file that is written row by row, so that an interrupted benchmark leaves its rows.

    A row may be a list, in the order of the columns. What it says itself (threads, or the machine
    of an older row) counts more than what is seen here.
    """
    names = [str(column) for column in columns if column not in COLUMNS]
    own = [str(column) for column in columns]
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="", encoding="utf8") as file:
        writer = csv.DictWriter(file, [*names, *COLUMNS], extrasaction="ignore")
        writer.writeheader()

        def add(row: Row | Sequence) -> None:
            cells = row if isinstance(row, dict) else dict(zip(own, row, strict=True))
            writer.writerow({**machine(), **cells})
            file.flush()

        yield add
    print(f"wrote {path}", flush=True)


def write(name: str, rows: Iterable[Row]) -> None:
    """All rows at once, under benchmarks/results."""
    rows = list(rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with table(RESULTS / name, columns) as add:
        for row in rows:
            add(row)


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf8") as file:
        return list(csv.DictReader(file))
