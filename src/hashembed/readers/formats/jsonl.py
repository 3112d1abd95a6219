"""JSON lines: read by Arrow, and by Python where Arrow cannot."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from hashembed.core.arrays import I64
from hashembed.core.arrow_columns import text_column
from hashembed.readers.formats.columns import choose, describe, find, listing
from hashembed.readers.formats.slices import cut_lines
from hashembed.readers.report import DataError, Problem
from hashembed.readers.rows import (
    JSON_TEXT,
    NO_COLUMN,
    Options,
    Parser,
    Rows,
    as_strings,
    column_of_labels,
    joined,
    kept_columns,
)
from hashembed.readers.rows import without_surrogates as clean

Path = tuple[str, ...]  # a key, or the keys that lead to a nested one

_SAMPLE = 100  # lines examined for keys
_DEEPEST = 8  # levels of nested keys
_MOST_KEYS = 1000  # examined
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


class _Bad(Exception):
    """Why a line is not a row."""


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise _Bad(f"found invalid JSON ({error.msg}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise _Bad(f"found JSON that cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise _Bad(f"found {_kind(found)}, expected an object: {{...}}")
    return found


def _label(value: object) -> str | list[str]:
    """A label, or a list of labels, as strings; numbers and booleans in JSON's notation."""
    if isinstance(value, list):
        return [_one_label(v) for v in value]
    return _one_label(value)


def _one_label(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise _Bad(f"found {_kind(value)} for the label, expected a string, a number or a list")
    return clean(value) if isinstance(value, str) else json.dumps(value)


def _paths(objects: list[dict[str, Any]]) -> dict[str, Path]:
    """The names of all keys, then of nested keys, as in "review.body"."""
    paths: dict[str, Path] = {}
    level: list[tuple[Path, dict[str, Any]]] = [((), found) for found in objects]
    for _ in range(_DEEPEST):
        inner: list[tuple[Path, dict[str, Any]]] = []
        for path, found in level:
            for key, value in found.items():
                here = (*path, key)
                if len(paths) < _MOST_KEYS or not path:
                    paths.setdefault(clean(".".join(here)), here)
                if isinstance(value, dict):
                    inner.append((here, value))
        level = inner
    return paths


def _value(found: dict[str, Any], path: Path) -> Any:
    """The value of an object at a path."""
    here: Any = found
    for key in path:
        if not isinstance(here, dict) or key not in here:
            raise _Bad(
                f"found no key {'.'.join(path)!r}; the keys are {listing(map(clean, found))}"
            )
        here = here[key]
    return here


class JsonLines:
    """One object per line. The first objects tell which keys hold label and text."""

    format = "JSON lines"

    def __init__(self, options: Options, file: str, before: Parser | None):
        self.options, self.file = options, file
        self.notes: list[str] = []
        self.label: str | None = None
        self.text: str | None = None
        self._keys: tuple[Path | None, tuple[Path, ...]] | None = None
        self._kept: dict[str, Path] | None = None  # keys to keep; None keeps whole objects
        self._schema: pa.Schema | None = None
        if isinstance(before, JsonLines) and before._keys is not None:
            self._keys, self._schema = before._keys, before._schema
            self.label, self.text, self._kept = before.label, before.text, before._kept

    def _find_keys(self, data: bytes) -> None:
        objects = []
        for line in data.split(b"\n", _SAMPLE)[:_SAMPLE]:
            try:
                objects.append(_object(line))
            except _Bad:
                continue
        if not objects:
            return
        paths = _paths(objects)
        names = list(paths)
        count = sum(len(path) == 1 for path in paths.values())
        try:
            choice = choose(names, (), count, self.options, "key")
            kept = kept_columns(
                self.options.keep, count, lambda wanted: find("keep", wanted, names, count, "key")
            )
        except DataError as error:
            raise DataError(f"{self.file}: {error}") from None
        if not isinstance(self.options.keep, bool):
            self._kept = {names[c]: paths[names[c]] for c in kept}
        label = None if choice.label is None else paths[names[choice.label]]
        self._keys = label, tuple(paths[names[c]] for c in choice.texts)
        self.label = describe(choice.label, names, "key")
        self.text = describe(choice.texts, names, "key")
        if all(len(path) == 1 for path in (*self._keys[1], *([label] if label else []))):
            self._schema = self._flat_schema(objects)

    def _flat_schema(self, objects: list[dict[str, Any]]) -> Any:
        """The schema for Arrow, or None if Arrow cannot read the label."""
        assert self._keys is not None
        label, texts = self._keys
        fields = [(key, pa.large_string()) for (key,) in texts]
        if label is not None:
            kind = _arrow_type(next((o[label[0]] for o in objects if o.get(label[0])), None))
            if kind is None:
                return None
            fields.append((label[0], kind))
        return pa.schema(fields)

    def parse(self, data: bytes, line: int, patience: int) -> tuple[Rows, int]:
        """See `Parser`."""
        if self._keys is None:
            self._find_keys(data)
        starts, ends = cut_lines(data)
        filled = np.flatnonzero(ends > starts)
        rows = self._fast(data, line, starts, ends, filled) if self._schema is not None else None
        if rows is None:
            rows = self._exact(data, line, starts, ends, filled)
        if self.options.keep:
            at = rows.lines - line
            rows.kept = self._kept_values(
                data[a:b] for a, b in zip(starts[at].tolist(), ends[at].tolist(), strict=True)
            )
        return rows, len(data)

    def _fast(self, data: bytes, line: int, starts: I64, ends: I64, filled: I64) -> Rows | None:
        """Parse with Arrow; None if anything is unusual."""
        if not len(filled):
            return None
        assert self._keys is not None
        label, texts = self._keys
        try:
            table = pa_json.read_json(
                pa.BufferReader(data),
                pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                pa_json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowException:
            return None
        if len(table) != len(filled):  # blank lines, or several objects in one line
            return None
        text = joined([table[key].combine_chunks() for (key,) in texts])
        if text.null_count:
            return None
        labels = None
        if label is not None:
            found = table[label[0]].combine_chunks()
            if found.null_count or (pa.types.is_list(found.type) and found.flatten().null_count):
                return None
            labels = as_strings(found)
        return Rows(labels, text, line + filled)

    def _exact(self, data: bytes, line: int, starts: I64, ends: I64, filled: I64) -> Rows:
        """Parse with Python, line by line, with a reason for each bad line."""
        labels: list[str | list[str] | None] = []
        texts: list[str] = []
        lines: list[int] = []
        bad: dict[int, Problem] = {}
        for i in filled.tolist():
            raw = data[starts[i] : ends[i]]
            if not raw.strip(b" \t\r"):
                continue
            try:
                label, text = self._row(_object(raw))
            except _Bad as reason:
                bad[len(lines)] = Problem(self.file, line + i, str(reason))
                label, text = None, ""
            labels.append(label)
            texts.append(text)
            lines.append(line + i)
        column = column_of_labels(labels) if self.options.labelled else None
        return Rows(column, text_column(texts), np.array(lines, np.int64), bad)

    def _kept_values(self, lines: Iterable[bytes]) -> pa.Table:
        """The keys to keep, each value as JSON; null where an object does not have the key."""
        columns: dict[str, list[str | None]] = {name: [] for name in self._kept or ()}
        count = 0
        for raw in lines:
            for name, value in self._kept_of(raw):
                column = columns.setdefault(name, [])
                column += [None] * (count - len(column))
                column.append(clean(json.dumps(value, ensure_ascii=False)))
            count += 1
        if not columns:  # a table without columns has no number of rows
            return pa.table({NO_COLUMN: pa.nulls(count)})
        kind = pa.large_string()
        arrays = [text_column(c + [None] * (count - len(c))) for c in columns.values()]
        fields = [pa.field(clean(name), kind, metadata=JSON_TEXT) for name in columns]
        return pa.table(arrays, pa.schema(fields))

    def _kept_of(self, raw: bytes) -> Iterator[tuple[str, Any]]:
        """The names and values to keep of one line."""
        try:
            found = _object(raw)
        except _Bad:
            return
        if self._kept is None:
            yield from found.items()
            return
        for name, path in self._kept.items():
            with suppress(_Bad):
                yield name, _value(found, path)

    def _row(self, found: dict[str, Any]) -> tuple[str | list[str] | None, str]:
        assert self._keys is not None  # parsing an object has set them
        label, paths = self._keys
        texts = [_value(found, path) for path in paths]
        value = None if label is None else _value(found, label)
        for path, text in zip(paths, texts, strict=True):
            if not isinstance(text, str):
                raise _Bad(f"found {_kind(text)} for {'.'.join(path)!r}, expected a string")
        return None if label is None else _label(value), clean(" ".join(texts))


def _arrow_type(value: object) -> Any:
    """The Arrow type of a label, if Arrow can read it."""
    if isinstance(value, list):
        inner = _ARROW.get(type(value[0]))
        return None if inner is None else pa.list_(inner)
    return _ARROW.get(type(value))
