"""A training run in a file, so that it can be stopped and gone on with, to the bit."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy.typing as npt

from hashembed.checkpoint import ModelFileError, load_tensors, save_tensors
from hashembed.history import History
from hashembed.training import Snapshot

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


def load_snapshot(path: str | os.PathLike[str], run: str) -> Snapshot | None:
    """The snapshot of this run; None if there is none."""
    if not Path(path).exists():
        return None
    tensors, meta = load_tensors(path, KIND)
    if meta["run"] != run:
        raise ModelFileError(
            f"{path} is a snapshot of another run: other data or other settings. "
            "Remove it to start anew"
        )
    parts: dict[str, dict[str, npt.NDArray[Any]]] = {"now": {}, "best": {}}
    for name, array in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array
    best = float("inf") if meta["best"] is None else float(meta["best"])
    history = History.from_dict(meta["history"])
    return Snapshot(history, parts["now"], best, meta["best_pass"], parts["best"])
