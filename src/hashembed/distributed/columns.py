"""The columns of a dataset that are texts and labels, and rows that lack them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I64
from hashembed.core.checks import one_of
from hashembed.core.wording import given, named
from hashembed.distributed.cluster import column_names
from hashembed.readers.report import KEPT, DataError, Problem, number
from hashembed.readers.rows import encoded, joined

FILE = "path"  # the column that Ray's readers add with include_paths=True
NOTE = "hashembed_skipped"  # rows with this column are no data but notes of `read`, in JSON

Names = str | Sequence[str]


@dataclass(frozen=True)
class Columns:
    """Which columns are used, and what happens to a row without a text or a label."""

    texts: tuple[str, ...]
    label: str | None
    on_error: str
    file: str | None = None  # the column with the name of a row's file
    note: str | None = None

    @classmethod
    def of(cls, ds: Any, text: Names, label: str | None, on_error: str = "stop") -> "Columns":
        """Check that the dataset has these columns."""
        one_of("on_error", on_error, ("stop", "skip"))
        texts = (text,) if isinstance(text, str) else tuple(text)
        have = column_names(ds)
        for option, name in [*(("text", t) for t in texts), ("label", label)]:
            if name is not None and name not in have:
                listed = ", ".join(map(repr, have)) or "none"
                raise DataError(
                    f"{named(option)}: found no column {name!r}, the columns are {listed}"
                )
        file = FILE if FILE in have and FILE not in (*texts, label) else None
        return cls(texts, label, on_error, file, NOTE if NOTE in have else None)

    @property
    def names(self) -> list[str]:
        """All columns that are used."""
        return list(dict.fromkeys(filter(None, [*self.texts, self.label, self.file, self.note])))

    def select(self, ds: Any) -> Any:
        """The dataset with these columns only."""
        return ds.select_columns(self.names)

    def read(self, first: int, table: pa.Table, skipped: "Skipped") -> "Texts":
        """Texts and labels of a block whose rows begin at `first`; bad rows are left out."""
        table = self.without_notes(table, skipped)
        texts, numbers = self.texts_of(table), first + np.arange(len(table))
        labels = None if self.label is None else table[self.label].combine_chunks()
        bad = texts.is_null()
        if labels is not None:
            import pyarrow.compute as pc

            bad = pc.or_(bad, _missing_label(labels))
        wrong = np.flatnonzero(bad.to_numpy(zero_copy_only=False))
        if len(wrong) == 0:
            return Texts(texts, labels, numbers)
        problems = (self._problem(first, int(row), table, texts) for row in wrong)
        if self.on_error == "stop":
            raise DataError(f"{next(problems)} ({to_skip()})")
        skipped.add(problems, len(wrong))
        good = np.delete(np.arange(len(table)), wrong)
        kept = None if labels is None else labels.take(good)
        return Texts(texts.take(good), kept, numbers[good])

    def texts_of(self, table: pa.Table) -> Any:
        """The column of texts; several are joined by a space."""
        return joined([_strings(table[name], name) for name in self.texts])

    def without_notes(self, table: pa.Table, skipped: "Skipped") -> pa.Table:
        """The rows that are data. What `read` noted in others is added to `skipped`."""
        if self.note is None:
            return table
        import pyarrow.compute as pc

        notes = table[self.note]
        for text in notes.drop_null().to_pylist():
            skipped.add_note(text)
        return table if notes.null_count == len(table) else table.filter(pc.is_null(notes))

    def _problem(self, first: int, row: int, table: pa.Table, texts: Any) -> Problem:
        what = "the text is missing" if not texts[row].is_valid else "the label is missing"
        file = "the dataset" if self.file is None else f"{table[self.file][row].as_py()}"
        unit = "row" if self.file is None else "row of the dataset"
        return Problem(file, first + row + 1, what, unit)


class Texts(NamedTuple):
    """Good rows of a block."""

    texts: Any  # a large_string array
    labels: Any  # an array, or None
    numbers: I64  # of the rows in the dataset, from 0


def to_skip() -> str:
    """What to do about a row that cannot be used."""
    return f"to skip such rows, give {given('on_error', 'skip')}"


@dataclass
class Skipped:
    """Rows that were left out: how many, and the problems of the first."""

    rows: int = 0
    problems: list[Problem | str] = field(default_factory=list)  # strings are notes of `read`

    def add(self, problems: Iterable[Problem | str], rows: int) -> None:
        """Count rows, and keep some of their problems."""
        self.rows += rows
        self.problems += islice(problems, max(KEPT - len(self.problems), 1))

    def to_json(self) -> str:
        """As one string, for a column of a table."""
        import json

        found = [p if isinstance(p, str) else asdict(p) for p in self.problems]
        return json.dumps({"rows": self.rows, "problems": found})

    @classmethod
    def from_json(cls, saved: str, first: int) -> "Skipped":
        """From `to_json`, of rows that begin at `first`; "" is nothing."""
        import json

        if not saved:
            return cls()
        found = json.loads(saved)
        problems = [
            p if isinstance(p, str) else Problem(**{**p, "line": p["line"] + first})
            for p in found["problems"]
        ]
        return cls(found["rows"], problems)

    @property
    def first_problem(self) -> Problem | None:
        """The first problem of the dataset itself: `read` was told what to do about its own."""
        return next((p for p in self.problems if isinstance(p, Problem)), None)

    def add_note(self, note: str) -> None:
        """Count what a note of `read` counts."""
        import json

        found = json.loads(note)
        self.add(found["problems"], found["rows"])

    def __add__(self, other: "Skipped") -> "Skipped":
        return Skipped(self.rows + other.rows, (self.problems + other.problems)[:KEPT])

    def __str__(self) -> str:
        text = f"skipped {number(self.rows, 'row')}"
        if not self.problems:
            return text
        more = self.rows - min(3, len(self.problems))
        listed = "; ".join(map(str, self.problems[:3]))
        return f"{text}: {listed}" + (f"; and {more:,} more" if more > 0 else "")


def _strings(column: Any, name: str) -> Any:
    """A column of text as one array of large strings."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if not text and str(kind) != "string_view":
        raise DataError(f"the text column {name!r} holds {kind}, expected strings")
    whole = column.cast(pa.large_string()).combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _missing_label(labels: Any) -> Any:
    """Which rows have no label: null, or a blank string."""
    import pyarrow.compute as pc

    missing = labels.is_null()
    if pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
        blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(labels)), 0)
        missing = pc.or_(missing, pc.fill_null(blank, True))
    return missing


def as_labels(column: Any) -> Any:
    """Labels in a form that is quick to number."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return encoded(column)
    return column
