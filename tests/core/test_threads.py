"""The workers: nothing that happens to a caller may leave them in a bad state."""

import subprocess
import sys
import threading
from textwrap import dedent

import numpy as np
import pytest
from numba import njit

from hashembed.core import threads
from hashembed.core.threads import run_workers, uninterrupted, wait_for_all

INTERRUPTS = dedent(
    """
    import random, signal, sys
    import numpy as np
    from numba import njit
    from hashembed.core.threads import run_workers, uninterrupted, wait_for_all

    @njit(nogil=True)
    def add_in_rounds(worker, workers, barrier, parts):
        for i in range(20):
            parts[worker] += 1
            wait_for_all(barrier, workers)
            if parts[(worker + 1) % workers] != i + 1:
                return -1
            wait_for_all(barrier, workers)
        return workers

    class Interrupt(BaseException):
        pass

    def interrupt(number, frame):
        raise Interrupt

    assert run_workers(add_in_rounds, 2, np.zeros(2, np.int64)) == [2, 2]  # compiled
    signal.signal(signal.SIGALRM, interrupt)
    rng, seen, counted = random.Random(0), 0, [0, 0]

    def both():
        counted[0] += 1
        run_workers(add_in_rounds, 2, np.zeros(2, np.int64))
        counted[1] += 1

    while seen < int(sys.argv[1]):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 4e-4))
            for _ in range(10):
                assert run_workers(add_in_rounds, 2, np.zeros(2, np.int64)) == [2, 2]
                uninterrupted(both)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            seen += 1
            assert counted[0] == counted[1], counted
    assert run_workers(add_in_rounds, 2, np.zeros(2, np.int64)) == [2, 2]
    print(seen, "interrupts")
    """
)


def run_script(code, *arguments, timeout=120):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "count", [1000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_interrupts_leave_the_team_whole(count):
    assert run_script(INTERRUPTS, count, timeout=900) == f"{count} interrupts\n"


def test_an_interrupt_while_kernels_compile():
    code = """
        import signal, time
        import numpy as np
        from numba import njit
        from hashembed.core.threads import run_workers, wait_for_all

        @njit(nogil=True)
        def meet(worker, workers, barrier, values):
            for _ in range(3):
                wait_for_all(barrier, workers)
                values[worker] = np.sort(np.arange(7.0) * worker)[1]
            return worker

        def interrupt(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            run_workers(meet, 2, np.zeros(2))
        except KeyboardInterrupt:
            print("interrupted")
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(run_workers(meet, 2, np.zeros(2)))
        """
    assert run_script(dedent(code)) == "interrupted\n[0, 1]\n"


@njit(nogil=True)
def fail_in_one(worker, workers, barrier, failing):
    wait_for_all(barrier, workers)
    if worker == failing:
        raise ValueError("a worker's own error")
    wait_for_all(barrier, workers)
    return worker


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_in_one_worker_ends_all(failing):
    with pytest.raises(ValueError, match="a worker's own error"):
        run_workers(fail_in_one, 3, failing)
    assert run_workers(fail_in_one, 3, -1) == [0, 1, 2]


def test_two_callers_take_turns():
    answers = []
    callers = [
        threading.Thread(target=lambda: answers.append(run_workers(fail_in_one, 2, -1)))
        for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert answers == [[0, 1]] * 8


def test_uninterrupted_passes_results_errors_and_context_on():
    assert uninterrupted(lambda: uninterrupted(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        uninterrupted(lambda: np.ones(1) / np.zeros(1))


def test_a_forked_process_has_a_team_of_its_own():
    code = """
        import os
        from tests.core.test_threads import fail_in_one, run_workers
        assert run_workers(fail_in_one, 2, -1) == [0, 1]
        child = os.fork()
        assert run_workers(fail_in_one, 2, -1) == [0, 1]
        if child:
            print(os.waitpid(child, 0)[1])
        """
    assert run_script(dedent(code)) == "0\n"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"/sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"/sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        ({"/sys/fs/cgroup/cpu.max": "damaged"}, 8),
        (
            {
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        ({}, 8),
    ],
)
def test_the_cpu_limit_of_a_container(monkeypatch, files, cores):
    def read_text(path):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(threads.Path, "read_text", read_text)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: set(range(8)))
    threads._cpu_limit.cache_clear()
    try:
        assert threads.cpu_count() == cores
    finally:
        threads._cpu_limit.cache_clear()
