"""Threads for Numba kernels: the pool that runs them and the barrier that they meet at.

Numba's own `parallel=True` takes its threads from a layer that may not survive a fork or a second
caller, and takes seconds longer to compile. A kernel here is an ordinary `nogil` function that is
told which worker of how many it is.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.compiling import njit
from hashembed.intrinsics import atomic_add, atomic_load, yield_core

# Spinning is cheapest while every worker has a core; with more workers than cores the one that is
# waited for may need ours.
_SPINS_BEFORE_YIELD = 1000

_ARRIVED, _ROUND = 0, 8  # two counters, a cache line apart


def cpu_count() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def run_workers(kernel: Callable[..., Any], workers: int, *arguments: Any) -> list[Any]:
    """kernel(worker, workers, barrier, *arguments) on all workers at once -> their results."""
    if workers == 1:
        return [kernel(0, 1, _barrier(), *arguments)]
    if _team.lock.acquire(blocking=False):
        try:
            return _team.run(kernel, workers, *arguments)
        finally:
            _team.lock.release()
    barrier = _barrier()  # somebody else has the team: threads for this call alone
    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(kernel, w, workers, barrier, *arguments) for w in range(workers)]
        return [task.result() for task in tasks]


def _barrier() -> npt.NDArray[np.int64]:
    return np.zeros(16, np.int64)


class _Team:
    """Threads that stay, for a caller that does the first worker's part itself.

    Kernels meet at barriers, so all workers must run at once: one caller at a time.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(1)
        self.size = 1

    def run(self, kernel: Callable[..., Any], workers: int, *arguments: Any) -> list[Any]:
        if self.size < workers - 1:
            self.pool.shutdown(wait=False)
            self.pool, self.size = ThreadPoolExecutor(workers - 1), workers - 1
        barrier = _barrier()
        rest = [
            self.pool.submit(kernel, w, workers, barrier, *arguments) for w in range(1, workers)
        ]
        return [kernel(0, workers, barrier, *arguments), *(task.result() for task in rest)]


_team = _Team()


def _forget_threads() -> None:
    """A forked process has none of them."""
    global _team
    _team = _Team()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


@njit
def wait_for_all(barrier, workers):
    """Return when every worker has called this as often as the caller has."""
    if workers == 1:
        return
    current = atomic_load(barrier, _ROUND)
    if atomic_add(barrier, _ARRIVED, 1) == workers - 1:
        atomic_add(barrier, _ARRIVED, -workers)
        atomic_add(barrier, _ROUND, 1)
        return
    spins = 0
    while atomic_load(barrier, _ROUND) == current:
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            yield_core()
