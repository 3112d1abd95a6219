"""Parquet files."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hashembed.readers.columns import choose, describe, find
from hashembed.readers.report import DataError, Problem
from hashembed.readers.rows import Options, Rows, as_strings, joined, kept_columns

MAGIC = b"PAR1"
_BATCH = 1 << 13  # rows


class Parquet:
    """Rows of a Parquet file; problems name the row, from 1."""

    format = "Parquet"

    def __init__(self, content: str | pa.Buffer, options: Options, file: str):
        self.file, self.notes = file, list[str]()
        try:
            self._parquet = pq.ParquetFile(content)
            schema = self._parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file}: cannot be read as Parquet ({_first_line(error)})") from None
        names = schema.names
        try:
            choice = choose(names, (), len(names), options)
        except DataError as error:
            raise DataError(f"{file}: {error}") from None
        self.label = describe(choice.label, names)
        self.text = describe(choice.texts, names)
        self._label = None if choice.label is None else names[choice.label]
        self._texts = [names[c] for c in choice.texts]
        kept = kept_columns(
            options.keep, len(names), lambda wanted: find("keep", wanted, names, len(names))
        )
        self._kept = [names[c] for c in kept]
        for name in self._texts:
            if not _is_text(schema.field(name).type):
                raise DataError(
                    f"{file}: the text column {name!r} holds {schema.field(name).type}, "
                    f"expected strings"
                )
        if self._label is not None and not _is_label(schema.field(self._label).type):
            raise DataError(
                f"{file}: the label column {self._label!r} holds "
                f"{schema.field(self._label).type}, expected strings, whole numbers, booleans or "
                f"lists of them"
            )

    def rows(self) -> Iterator[Rows]:
        """All rows, a batch at a time."""
        taken = [*self._texts, *([] if self._label is None else [self._label]), *self._kept]
        columns = list(dict.fromkeys(taken))
        number = 1
        batches = self._parquet.iter_batches(_BATCH, columns=columns)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                place = f"{self.file}, behind row {number - 1:,}"
                raise DataError(f"{place}: damaged Parquet data ({_first_line(error)})") from None
            if batch is None:
                return
            yield self._batch(batch, number)
            number += len(batch)

    def _batch(self, batch: pa.RecordBatch, number: int) -> Rows:
        text = joined([batch.column(name).cast(pa.large_string()) for name in self._texts])
        bad = self._nulls(text, number, "found no text (null)", {})
        text = self._valid(text, number, bad)
        labels = None
        if self._label is not None:
            labels = as_strings(batch.column(self._label))
            bad = self._nulls(labels, number, "found no label (null)", bad)
            if pa.types.is_list(labels.type):
                empty = pc.list_parent_indices(labels).filter(labels.flatten().is_null())
                for row in empty.to_pylist():
                    bad.setdefault(
                        row, self._problem(number + row, "found a null among the labels")
                    )
        kept = pa.Table.from_batches([batch.select(self._kept)]) if self._kept else None
        lines = np.arange(number, number + len(batch))
        return Rows(labels, text, lines, bad, unit="row", kept=kept)

    def _nulls(
        self, column: Any, number: int, reason: str, bad: dict[int, Problem]
    ) -> dict[int, Problem]:
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                bad.setdefault(row, self._problem(number + row, reason))
        return bad

    def _valid(self, text: Any, number: int, bad: dict[int, Problem]) -> Any:
        """The texts, without those that are not UTF-8, which Parquet does not check."""
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
