"""Checks the saved state of optimizers before it is used, because kernels index with it."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hashembed.engine.protocol import State
from hashembed.nn.cpu.row_kernels import record_width

_NAME = re.compile(r"optimizer(\d{1,3})/(tensor|number)/(\d{1,6})/(\w{1,50})")
MAX_STEPS = 2**31 - 1

Entries = dict[tuple[int, int], State]


def check_optimizers(optimizers: Sequence[torch.optim.Optimizer], state: State) -> None:
    """Raise a ValueError if an entry does not fit its parameter."""
    parameters = [[p for g in o.param_groups for p in g["params"]] for o in optimizers]
    for (number, place), entries in _by_parameter(state).items():
        if number >= len(parameters) or place >= len(parameters[number]):
            raise ValueError(f"found the state of parameter {place} of optimizer {number}")
        p = parameters[number][place]
        _check_shapes(p, entries)
        step = _step(entries)
        if "records" in entries:
            _check_records(p, entries, step)


def _by_parameter(state: State) -> Entries:
    entries: Entries = {}
    for name, array in state.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"found a tensor {name!r:.50}, which is not known")
        if match[2] == "number" and array.ndim:
            raise ValueError(f"{name} must be one number, found the shape {array.shape}")
        entries.setdefault((int(match[1]), int(match[3])), {})[match[4]] = array
    return entries


def _check_shapes(p: Tensor, entries: State) -> None:
    """State has one number for each weight, or one for each row."""
    for key, array in entries.items():
        fits = array.shape in (p.shape, (len(p) if p.dim() else 1, 1), (), (1,))
        if key in ("exp_avg", "exp_avg_sq"):
            fits = array.shape == p.shape
        elif key in ("records", "history", "tails"):
            continue
        elif key == "numbers":
            fits = array.ndim == 1 and len(array) < 100
        if not fits:
            raise ValueError(f"{key} of a parameter of {tuple(p.shape)} has shape {array.shape}")


def _step(entries: State) -> int:
    step = entries.get("step", np.array(0))
    if step.size != 1 or not 0 <= float(step.item()) <= MAX_STEPS:
        raise ValueError(f"a number of steps must be from 0 to {MAX_STEPS:,}")
    return int(step.item())


def _check_records(p: Tensor, entries: State, step: int) -> None:
    """Check lazy state: each record has its step, an integer in the place of a float."""
    records = entries["records"]
    wanted = (len(p), record_width(p.shape[1])) if p.dim() == 2 else None
    kind = np.float64 if p.dtype == torch.float64 else np.float32
    if records.shape != wanted or records.dtype != kind:
        raise ValueError(f"records of a parameter of {tuple(p.shape)} have {records.shape}")
    _check_history(entries, step)
    stamps = records.view(np.int32 if kind is np.float32 else np.int64)[:, 2 * p.shape[1]]
    if stamps.size and not 0 <= stamps.min() <= stamps.max() <= step:
        raise ValueError(
            f"records are of steps 0 to {step:,}, found {stamps.min()} to {stamps.max()}"
        )


def _check_history(entries: State, step: int) -> None:
    """Steps are looked up modulo its length; version 0.1 had `tails`, with every step."""
    rows, name = (5, "history") if "history" in entries else (2, "tails")
    past = entries.get(name, np.empty(0))
    if past.ndim != 2 or len(past) != rows or past.shape[1] == 0 or past.dtype != np.float64:
        raise ValueError(f"the {name} of records has the shape {past.shape}")
    if name == "tails" and past.shape[1] <= step:
        raise ValueError(f"there are tails of {past.shape[1]:,} steps, but {step:,} steps")
