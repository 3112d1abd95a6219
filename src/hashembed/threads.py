"""Threads for Numba kernels: the pool that runs them and the barrier that they meet at.

Numba's own `parallel=True` takes its threads from a layer that may not survive a fork or a second
caller, and takes seconds longer to compile. A kernel here is an ordinary `nogil` function that is
told which worker of how many it is.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

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
    barrier = np.zeros(16, np.int64)
    if workers == 1:
        return [kernel(0, 1, barrier, *arguments)]
    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(kernel, w, workers, barrier, *arguments) for w in range(workers)]
        return [task.result() for task in tasks]


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
