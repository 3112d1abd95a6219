"""Parquet files."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hashembed.readers.formats.columns import choose, describe, find
from hashembed.readers.report import DataError, Problem
from hashembed.readers.rows import (
    Options,
    Rows,
    as_strings,
    encoded,
    joined,
    kept_columns,
    unique_names,
)

Place = tuple[int, ...]  # the index of a column, and of the nested columns within it

_BATCH = 1 << 13  # rows


class Parquet:
    """Rows of a Parquet file. Problems name the row, from 1."""

    format = "Parquet"

    def __init__(self, content: str | pa.Buffer, options: Options, file: str):
        self.file, self.notes = file, list[str]()
        try:
            self._parquet = pq.ParquetFile(content)
            schema = self._parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file}: cannot be read as Parquet ({_first_line(error)})") from None
        paths = _paths(schema)
        names = [".".join(path) for path in paths.values()]
        try:
            choice = choose(names, (), len(schema), options)
        except DataError as error:
            raise DataError(f"{file}: {error}") from None
        self.label = describe(choice.label, names)
        self.text = describe(choice.texts, names)
        places = list(paths)
        self._texts = [places[c] for c in choice.texts]
        self._label = None if choice.label is None else places[choice.label]
        kept = kept_columns(
            options.keep, len(schema), lambda wanted: find("keep", wanted, names, len(schema))
        )
        labels = unique_names(names, len(names))
        self._kept = {labels[c]: places[c] for c in kept}
        for place in self._texts:
            kind = _kind(schema, place)
            if not _is_text(kind):
                name = ".".join(paths[place])
                raise DataError(f"{file}: the text column {name!r} holds {kind}, expected strings")
        if self._label is not None and not _is_label(_kind(schema, self._label)):
            raise DataError(
                f"{file}: the label column {'.'.join(paths[self._label])!r} holds "
                f"{_kind(schema, self._label)}, expected strings, whole numbers, booleans, or "
                "lists of them"
            )
        self._schema = schema

    def rows(self) -> Iterator[Rows]:
        """All rows, a batch at a time."""
        number = 1
        batches = self._parquet.iter_batches(_BATCH, columns=self._columns())
        while True:
            try:
                batch = next(batches, None)
                rows = None if batch is None else self._batch(batch, number)
            except (pa.ArrowException, OSError) as error:
                place = f"{self.file}, after row {number - 1:,}"
                raise DataError(f"{place}: damaged Parquet data ({_first_line(error)})") from None
            if rows is None:
                return
            yield rows
            number += len(rows.texts)

    def _columns(self) -> list[str]:
        """The names of the columns to read. Parquet reads all columns of a name."""
        label = [] if self._label is None else [self._label]
        taken = [*self._texts, *label, *self._kept.values()]
        return list(dict.fromkeys(self._schema.field(place[0]).name for place in taken))

    def _column(self, batch: pa.RecordBatch, place: Place) -> Any:
        """The column at a place of the file's schema. Columns of one name keep their order."""
        names = self._schema.names
        name = names[place[0]]
        same = [i for i, found in enumerate(batch.schema.names) if found == name]
        column = batch.column(same[names[: place[0]].count(name)])
        return pc.struct_field(column, list(place[1:])) if place[1:] else column

    def _batch(self, batch: pa.RecordBatch, number: int) -> Rows:
        columns = [self._column(batch, place).cast(pa.large_string()) for place in self._texts]
        bad: dict[int, Problem] = {}
        text = joined([self._valid(column, number, bad) for column in columns])
        self._nulls(text, number, "found no text (null)", bad)
        labels = None
        if self._label is not None:
            labels = as_strings(self._column(batch, self._label))
            labels = self._valid_labels(labels, number, bad)
            self._nulls(labels, number, "found no label (null)", bad)
            if pa.types.is_list(labels.type):
                empty = pc.list_parent_indices(labels).filter(labels.flatten().is_null())
                for row in empty.to_pylist():
                    bad.setdefault(
                        row, self._problem(number + row, "found a null among the labels")
                    )
        found = {name: self._column(batch, place) for name, place in self._kept.items()}
        kept = pa.table(found) if found else None
        lines = np.arange(number, number + len(batch))
        return Rows(labels, text, lines, bad, unit="row", kept=kept)

    def _valid_labels(self, labels: Any, number: int, bad: dict[int, Problem]) -> Any:
        """Check labels like texts. A list with a label that is not UTF-8 makes its row bad."""
        if not pa.types.is_list(labels.type):
            names = self._valid(labels.dictionary.cast(pa.large_string()), number, {})
            if names.null_count == labels.dictionary.null_count:
                return labels
            labels = labels.cast(pa.string())
            return encoded(self._valid(labels.cast(pa.large_string()), number, bad))
        flat = self._valid(labels.flatten().cast(pa.large_string()), number, {})
        if flat.null_count == labels.flatten().null_count:
            return labels
        rows = pc.list_parent_indices(labels).filter(flat.is_null()).unique().to_pylist()
        for row in rows:
            bad[row] = self._problem(number + row, "found bytes that are not UTF-8")
        groups = [None if i in bad else group for i, group in enumerate(_lists(labels, flat))]
        return pa.array(groups, pa.list_(pa.string()))

    def _nulls(self, column: Any, number: int, reason: str, bad: dict[int, Problem]) -> None:
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                bad.setdefault(row, self._problem(number + row, reason))

    def _valid(self, text: Any, number: int, bad: dict[int, Problem]) -> Any:
        """Replace texts that are not UTF-8, which Parquet does not check, by nulls."""
        try:
            text.validate(full=True)
            return text
        except pa.ArrowInvalid:
            values: list[str | None] = []
            for row, value in enumerate(text.cast(pa.large_binary()).to_pylist()):
                try:
                    values.append(None if value is None else value.decode())
                except UnicodeDecodeError:
                    values.append(None)
                    bad[row] = self._problem(number + row, "found bytes that are not UTF-8")
            return pa.array(values, pa.large_string())

    def _problem(self, row: int, reason: str) -> Problem:
        return Problem(self.file, row, reason, "row")


def _paths(schema: pa.Schema) -> dict[Place, tuple[str, ...]]:
    """The places of all columns, then of nested columns, with their names."""
    paths: dict[Place, tuple[str, ...]] = {}
    level: list[tuple[Place, tuple[str, ...], Any]]
    level = [((i,), (field.name,), field.type) for i, field in enumerate(schema)]
    while level:
        inner = []
        for place, names, kind in level:
            if len(place) == 1 or ".".join(names) not in schema.names:
                paths[place] = names
            if pa.types.is_struct(kind):
                for i in range(kind.num_fields):
                    field = kind.field(i)
                    inner.append(((*place, i), (*names, field.name), field.type))
        level = inner
    return paths


def _kind(schema: pa.Schema, place: Place) -> Any:
    kind = schema.field(place[0]).type
    for i in place[1:]:
        kind = kind.field(i).type
    return kind


def _lists(labels: Any, flat: Any) -> Iterator[list[str | None]]:
    """Other values in the list structure of these labels."""
    values, at = flat.to_pylist(), 0
    for length in labels.value_lengths().to_pylist():
        yield values[at : at + (length or 0)]
        at += length or 0


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_label(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return _is_text(kind) or bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))
