"""All runs that were made: one compressed table, and a file for each run that is newer.

A new run is written as EXPERIMENT/DATASET/NAME-seedN.json, so that an interrupted experiment
resumes. `collect` adds these files to the table (gzipped JSON, one run a line) and removes them.
A file that has the place of a run in the table replaces it.
"""

import gzip
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

RUNS = Path(__file__).parent.parent / "runs"
TABLE = "table.jsonl.gz"

Place = tuple[str, str, str]  # experiment, data set, file name
Records = dict[Place, dict]


def place_of(experiment: str, dataset: str, name: str, seed: int) -> Place:
    """Where the file of a run is, as the parts of its path."""
    file = re.sub(r"[^a-z0-9.]+", "-", f"{name}-seed{seed}".lower())
    return experiment, dataset, f"{file}.json"


def find(folder: Path, place: Place) -> dict | None:
    """The record of one run, None if it was not made yet."""
    path = folder.joinpath(*place)
    if path.exists():
        return json.loads(path.read_text())
    return _table(folder).get(place[0], {}).get(place)


def records(folder: Path, experiment: str) -> Iterator[dict]:
    """All runs of an experiment that were made, in the order of their places."""
    found = {**_table(folder).get(experiment, {}), **_files(folder, experiment)}
    for place in sorted(found):
        yield found[place]


def collect(folder: Path) -> int:
    """Add the files of runs to the table and remove them -> how many there were."""
    new = _files(folder)
    if not new:
        return 0
    whole = {place: run for runs in _table(folder).values() for place, run in runs.items()} | new
    _write(folder / TABLE, whole)
    for place in new:
        path = folder.joinpath(*place)
        path.unlink()
        for parent in (path.parent, path.parent.parent):
            if not any(parent.iterdir()):
                parent.rmdir()
    return len(new)


def write_file(folder: Path, place: Place, record: dict) -> None:
    """The file of one run, whole or not at all."""
    path = folder.joinpath(*place)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, (json.dumps(record, indent=1) + "\n").encode())


def _files(folder: Path, experiment: str | None = None) -> Records:
    paths = (folder / experiment).glob("*/*.json") if experiment else folder.glob("*/*/*.json")
    return {path.parts[-3:]: json.loads(path.read_text()) for path in paths}  # type: ignore[misc]


def _table(folder: Path) -> dict[str, Records]:
    """Experiment -> its runs in the table."""
    path = folder / TABLE
    if not path.exists():
        return {}
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, modified: int, size: int) -> dict[str, Records]:
    found: dict[str, Records] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf8") as lines:
        for line in lines:
            run = json.loads(line)
            place = place_of(run["experiment"], run["dataset"], run["name"], run["seed"])
            found[run["experiment"]][place] = run
    return dict(found)


def _write(path: Path, runs: Records) -> None:
    """The same runs give the same bytes: sorted, without a time."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        for place in sorted(runs):
            file.write(json.dumps(runs[place], separators=(",", ":")).encode() + b"\n")
    _replace(path, buffer.getvalue())


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".part")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
