"""A training run in a file, so that it can be stopped and gone on with, to the bit."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import blake2b
from math import isnan
from pathlib import Path
from typing import Any

import numpy.typing as npt

from hashembed.core.checks import whole_number
from hashembed.engine.history import History
from hashembed.engine.loop import Snapshot
from hashembed.engine.protocol import Engine
from hashembed.engine.tensor_file import (
    Arrays,
    ModelFileError,
    load_tensors,
    save_tensors,
    understanding,
)

KIND = "Snapshot"


def fingerprint(settings: Any, arrays: Iterable[npt.NDArray[Any]]) -> str:
    """Of what a run is made: another run must not go on from its snapshot."""
    digest = blake2b(repr(settings).encode(), digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def save_snapshot(path: str | os.PathLike[str], snapshot: Snapshot, run: str) -> None:
    """Write a snapshot of the run with this fingerprint."""
    tensors = {f"now/{name}": array for name, array in snapshot.state.items()}
    tensors |= {f"best/{name}": array for name, array in snapshot.best_state.items()}
    meta = {
        "run": run,
        "history": asdict(snapshot.history),
        "best": None if snapshot.best == float("inf") else snapshot.best,
        "best_pass": snapshot.best_pass,
    }
    save_tensors(path, KIND, tensors, meta)


def load_snapshot(path: str | os.PathLike[str], run: str, engine: Engine) -> Snapshot | None:
    """The snapshot of this run, for this engine; None if there is none."""
    if not Path(path).exists():
        return None
    tensors, meta = load_tensors(path, KIND)
    with understanding(path):
        if meta["run"] != run:
            raise ModelFileError(
                "is a snapshot of another run: other data or other settings. "
                "Remove it to start anew"
            )
        snapshot = _assemble(tensors, meta)
        for state in filter(None, (snapshot.state, snapshot.best_state)):
            engine.check_state(state)
        return snapshot


def _assemble(tensors: Arrays, meta: Any) -> Snapshot:
    parts: dict[str, Arrays] = {"now": {}, "best": {}}
    for name, array in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array
    history = History.from_dict(meta["history"])
    best = float("inf") if meta["best"] is None else float(meta["best"])
    best_pass = whole_number("best_pass", meta["best_pass"], -1, len(history.epochs) - 1)
    if not parts["now"] or isnan(best) or (best_pass >= 0) != bool(parts["best"]):
        raise ModelFileError("has no state of its last pass, or none of its best")
    return Snapshot(history, parts["now"], best, best_pass, parts["best"])
