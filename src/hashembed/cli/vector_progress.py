"""What `hashembed vectors` shows while it reads and trains."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from hashembed.cli.corpus import Corpus
    from hashembed.vectors.training import VectorProgress

LINE_EVERY = 5.0  # seconds between plain lines


class VectorDisplay:
    """Shows nothing. Subclasses show something."""

    def say(self, line: object) -> None:
        """Show a line that stays."""

    def read(self, reading: int, count: int) -> None:
        """So many bytes of text were read, in this reading of the corpus."""

    def train(self, progress: "VectorProgress") -> None:
        """Training has moved on."""


class PlainLines(VectorDisplay):
    """Lines on standard error, for logs."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._shown = 0  # passes whose end was shown

    def say(self, line: object) -> None:
        """Print it."""
        _print(str(line))

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._last < LINE_EVERY:
            return False
        self._last = now
        return True

    def read(self, reading: int, count: int) -> None:
        """A line every few seconds."""
        if self._is_time():
            _print(f"reading {reading}: {count / 1e6:,.0f} MB of text")

    def train(self, progress: "VectorProgress") -> None:
        """A line every few seconds and at the end of a pass."""
        ended = progress.words * progress.passes >= (progress.epoch + 1) * progress.total
        if not self._is_time() and not (ended and self._shown <= progress.epoch):
            return
        self._shown = progress.epoch + ended
        _print(
            f"pass {progress.epoch + 1}/{progress.passes}: {count_of(progress.words)} of "
            f"{count_of(progress.total)} words, {speed_of(progress)}, loss {progress.loss:.4f}, "
            f"{duration(progress.seconds_left)} left"
        )


class Bars(VectorDisplay):
    """A bar in a terminal: first for reading, then for training."""

    def __init__(self, bar: "Progress", corpus: "Corpus") -> None:
        self._bar, self._corpus = bar, corpus
        self._task: Any = bar.add_task("Reading", total=None, state="", left="")
        self._training = False

    def say(self, line: object) -> None:
        """Print it above the bar."""
        self._bar.console.print(str(line), highlight=False, markup=False, soft_wrap=True)

    def read(self, reading: int, count: int) -> None:
        """Later readings are as long as the first."""
        self._bar.update(
            self._task,
            description="Reading" if reading == 1 else f"Reading ({reading})",
            completed=count,
            total=self._corpus.bytes or None,
            state=f"{count / 1e6:,.0f} MB",
        )

    def train(self, progress: "VectorProgress") -> None:
        """The bar spans all passes."""
        if not self._training:
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task("", total=progress.total, state="", left="")
            self._training = True
        self._bar.update(
            self._task,
            description=f"pass {progress.epoch + 1}/{progress.passes}",
            completed=progress.words,
            total=progress.total,
            state=f"{speed_of(progress)}  loss {progress.loss:.4f}",
            left=f"{duration(progress.seconds_left)} left",
        )


@contextmanager
def vector_display(corpus: "Corpus", quiet: bool) -> Iterator[VectorDisplay]:
    """Bars in a terminal, plain lines elsewhere, on standard error; nothing if quiet."""
    if quiet:
        yield VectorDisplay()
        return
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[state]}  {task.fields[left]}"),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bars(bar, corpus)


def speed_of(progress: "VectorProgress") -> str:
    """'1.3M words/s'."""
    return f"{count_of(progress.words_per_second)} words/s"


def count_of(number: float) -> str:
    """950, 12k, 1.3M, 4.2G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.{0 if number >= 100 * size or unit == 'k' else 1}f}{unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """'35 s', '2:05 min', '3:10 h'."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
