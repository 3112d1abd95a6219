"""Progress bars for training: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hashembed.engine.history import Epoch
from hashembed.engine.loop import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_EVERY = 5.0  # seconds between plain lines


class Display:
    """What training shows: nothing. Subclasses show something."""

    def update(self, progress: Progress) -> None:
        """Training has moved on."""

    def finish_pass(self, epoch: Epoch) -> None:
        """A pass is over, and validated if there is data for it."""


class PlainLines(Display):
    """Lines on standard error, for logs."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def update(self, progress: Progress) -> None:
        """A line every few seconds and at the end of a pass."""
        now = time.monotonic()
        done = progress.documents == progress.total
        if now - self._last < LINE_EVERY and not done:
            return
        self._last = now
        print(
            f"pass {progress.epoch + 1}/{progress.passes}: {progress.documents:,} of "
            f"{progress.total:,} texts, {progress.ngrams_per_second / 1e6:.1f}M n-grams/s, "
            f"loss {progress.loss:.4f}",
            file=sys.stderr,
            flush=True,
        )

    def finish_pass(self, epoch: Epoch) -> None:
        """Print the result of validation."""
        if epoch.validation_loss is not None:
            print(epoch, file=sys.stderr, flush=True)


class RichBar(Display):
    """A bar in a terminal: documents, throughput, time left, loss."""

    def __init__(self, bar: "Bar", passes: int, documents: int) -> None:
        self._bar, self._documents = bar, documents
        self._task = bar.add_task("pass 1", total=passes * documents, speed="", loss=float("nan"))

    def update(self, progress: Progress) -> None:
        """Move the bar."""
        self._bar.update(
            self._task,
            completed=progress.epoch * self._documents + progress.documents,
            description=f"pass {progress.epoch + 1}/{progress.passes}",
            speed=f"{progress.ngrams_per_second / 1e6:.1f}M n-grams/s",
            loss=progress.loss,
        )

    def finish_pass(self, epoch: Epoch) -> None:
        """Print the result of validation above the bar."""
        if epoch.validation_loss is not None:
            self._bar.console.print(str(epoch), highlight=False)


@contextmanager
def training_bar(passes: int, documents: int) -> Iterator[Display]:
    """A bar in a terminal, plain lines elsewhere; on standard error."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
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
        yield RichBar(bar, passes, documents)
