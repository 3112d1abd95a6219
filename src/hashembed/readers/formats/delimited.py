"""CSV, TSV and their relatives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.wording import given
from hashembed.readers.formats.columns import Choice, by_name, choose, describe, find
from hashembed.readers.formats.delimited_kernels import AFTER_QUOTE, GOOD, PLAIN
from hashembed.readers.formats.dialect import (
    Dialect,
    Table,
    cells_of,
    patience_for,
    recognise,
    sample_of,
)
from hashembed.readers.formats.headers import is_header
from hashembed.readers.report import DataError, Problem
from hashembed.readers.rows import (
    Options,
    Parser,
    Rows,
    encoded,
    kept_columns,
    null_where,
    unique_names,
)

_FORMATS = {",": "CSV", "\t": "TSV"}


class Delimited:
    """Rows of delimited text.

    before: the first file of the same reading. A file without a header uses the same columns, a
    file with a header the columns of the same names.
    """

    def __init__(
        self, sample: bytes, last: bool, options: Options, file: str, before: "Delimited | None"
    ):
        self.file = file
        self.dialect: Dialect
        self.escapes: bool | None
        if before is not None:
            old = before.dialect
            options = replace(options, delimiter=old.delimiter, quotes=old.quotes)
        self.dialect = recognise(sample, last, options)
        cells, kinds = cells_of(sample, last, self.dialect)
        self.header = options.header
        if self.header is None:
            self.header = self._has_header(cells, options, before)
        self.names = _names(cells[0], self.dialect.columns) if self.header else None
        if self.names is not None:
            self.dialect = replace(self.dialect, columns=len(self.names))
        elif before is not None:
            self.dialect = replace(self.dialect, columns=before.dialect.columns)
        rows = [row for row in cells[self.header :] if len(row) == self.dialect.columns]
        self.choice = self._choose(rows, options, before)
        try:
            self.kept = kept_columns(
                options.keep,
                self.dialect.columns,
                lambda wanted: find("keep", wanted, self.names, self.dialect.columns),
            )
        except DataError as error:
            raise DataError(f"{file}: {error}") from None
        self.escapes = before.escapes if before is not None else options.escapes
        if self.escapes is None:
            self.escapes = not self.header and self._is_zhang_form(rows, kinds)
        self._drop_header = self.header

        delimiter = self.dialect.delimiter
        self.format = _FORMATS.get(delimiter, f"CSV with {delimiter!r}")
        self.label = describe(self.choice.label, self.names)
        self.text = describe(self.choice.texts, self.names)
        self.notes = ["with a header"] if self.header else []
        self.notes += ["\\n read as a line end"] if self.escapes else []
        self.notes += ["quotes kept as they are"] if not self.dialect.quotes else []

    @property
    def taken(self) -> set[str]:
        """The names of the columns used."""
        label, texts = self.choice.label, self.choice.texts
        return {self.names[c] for c in (label, *texts) if c is not None} if self.names else set()

    def _has_header(
        self, cells: list[list[str]], options: Options, before: "Delimited | None"
    ) -> bool:
        if before is None and by_name(options):
            return True
        if before is not None and before.header and before.taken <= set(cells[0]):
            return True
        return is_header(cells[0], cells[1:])

    def _choose(
        self, rows: list[list[str]], options: Options, before: "Delimited | None"
    ) -> Choice:
        if before is not None and (not self.header or self.names == before.names):
            return before.choice
        names = before.names if before is not None else None
        if before is not None and names is not None and before.taken <= set(self.names or ()):
            label, texts = before.choice.label, before.choice.texts
            options = replace(
                options,
                label=None if label is None else names[label],
                text=[names[c] for c in texts],
            )
        try:
            return choose(self.names, rows, self.dialect.columns, options)
        except DataError as error:
            raise DataError(f"{self.file}: {error}. {self._about_the_header()}") from None

    def _about_the_header(self) -> str:
        if self.header:
            return f"Row 1 was read as the header; if it is data, give {given('header', False)}"
        return f"Row 1 was read as data; if it names the columns, give {given('header', True)}"

    def _is_zhang_form(self, rows: list[list[str]], kinds: list[list[int]]) -> bool:
        """Whether it is "class","title","text" of Zhang et al., all of it quoted."""
        return (
            self.dialect.delimiter == ","
            and bool(rows)
            and all(row[0].isdecimal() for row in rows)
            and all(kind != PLAIN for row in kinds for kind in row)
        )

    def parse(self, data: bytes, line: int, patience: int) -> tuple[Rows, int]:
        """See `Parser`."""
        label, texts = self.choice.label, self.choice.texts
        taken = texts if label is None else (label, *texts)
        scanned = (*taken, *(c for c in self.kept if c not in taken))
        slots = [-1] * (max(scanned) + 1)
        for slot, column in enumerate(scanned):
            slots[column] = slot
        dialect = self.dialect
        table = Table.scan(data, line, patience, dialect, slots)
        well_formed = np.flatnonzero(table.wrong == GOOD)
        if self._drop_header and len(well_formed):
            table = table.take(np.arange(len(table.wrong)) != well_formed[0])
            self._drop_header = False
        good = (table.wrong == GOOD) & (table.fields == dialect.columns)
        first = len(taken) - len(texts)
        labels = encoded(table.join(slice(0, 1), good, False)) if first else None
        out = table.join(slice(first, len(taken)), good, bool(self.escapes))
        rows = Rows(
            labels,
            out,
            table.lines,
            bad=~good,
            explain=lambda row: Problem(self.file, int(table.lines[row]), self._reason(table, row)),
            kept=self._kept_cells(table, slots, good),
        )
        return rows, table.used

    def _kept_cells(self, table: Table, slots: list[int], good: Any) -> pa.Table | None:
        """The columns to keep, unchanged; null in bad rows."""
        if not self.kept:
            return None
        names, cells = unique_names(self.names, self.dialect.columns), {}
        for column in self.kept:
            slot = slots[column]
            values = table.join(slice(slot, slot + 1), good, False)
            cells[names[column]] = values if good.all() else null_where(~good, values)
        return pa.table(cells)

    def _reason(self, table: Table, row: int) -> str:
        if table.wrong[row] != GOOD:
            return _broken(table.wrong[row])
        count = int(table.fields[row])
        return f"found {count} column{'' if count == 1 else 's'}, expected {self.dialect.columns}"


def _names(cells: list[str], usual: int) -> list[str]:
    """A header, without extra empty cells at its end."""
    return cells[:usual] if not any(map(str.strip, cells[usual:])) else cells


def _broken(wrong: Any) -> str:
    hint = f"if quotes are ordinary characters here, give {given('quotes', False)}"
    if wrong == AFTER_QUOTE:
        return f'found text after a closing quote; within quotes, write a quote as "", or {hint}'
    return f"found a quote that is never closed; {hint}"


def open_delimited(
    data: bytes, last: bool, options: Options, file: str, before: Parser | None
) -> Delimited | None:
    """The parser for a file that begins like this, or None if it has no row yet."""
    first = before if isinstance(before, Delimited) else None
    for sample in (sample_of(data), data):
        whole = last and len(sample) == len(data)
        patience = patience_for(sample, whole)
        table = Table.scan(sample, 1, patience, recognise(sample, whole, options), ())
        if (table.wrong == GOOD).any():
            return Delimited(sample, whole, options, file, first)
    if last and len(table.wrong):
        raise DataError(f"{file}, line {table.lines[0]}: {_broken(table.wrong[0])}")
    return None
