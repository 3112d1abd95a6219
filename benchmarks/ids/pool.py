"""Many runs at once: processes that share a device, and one file that gets every result."""

import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from benchmarks.ids.data import Task, make_task, read_sets

Work = Callable[[Task], Iterable[dict]]  # with an attribute `task`: the name of its task


def work_through(
    jobs: list[Work], source: Path, device: str, workers: int, seconds: float, out: Path
) -> None:
    """Each job in some process; stops after so many seconds, and keeps what has ended by then."""
    deadline = time.time() + seconds
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for job in jobs:
        waiting.put(job)
    for _ in range(workers):
        waiting.put(None)
    arguments = (waiting, done, source, device, deadline)
    processes = [context.Process(target=_serve, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    running, count = workers, 0
    with open(out, "a", encoding="utf8") as file:
        while running:
            record = done.get()
            if record is None:
                running -= 1
                continue
            count += 1
            file.write(json.dumps(record) + "\n")
            file.flush()
            if "error" in record or count % 100 == 0:
                left = deadline - time.time()
                print(f"{count} runs, {left:.0f} s left", record.get("error", ""), flush=True)
    for process in processes:
        process.join()
    print(f"{count} runs", flush=True)


def _serve(waiting, done, source: Path, device: str, deadline: float) -> None:
    torch.set_num_threads(1)
    sets, tasks = read_sets(source), {}
    while (job := waiting.get()) is not None and time.time() < deadline:
        if job.task not in tasks:
            tasks[job.task] = make_task(job.task, sets, device)
        try:
            for record in job(tasks[job.task]):
                done.put(record)
                if time.time() > deadline:
                    break
        except Exception:  # a run that fails must not end the others
            done.put({"job": repr(job), "error": traceback.format_exc()[-1500:]})
    done.put(None)


def read_runs(path: Path) -> Iterator[dict]:
    """The runs of a file that did not fail; none if there is no file."""
    lines = path.read_text(encoding="utf8").splitlines() if path.exists() else []
    for line in lines:
        record = json.loads(line)
        if "error" not in record:
            yield record
