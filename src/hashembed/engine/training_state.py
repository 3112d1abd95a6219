"""The checkpoint of a training run. A resumed run gives the same bits as an uninterrupted one."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from math import isfinite, isnan
from typing import Any

import numpy.typing as npt

from hashembed.core.checks import whole_number
from hashembed.core.locations import exists, local_copy
from hashembed.engine.history import History
from hashembed.engine.protocol import Engine, State
from hashembed.engine.tensor_file import (
    Arrays,
    ModelFileError,
    load_tensors,
    save_tensors,
    understanding,
)

KIND = "Snapshot"  # in the files; they keep the name that the first ones had


@dataclass
class TrainingState:
    """A run after some pass: what has happened, and the engine's state then and at its best."""

    history: History
    state: State
    best: float = float("inf")  # the lowest validation loss or error rate
    best_pass: int = -1
    best_state: State = field(default_factory=dict)
    steps: int = 0  # done of the pass that is not over
    loss: float = 0.0  # of these steps: the sum over their documents


def fingerprint(settings: Any, arrays: Iterable[npt.NDArray[Any]]) -> str:
    """A digest of settings and data: a run resumes only from a training state with the same one."""
    digest = blake2b(repr(settings).encode(), digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def save_training_state(path: str | os.PathLike[str], state: TrainingState, run: str) -> None:
    """Write the training state of the run with this fingerprint."""
    tensors = {f"now/{name}": array for name, array in state.state.items()}
    tensors |= {f"best/{name}": array for name, array in state.best_state.items()}
    meta = {
        "run": run,
        "history": asdict(state.history),
        "best": None if state.best == float("inf") else state.best,
        "best_pass": state.best_pass,
        "steps": state.steps,
        "loss": state.loss,
    }
    with local_copy(path, read=False) as file:
        save_tensors(file, KIND, tensors, meta)


def load_training_state(
    path: str | os.PathLike[str], run: str, engine: Engine
) -> TrainingState | None:
    """The training state of this run, for this engine; None if there is no file."""
    if not exists(os.fspath(path)):
        return None
    with local_copy(path) as file:
        tensors, meta = load_tensors(file, KIND)
    with understanding(path):
        if meta["run"] != run:
            raise ModelFileError(
                "is the training state of another run: other data or other settings. "
                "Remove it to start again"
            )
        found = _assemble(tensors, meta)
        for state in filter(None, (found.state, found.best_state)):
            engine.check_state(state)
        return found


def _assemble(tensors: Arrays, meta: Any) -> TrainingState:
    parts: dict[str, Arrays] = {"now": {}, "best": {}}
    for name, array in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array
    history = History.from_dict(meta["history"])
    best = float("inf") if meta["best"] is None else float(meta["best"])
    best_pass = whole_number("best_pass", meta["best_pass"], -1, len(history.epochs) - 1)
    steps = whole_number("steps", meta["steps"], 0, 2**62)
    loss = float(meta["loss"])
    if (
        not parts["now"]
        or isnan(best)
        or not isfinite(loss)
        or (best_pass >= 0) != bool(parts["best"])
    ):
        raise ModelFileError("has no state of its last pass, or none of its best")
    return TrainingState(history, parts["now"], best, best_pass, parts["best"], steps, loss)
