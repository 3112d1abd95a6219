"""Progress bars for training: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hashembed.training import Progress

Callbacks = list[Callable[[Progress], object]]

LINE_EVERY = 5.0  # seconds between plain lines


@contextmanager
def no_bar() -> Iterator[Callbacks]:
    """Nothing to see."""
    yield []


@contextmanager
def training_bar(passes: int, documents: int) -> Iterator[Callbacks]:
    """Documents, throughput, time left, loss; on standard error."""
    if sys.stderr.isatty():
        with _rich_bar(passes, documents) as callback:
            yield [callback]
    else:
        yield [_plain_lines()]


@contextmanager
def _rich_bar(passes: int, documents: int) -> Iterator[Callable[[Progress], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("left, loss {task.fields[loss]:.4f}"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("pass 1", total=passes * documents, speed="", loss=float("nan"))

        def update(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.epoch * documents + progress.documents,
                description=f"pass {progress.epoch + 1}/{progress.passes}",
                speed=f"{progress.ngrams_per_second / 1e6:.1f}M n-grams/s",
                loss=progress.loss,
            )

        yield update


def _plain_lines() -> Callable[[Progress], object]:
    last = time.monotonic()

    def write(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        done = progress.documents == progress.total
        if now - last < LINE_EVERY and not done:
            return
        last = now
        print(
            f"pass {progress.epoch + 1}/{progress.passes}: {progress.documents:,} of "
            f"{progress.total:,} texts, {progress.ngrams_per_second / 1e6:.1f}M n-grams/s, "
            f"loss {progress.loss:.4f}",
            file=sys.stderr,
            flush=True,
        )

    return write
