"""Shows how a race goes: one line that changes in a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hashembed.classify.choose.space import name_of
from hashembed.classify.choose.trial import Trial

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Display:
    """Shows nothing."""

    def finish_trial(self, trial: Trial) -> None:
        """A trial is over."""


class PlainLines(Display):
    """A line on standard error for each trial, for logs."""

    def __init__(self) -> None:
        self._done = 0

    def finish_trial(self, trial: Trial) -> None:
        """Print what was tried and its best score."""
        self._done += 1
        loss = f"log loss {min(s.loss for s in trial.scores):.4f}" if trial.scores else "diverged"
        print(
            f"trial {self._done}: {name_of(trial.text)}, {trial.texts:,} texts: {loss}",
            file=sys.stderr,
            flush=True,
        )


class RichBar(Display):
    """A line that counts trials and names the latest."""

    def __init__(self, bar: "Bar") -> None:
        self._bar, self._task = bar, bar.add_task("choosing", total=None, tried="")

    def finish_trial(self, trial: Trial) -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=1, tried=name_of(trial.text))


@contextmanager
def search_display(verbose: bool) -> Iterator[Display]:
    """A line in a terminal, lines elsewhere, nothing unless verbose; on standard error."""
    if not verbose:
        yield Display()
        return
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed} trials"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[tried]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield RichBar(bar)
