"""Threads for kernels: the workers that run them and the barrier where they wait.

Numba's own `parallel=True` takes seconds longer to compile, and its threading layer may not survive
a fork or a second caller. A kernel here is an ordinary `nogil` function that gets its worker's
number and the number of workers.

The caller's thread does no work. It hands the whole job to a thread of this module (the leader) in
one atomic step, and waits. Python raises KeyboardInterrupt, and exceptions of other signal
handlers, only in the main thread. So no exception can stop a single worker while others wait for it
at a barrier, and a job that has begun always finishes.
"""

import _thread
import atexit
import contextvars
import os
import threading
from collections.abc import Callable
from functools import cache
from math import ceil, inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.intrinsics import atomic_add, atomic_load, sleep_briefly, yield_core
from hashembed.core.native.call import NativeFailedError, as_worker
from hashembed.core.njit import Kernel, njit

Result = TypeVar("Result")
Work = Callable[[int, int], Any]  # of a worker's number and the number of workers

# Spinning is cheapest while every worker has a core. With more workers than cores, the worker that
# the others wait for may need this one's core. A thread that yields is soon scheduled again, so
# where other processes want the cores, it has to sleep.
_SPINS_BEFORE_YIELD, _SPINS_BEFORE_SLEEP = 1000, 1100

_ARRIVED, _ROUND, _GIVEN_UP = 0, 8, 16  # three counters, a cache line apart


class WorkerFailedError(RuntimeError):
    """Another worker raised an exception, so this one stopped at the barrier."""


def cpu_count() -> int:
    """Cores that this process may use, also within the CPU limit of a container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
    return max(1, min(cores, ceil(min(_cpu_limit(), cores))))


@cache
def _cpu_limit() -> float:
    """Cores' worth of time that the control group of this process may use."""
    try:  # version 2; a container sees its own group at the root
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:  # version 1
            quota, period = (
                Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").read_text()
                for name in ("quota", "period")
            )
        except OSError:
            return inf
    try:
        limit = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return inf
    return limit if limit > 0 else inf


def run_workers(kernel: Callable[..., Any], workers: int, *arguments: Any) -> list[Any]:
    """kernel(worker, workers, barrier, *arguments) on all workers at once -> their results.

    There may be fewer workers than requested if the system refuses more threads.
    """
    barrier = np.zeros(24, np.int64)
    work = _worker_of(kernel, barrier, arguments)
    if workers == 1:
        return [work(0, 1)]
    return uninterrupted(lambda: _run_together(work, workers, barrier))


def uninterrupted(function: Callable[[], Result]) -> Result:
    """function(), on the leader's thread: it runs completely, or not at all.

    An exception raised in the caller's thread meanwhile (Ctrl-C, a timer) is delayed until the
    function has returned. Calls from several threads run one after the other.
    """
    if hasattr(_this_thread, "crew"):  # already there
        return function()
    job = _Job(function)
    try:
        _inbox_of_leader().put(job)
        job.wait()
    except BaseException:
        if not job.claim():  # it has begun
            job.wait_to_the_end()
        raise
    if job.error is not None:
        try:
            raise job.error
        finally:
            del job  # its traceback holds this frame
    return cast(Result, job.result)


class _Job:
    """A function for the leader. An exception cannot leave its raw locks half-acquired."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.context = contextvars.copy_context()
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self._claimed = _thread.allocate_lock()
        self._finished = _thread.allocate_lock()
        self._finished.acquire()

    def claim(self) -> bool:
        """Try to take the job, to run or to drop it; False if another thread has it already."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        if not self.claim():
            return
        try:
            self.result = self.context.run(self.function)
        except BaseException as error:
            self.error = error
        self.done = True
        self._finished.release()

    def wait(self) -> None:
        while not self.done:
            self._finished.acquire()

    def wait_to_the_end(self) -> None:
        while not self.done:
            try:
                self.wait()
            except BaseException:  # the caller is about to raise one already
                continue


class _Crew:
    """The threads that work with the leader."""

    def __init__(self) -> None:
        self.inboxes: list[SimpleQueue[Callable[[], object]]] = []

    def grow(self, size: int) -> int:
        """Start threads until there are `size` -> how many can be used."""
        while len(self.inboxes) < size:
            inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
            try:
                _thread.start_new_thread(_serve, (inbox,))
            except RuntimeError:  # the system refuses more
                break
            self.inboxes.append(inbox)
        return min(size, len(self.inboxes))


def _serve(inbox: "SimpleQueue[Callable[[], object]]") -> None:
    while True:
        inbox.get()()


def _lead(inbox: "SimpleQueue[_Job]") -> None:
    _this_thread.crew = _Crew()
    while True:
        inbox.get().run()


def _run_together(work: Work, workers: int, barrier: I64) -> list[Any]:
    """On the leader's thread: start the other workers, run the first one, collect the results."""
    crew: _Crew = _this_thread.crew
    workers = 1 + crew.grow(workers - 1)
    results: list[Any] = [None] * workers
    errors: list[BaseException | None] = [None] * workers
    finished: SimpleQueue[None] = SimpleQueue()

    def attempt(worker: int) -> None:
        try:
            results[worker] = work(worker, workers)
        except BaseException as error:
            errors[worker] = error
            barrier[_GIVEN_UP] = 1  # so that nobody waits for this worker
        finished.put(None)

    for worker in range(1, workers):
        crew.inboxes[worker - 1].put(lambda worker=worker: attempt(worker))  # type: ignore[misc]
    attempt(0)
    for _ in range(workers):
        finished.get()
    failed = [error for error in errors if error is not None]
    if failed:
        stopped = (WorkerFailedError, NativeFailedError)  # perhaps because another one failed
        raise next((e for e in failed if not isinstance(e, stopped)), failed[0])
    return results


def _worker_of(kernel: Callable[..., Any], barrier: I64, arguments: Any) -> Work:
    """What each worker runs. Arguments of a native kernel are packed once for all of them."""
    values = (0, 1, barrier, *arguments)
    if isinstance(kernel, Kernel):
        if (native := kernel.native) is not None and (packed := native.pack(values)) is not None:
            return lambda worker, workers: native.run(as_worker(packed, worker, workers))
        if kernel.must_compile(values):
            # Without interruption: an exception could leave Numba's registries incomplete.
            uninterrupted(lambda: kernel.compile_for(values))
    return lambda worker, workers: kernel(worker, workers, barrier, *arguments)


_this_thread = threading.local()
_leader: "SimpleQueue[_Job] | None" = None


def _inbox_of_leader() -> "SimpleQueue[_Job]":
    global _leader
    if _leader is None:
        # An exception before the assignment leaves only an idle thread behind.
        inbox: SimpleQueue[_Job] = SimpleQueue()
        _thread.start_new_thread(_lead, (inbox,))
        _leader = inbox
    return _leader


def _forget_threads() -> None:
    """A forked process has none of the threads."""
    global _this_thread, _leader
    _this_thread, _leader = threading.local(), None


def _finish() -> None:
    """Wait at exit for a running job: kernels must not outlive the interpreter."""
    if _leader is not None:
        uninterrupted(lambda: None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
atexit.register(_finish)


@njit
def wait_for_all(barrier, workers):
    """A barrier: return when every worker has called this as often as this worker has."""
    if workers == 1:
        return
    current = atomic_load(barrier, _ROUND)
    if atomic_add(barrier, _ARRIVED, 1) == workers - 1:
        atomic_add(barrier, _ARRIVED, -workers)
        atomic_add(barrier, _ROUND, 1)
        return
    spins = 0
    while atomic_load(barrier, _ROUND) == current:
        if atomic_load(barrier, _GIVEN_UP) != 0:
            raise WorkerFailedError("another worker failed")
        spins += 1
        if spins > _SPINS_BEFORE_SLEEP:
            sleep_briefly()
        elif spins > _SPINS_BEFORE_YIELD:
            yield_core()
