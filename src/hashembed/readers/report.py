"""What was read, what was skipped and why."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

KEPT = 20  # problems that a report lists; all are counted
WINDOWS = "Windows-1252"  # what lines that are not UTF-8 are read as
_SHOWN = 3  # problems that its text shows


class DataError(ValueError):
    """Data that cannot be read; the message names the file and the line."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file; `line` counts from 1, and is None for a file as a whole."""

    file: str
    line: int | None
    reason: str
    unit: str = "line"  # "row" in Parquet files, which have no lines

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, {self.unit} {self.line:,}"
        return f"{place}: {self.reason}"


@dataclass
class Report:
    """What a reading found.

    skipped: rows left out, or texts left empty, because of a problem, with `on_error="skip"`.
    repaired: lines kept although they were not UTF-8; `repairs` says how they were read.
    problems, repairs: the first of them.
    encodings: those found besides UTF-8.
    labels, texts: the columns taken, as in "column 1" or "columns 'title', 'text'"; more than one
        entry where files differ.
    notes: what else was recognised, such as a header.
    warnings: what was read, but may not be what was meant.
    """

    rows: int = 0
    skipped: int = 0
    repaired: int = 0
    files: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    encodings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    repairs: list[Problem] = field(default_factory=list)

    def skip(self, problems: Iterable[Problem], rows: int) -> None:
        """Count rows with problems, and list those that are among the first."""
        self.skipped += rows
        self.problems += islice(problems, KEPT - len(self.problems))

    def repair(self, problem: Problem) -> None:
        """Count a line that was made readable."""
        self.repaired += 1
        if WINDOWS in problem.reason:
            add_once(self.encodings, WINDOWS)
        if len(self.repairs) < KEPT:
            self.repairs.append(problem)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        text = f"read {_number(self.rows, 'row')} from {_number(len(self.files), 'file')}"
        if self.formats:
            text += f" ({', '.join(self.formats)})"
        if self.labels:
            text += f", label = {' or '.join(self.labels)}"
        if self.texts:
            text += f", text = {' or '.join(self.texts)}"
        for note in self.notes:
            text += f", {note}"
        if self.encodings:
            text += f", encoding {', '.join(self.encodings)}"
        if self.repaired:
            text += f"; repaired {_number(self.repaired, 'line')}: "
            text += _listed(self.repairs, self.repaired)
        if self.skipped:
            text += f"; skipped {_number(self.skipped, 'row')}: "
            text += _listed(self.problems, self.skipped)
        elif self.problems:
            text += f"; problems: {_listed(self.problems, len(self.problems))}"
        for warning in self.warnings:
            text += f"\nWarning: {warning}."
        return text


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _listed(problems: list[Problem], count: int) -> str:
    shown = [str(problem) for problem in problems[:_SHOWN]]
    more = [f"and {count - len(shown):,} more"] if count > len(shown) else []
    return "; ".join(shown + more)


def add_once(items: list[str], item: str | None) -> None:
    """Append what is not there yet."""
    if item is not None and item not in items:
        items.append(item)
