"""JSON lines: Arrow's parser, and Python's for the lines that Arrow cannot read."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from hashembed.readers.columns import choose, describe
from hashembed.readers.cutting import cut_lines
from hashembed.readers.report import DataError, Problem
from hashembed.readers.rows import (
    I64,
    JSON_TEXT,
    NO_COLUMN,
    Options,
    Rows,
    as_strings,
    column_of_labels,
    joined,
)
from hashembed.readers.rows import without_surrogates as clean

_SAMPLE = 100  # lines that tell the keys
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


class _Bad(Exception):
    """Why a line gives no row."""


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise _Bad(f"found broken JSON ({error.msg}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise _Bad(f"found JSON that cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise _Bad(f"found {_kind(found)}, expected an object: {{...}}")
    return found


def _label(value: object) -> str | list[str]:
    """A label, or a list of them, as strings; numbers and booleans as JSON spells them."""
    if isinstance(value, list):
        return [_one_label(v) for v in value]
    return _one_label(value)


def _one_label(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise _Bad(f"found {_kind(value)} for the label, expected a string, a number or a list")
    return clean(value) if isinstance(value, str) else json.dumps(value)


class JsonLines:
    """An object a line; which keys hold label and text is told by the first objects."""

    format = "JSON lines"

    def __init__(self, options: Options, file: str, before: Any):
        self.options, self.file = options, file
        self.notes: list[str] = []
        self.label: str | None = None
        self.text: str | None = None
        self._keys: tuple[str | None, tuple[str, ...]] | None = None
        self._schema: pa.Schema | None = None
        if isinstance(before, JsonLines) and before._keys is not None:
            self._keys, self._schema = before._keys, before._schema
            self.label, self.text = before.label, before.text

    def _find_keys(self, data: bytes) -> None:
        objects = []
        for line in data.split(b"\n", _SAMPLE)[:_SAMPLE]:
            try:
                objects.append(_object(line))
            except _Bad:
                continue
        if not objects:
            return
        names = list(dict.fromkeys(clean(key) for found in objects for key in found))
        try:
            choice = choose(names, (), len(names), self.options, "key")
        except DataError as error:
            raise DataError(f"{self.file}: {error}") from None
        label = None if choice.label is None else names[choice.label]
        self._keys = label, tuple(names[c] for c in choice.texts)
        self.label = describe(choice.label, names, "key")
        self.text = describe(choice.texts, names, "key")
        fields = [(key, pa.large_string()) for key in self._keys[1]]
        if label is not None:
            kind = _arrow_type(next((o[label] for o in objects if o.get(label)), None))
            if kind is None:
                return
            fields.append((label, kind))
        self._schema = pa.schema(fields)

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
        """By Arrow; None if it finds anything unusual."""
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
        if len(table) != len(filled):  # blanks in lines, or several objects in one
            return None
        text = joined([table[key].combine_chunks() for key in texts])
        if text.null_count:
            return None
        labels = None
        if label is not None:
            found = table[label].combine_chunks()
            if found.null_count or (pa.types.is_list(found.type) and found.flatten().null_count):
                return None
            labels = as_strings(found)
        return Rows(labels, text, line + filled)

    def _exact(self, data: bytes, line: int, starts: I64, ends: I64, filled: I64) -> Rows:
        """By Python, a line at a time, with a reason for each that gives no row."""
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
        return Rows(column, pa.array(texts, pa.large_string()), np.array(lines, np.int64), bad)

    def _kept_values(self, lines: Iterable[bytes]) -> pa.Table:
        """The keys that were asked for besides, each value as JSON; null where there is none."""
        keep = self.options.keep
        wanted = None if isinstance(keep, bool) else [str(key) for key in keep]
        columns: dict[str, list[str | None]] = {key: [] for key in wanted or ()}
        count = 0
        for raw in lines:
            try:
                found = _object(raw)
            except _Bad:
                found = {}
            for key in found if wanted is None else wanted:
                if key in found:
                    column = columns.setdefault(key, [])
                    column += [None] * (count - len(column))
                    column.append(json.dumps(found[key], ensure_ascii=False))
            count += 1
        arrays, fields = [], []
        for key, column in columns.items():
            values = [None if v is None else clean(v) for v in column]
            arrays.append(pa.array(values + [None] * (count - len(values)), pa.large_string()))
            fields.append(pa.field(clean(key), pa.large_string(), metadata=JSON_TEXT))
        if not fields:  # a table without columns would not know how many rows it has
            return pa.table({NO_COLUMN: pa.nulls(count)})
        return pa.table(arrays, pa.schema(fields))

    def _row(self, found: dict[str, Any]) -> tuple[str | list[str] | None, str]:
        assert self._keys is not None  # an object was found, so there are keys
        label, keys = self._keys
        for key in (*keys, *(() if label is None else (label,))):
            if key not in found:
                listed = ", ".join(repr(k) for k in found) or "none"
                raise _Bad(f"found no key {key!r}; the keys are {listed}")
        for key in keys:
            if not isinstance(found[key], str):
                raise _Bad(f"found {_kind(found[key])} for {key!r}, expected a string")
        text = clean(" ".join(found[key] for key in keys))
        return None if label is None else _label(found[label]), text


def _arrow_type(value: object) -> Any:
    """What Arrow shall read a label as, if it can."""
    if isinstance(value, list):
        inner = _ARROW.get(type(value[0]))
        return None if inner is None else pa.list_(inner)
    return _ARROW.get(type(value))
