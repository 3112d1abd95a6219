"""The history of a table: what the past steps would have done to a row that missed them.

A tensor (5, size), float64, used as a ring; `nn/cpu/row_kernels.py` says what its rows hold and how
kernels read them.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import F64
from hashembed.nn.cpu.powers import powers_of_two
from hashembed.nn.cpu.row_kernels import EPS, LOG_KEPT, LOG_M, LOG_V, TAIL

SHORTEST, LONGEST = 2**10, 2**16  # steps that a history holds on the CPU

_NEGLIGIBLE = math.log2(1e-10)  # momentum of a skipped row that decayed below this is dropped
_RECENT = 256  # steps whose factors are computed once for all rows; steps looked back on at a time
_LOGS = slice(LOG_M, None)
_NO_FACTOR = -2000.0  # stands for log2(0): two to this power is 0


class Step(NamedTuple):
    """What one step does to a row without a gradient."""

    log_m: float  # logarithms to the base 2 of the factors by which m, v and the weights shrink
    log_v: float
    log_kept: float
    move: float  # by how much a row moves if its moments were 1 just before this step
    epsilon: float = 0.0  # added to the root of v, for rows that this step updates


def log2(factor: float) -> float:
    """The logarithm to the base 2 of a factor from 0 on."""
    return math.log2(factor) if factor > 0 else _NO_FACTOR


def make_history(step: int, epsilon: float, device: torch.device) -> Tensor:
    """A history that begins after `step` steps; epsilon: that of the next step."""
    size = SHORTEST
    while size <= 2 * step and size < LONGEST:
        size *= 2
    history = torch.zeros(5, size, dtype=torch.float64)
    history[EPS, step % size] = epsilon
    return history.to(device)


def from_tails(tails: Tensor, step: int, betas: tuple[float, float]) -> Tensor:
    """The history of a state that was saved when there were only tails: betas were constant."""
    size = tails.shape[1]
    steps = torch.arange(max(0, step - size + 1), step + 1, device=tails.device)
    history = torch.zeros(5, size, dtype=torch.float64, device=tails.device)
    history[: len(tails)] = tails
    for row, beta in zip((LOG_M, LOG_V), betas, strict=True):
        history[row, steps % size] = steps.double() * math.log2(beta)
    return history


def resized(history: Tensor, step: int, size: int) -> Tensor:
    """The same for `size` steps; the oldest ones are dropped if there are more."""
    kept = min(size, history.shape[1], step + 1)
    steps = torch.arange(step + 1 - kept, step + 1, device=history.device)
    out = history.new_zeros(len(history), size)
    out[:, steps % size] = history[:, steps % history.shape[1]]
    return out


def recent_factors(history: F64, now: int) -> F64:
    """The factors by which m, v and the weights shrink in the last 0, 1, 2, ... steps (3, n)."""
    size = history.shape[1]
    steps = np.arange(now, max(now - min(_RECENT, size), -1), -1) % size
    logs = history[_LOGS]
    return _powers(logs[:, now % size, None] - logs[:, steps])


def add_step(history: F64, number: int, step: Step) -> None:
    """Add step `number`, for the rows that miss it."""
    size = history.shape[1]
    here, last = number % size, (number - 1) % size
    history[_LOGS, here] = history[_LOGS, last] + (step.log_m, step.log_v, step.log_kept)
    history[TAIL, here] = 0.0
    history[EPS, here] = step.epsilon
    level = _log_move(history[:, here])
    end, first = number, max(1, number - size + 1)
    while end > first:  # back in time, until momentum from then is spent
        begin = max(first, end - _RECENT)
        steps = np.arange(begin, end) % size
        power = level - _log_move(history[:, steps])
        history[TAIL, steps] += step.move * _powers(power)
        end = begin if power[0] > _NEGLIGIBLE else first


def _log_move(history: F64) -> F64:
    """How far a row moves by its momentum, as a logarithm: m / sqrt(v), and undone by kept."""
    moved: F64 = history[LOG_M] - 0.5 * history[LOG_V] - history[LOG_KEPT]
    return moved


def _powers(x: F64) -> F64:
    """2^x."""
    powers = np.empty(x.shape)
    powers_of_two(np.ascontiguousarray(x).reshape(-1), powers.reshape(-1))
    return powers
