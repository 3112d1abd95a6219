"""What was read, what was skipped and why."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

KEPT = 20  # problems that a report lists; it counts all
WINDOWS = "Windows-1252"  # the encoding assumed for lines that are not UTF-8
_SHOWN = 3  # problems that its text shows


class DataError(ValueError):
    """Data that cannot be read. The message names the file and the line."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file; `line` counts from 1, or is None for the whole file."""

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

    skipped: number of rows left out, or of texts left empty, with `on_error="skip"`.
    repaired: number of lines that were not UTF-8 and could be read anyway.
    problems, repairs: the first of them, with reasons.
    encodings: those found in addition to UTF-8.
    labels, texts: the columns used, as in "column 1" or "columns 'title', 'text'"; more than one
        entry if files differ.
    notes: what else was detected, such as a header.
    warnings: signs that the data was not read as intended.
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
        """Count rows with problems, and list the first ones."""
        self.skipped += rows
        self.problems += islice(problems, KEPT - len(self.problems))

    def repair(self, problem: Problem) -> None:
        """Count a line that was repaired."""
        self.repaired += 1
        if WINDOWS in problem.reason:
            add_once(self.encodings, WINDOWS)
        if len(self.repairs) < KEPT:
            self.repairs.append(problem)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        text = f"read {number(self.rows, 'row')} from {number(len(self.files), 'file')}"
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
            text += f"; repaired {number(self.repaired, 'line')}: "
            text += _listed(self.repairs, self.repaired)
        if self.skipped:
            text += f"; skipped {number(self.skipped, 'row')}: "
            text += _listed(self.problems, self.skipped)
        elif self.problems:
            text += f"; problems: {_listed(self.problems, len(self.problems))}"
        for warning in self.warnings:
            text += f"\nWarning: {warning}."
        return text


def number(count: int, thing: str) -> str:
    """'1 row', '2,000 rows'."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _listed(problems: list[Problem], count: int) -> str:
    shown = [str(problem) for problem in problems[:_SHOWN]]
    more = [f"and {count - len(shown):,} more"] if count > len(shown) else []
    return "; ".join(shown + more)


def add_once(items: list[str], item: str | None) -> None:
    """Append an item unless it is None or already there."""
    if item is not None and item not in items:
        items.append(item)
