"""Writes CSV, TSV, JSON lines or Parquet files. A file appears complete, or not at all."""

import io
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol

import click

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
SEPARATOR = ","  # of several labels in one column of CSV

Columns = dict[str, Any]  # name -> an Arrow column, Values or JsonTexts


class Writer(Protocol):
    """Writes batches of columns."""

    def write(self, columns: Columns) -> None:
        """Write some rows; all columns have the same length."""

    def close(self) -> None:
        """End the file."""


def format_of(path: str, allowed: Sequence[str] = ("csv", "tsv", "jsonl", "parquet")) -> str:
    """The format of an output, by its name."""
    found = SUFFIXES.get(os.path.splitext(path)[1].lower())
    if found is None or found not in allowed:
        *others, last = [suffix for suffix, kind in SUFFIXES.items() if kind in allowed]
        raise click.BadParameter(
            f"found {path!r}, expected a file name that ends in {', '.join(others)} or {last}.",
            param_hint="--output",
        )
    return found


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete. Pipes and devices are written to."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "wb") as file:
                yield file
            return
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".hashembed-{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def writer_for(format: str, file: BinaryIO) -> Writer:
    """The writer of a format."""
    if format == "parquet":
        return _Parquet(file)
    if format == "jsonl":
        return _JsonLines(file)
    return _Delimited(file, "," if format == "csv" else "\t")


class _FirstColumns:
    """The columns of the first batch. Later batches of JSON may have others, which are left out."""

    def __init__(self) -> None:
        self.names: list[str] | None = None
        self.left_out: dict[str, None] = {}

    def of(self, columns: Columns) -> list[str]:
        """Their names, in order."""
        if self.names is None:
            self.names = list(columns)
        self.left_out |= dict.fromkeys(name for name in columns if name not in self.names)
        return self.names


def _note(first: _FirstColumns) -> None:
    if first.left_out:
        from hashembed.core.printable import printable

        listed = ", ".join(printable(name) for name in list(first.left_out)[:5])
        click.echo(
            f"Left out keys that first appear in later rows: {listed}. A .jsonl file keeps them.",
            err=True,
        )


class _Delimited:
    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        import csv

        self._text = io.TextIOWrapper(file, "utf8", "replace", newline="")
        self._rows = csv.writer(self._text, delimiter=delimiter, lineterminator="\n")
        self._first = _FirstColumns()

    def write(self, columns: Columns) -> None:
        fresh = self._first.names is None
        names = self._first.of(columns)
        if fresh:
            self._rows.writerow(names)
        count = _count(columns)
        cells = [
            [_cell(v) for v in columns[name].to_pylist()] if name in columns else [""] * count
            for name in names
        ]
        self._rows.writerows(zip(*cells, strict=True))
        self._text.flush()

    def close(self) -> None:
        self._text.flush()
        self._text.detach()
        _note(self._first)


class _JsonLines:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, columns: Columns) -> None:
        """Omit keys that a JSON object did not have; other missing values are null."""
        rows: list[dict[str, Any]] = [{} for _ in range(_count(columns))]
        for name, column in columns.items():
            absent = column.absent() if isinstance(column, JsonTexts) else [False] * len(rows)
            for row, value, gone in zip(rows, column.to_pylist(), absent, strict=True):
                if not gone:
                    row[name] = value
        lines = [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows]
        self._file.write("".join(lines).encode("utf8", "replace"))
        self._file.flush()

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None
        self._first = _FirstColumns()

    def write(self, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = self._first.of(columns)
        count = _count(columns)
        found = {
            name: _plain_column(columns[name]) if name in columns else pa.nulls(count)
            for name in names
        }
        table = pa.table(found)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        _note(self._first)


class Values:
    """A column of Python values; `kind` is their Arrow type, which only Parquet needs."""

    def __init__(self, values: list[Any], kind: Any) -> None:
        self._values, self.kind = values, kind

    def __len__(self) -> int:
        return len(self._values)

    def to_pylist(self) -> list[Any]:
        """The values."""
        return self._values


class JsonTexts:
    """A column of values of any type, stored as JSON."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts.to_pylist()

    def __len__(self) -> int:
        return len(self._texts)

    def absent(self) -> list[bool]:
        """Where the object had no such key."""
        return [text is None for text in self._texts]

    def to_pylist(self) -> list[Any]:
        """The values; None where the key is absent."""
        return [None if text is None else json.loads(text) for text in self._texts]


def _plain_column(column: Any) -> Any:
    """An Arrow column; JSON values become strings."""
    import pyarrow as pa

    if isinstance(column, Values):
        return pa.array(column.to_pylist(), column.kind)
    if not isinstance(column, JsonTexts):
        return column
    values = [None if v is None else _cell(v) for v in column.to_pylist()]
    return pa.array(values, pa.large_string())


def _count(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _cell(value: Any) -> str:
    """A value as a cell of CSV."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
