"""The input of every format parser, the options, and its output, rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import I64
from hashembed.core.arrow_columns import mask_column, number_column, text_column
from hashembed.core.checks import one_of
from hashembed.core.wording import named
from hashembed.hashing.scalars import SALT
from hashembed.readers.encodings import known_encoding
from hashembed.readers.formats.line_kernels import number_slices
from hashembed.readers.formats.slices import strings
from hashembed.readers.report import Problem
from hashembed.text.arrow import documents

Column = int | str

PREFIX = "__label__"  # of labels in fastText's format, by default
FORMATS = ("csv", "tsv", "jsonl", "parquet", "fasttext", "folder", "lines")


@dataclass(frozen=True)
class Options:
    """How to read. None means that the reader detects it. See `read`."""

    format: str | None = None
    label: Column | None = None
    text: Column | Sequence[Column] | None = None
    header: bool | None = None
    delimiter: str | None = None
    quotes: bool | None = None
    escapes: bool | None = None
    label_separator: str | None = None
    label_prefix: str | None = None
    encoding: str | None = None
    on_error: str = "stop"
    labelled: bool = True
    keep: bool | Sequence[Column] = False

    def __post_init__(self) -> None:
        one_of("on_error", self.on_error, ("stop", "skip"))
        if self.format is not None:
            allowed = tuple(f for f in FORMATS if not (self.labelled and f == "lines"))
            one_of("format", self.format, allowed)
        if self.delimiter is not None:
            single = isinstance(self.delimiter, str) and len(self.delimiter) == 1
            if not single or not self.delimiter.isascii() or self.delimiter in '"\n\r\0':
                raise ValueError(
                    f"{named('delimiter')} must be one ASCII character and not a quote, such as "
                    f"',' or '\\t', found {self.delimiter!r}"
                )
        if self.label_separator is not None and (
            not isinstance(self.label_separator, str) or not self.label_separator
        ):
            raise ValueError(
                f"{named('label_separator')} must be a string that is not empty, such as ',', "
                f"found {self.label_separator!r}"
            )
        if self.label_prefix is not None:
            _check_prefix(self.label_prefix)
        if self.encoding is not None:
            known_encoding(self.encoding)

    @property
    def prefix(self) -> str:
        """The prefix of labels in fastText's format."""
        return PREFIX if self.label_prefix is None else self.label_prefix


def _check_prefix(prefix: str) -> None:
    try:
        fine = bool(prefix.encode()) and not set(prefix) & set(" \t\r\n\0")
    except (AttributeError, UnicodeError):
        fine = False
    if not fine:
        raise ValueError(
            f"{named('label_prefix')} must be a string without blanks, such as {PREFIX!r}, "
            f"found {prefix!r}"
        )


@dataclass
class Rows:
    """Rows of a file.

    labels: dictionary-encoded strings, or lists of strings, or None in a reading without labels.
    kept: the columns to keep, or None; null where a row has no such value.
    lines: the first line of each row, or its row number; `unit` says which.
    bad: which rows have a problem; their values are meaningless.
    problems: {row: problem}, where they are known.
    explain: finds the problem of any other bad row. There may be millions of bad rows, and it is
        called for a few.
    """

    labels: Any
    texts: Any
    lines: I64
    problems: dict[int, Problem] = field(default_factory=dict)
    bad: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    explain: Callable[[int], Problem] | None = None
    unit: str = "line"
    kept: pa.Table | None = None

    def __post_init__(self) -> None:
        if len(self.bad) < len(self.texts):
            self.bad = np.zeros(len(self.texts), np.bool_)
        self.bad[list(self.problems)] = True

    def mark(self, marks: dict[int, tuple[int, str]], file: str) -> None:
        """Mark rows as bad: {row: (line, what is wrong)}."""
        if not marks:
            return
        before = replace(self)
        self.explain = lambda row: (
            Problem(file, *marks[row]) if row in marks else before.problem(row)
        )
        self.problems = {}
        self.bad[list(marks)] = True

    def problem(self, row: int) -> Problem:
        """The problem of a bad row."""
        if row in self.problems or self.explain is None:
            return self.problems[row]
        return self.explain(row)


class Parser(Protocol):
    """Parses the lines of a file into rows."""

    format: str
    label: str | None  # the columns, as a report spells them
    text: str | None
    notes: list[str]

    def parse(self, data: bytes, line: int, patience: int) -> tuple[Rows, int]:
        """Parse whole lines of UTF-8 -> rows, and the number of bytes that were used.

        Bytes are left over only where the last row may continue beyond the data and has at most
        `patience` bytes so far.
        """
        ...


def encoded(labels: Any) -> Any:
    """Strings -> a dictionary-encoded column.

    Plain strings do not need `pyarrow.compute`, which takes longer to import than to read a file.
    """
    plain = labels.type in (pa.string(), pa.large_string()) and not labels.null_count
    if plain and labels.nbytes < 2**31:  # the offsets of the dictionary have 32 bits
        return _numbered(labels)
    column = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        column.indices.cast(pa.int32()), column.dictionary.cast(pa.string())
    )


def _numbered(labels: Any) -> Any:
    """Dictionary-encode strings without nulls; the dictionary has them in order of appearance."""
    data, starts, ends = documents(labels)
    slots = np.full(2 << len(starts).bit_length(), -1, np.int32)
    numbers, firsts = np.empty((2, len(starts)), np.int32)
    found = number_slices(data, starts, ends, SALT, slots, numbers, firsts)
    firsts = firsts[:found]
    _, offsets, values = strings(data, starts[firsts], ends[firsts]).buffers()
    short = pa.py_buffer(np.frombuffer(offsets, np.int64).astype(np.int32))
    dictionary = pa.StringArray.from_buffers(found, short, values)
    return pa.DictionaryArray.from_arrays(number_column(numbers), dictionary)


def joined(columns: Sequence[Any]) -> Any:
    """Columns of large strings, joined by a space."""
    if len(columns) == 1:
        return columns[0]
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, pa.scalar(" ", pa.large_string()))


def null_where(mask: npt.NDArray[np.bool_], texts: Any) -> Any:
    """Large strings with nulls at these rows."""
    import pyarrow.compute as pc

    return pc.if_else(mask_column(mask), pa.scalar(None, pa.large_string()), texts)


def kept_columns(
    keep: bool | Sequence[Column], count: int, find: Callable[[Column], int]
) -> list[int]:
    """The columns to keep in addition to text and label; `find` gives the place of one."""
    if isinstance(keep, bool):
        return list(range(count)) if keep else []
    return list(dict.fromkeys(find(column) for column in keep))


def unique_names(names: Sequence[str] | None, count: int) -> list[str]:
    """Unique names: a column's own name, or its number, or both for a repeated name."""
    found: list[str] = []
    for i in range(count):
        name = names[i] if names is not None and i < len(names) else ""
        name = name or f"column {i + 1}"
        found.append(name if name not in found else f"{name} (column {i + 1})")
    return found


NO_COLUMN = ""  # the only column of a table whose rows have no keys
JSON_TEXT = {b"json": b"1"}  # marks columns whose strings are JSON


def as_strings(labels: Any) -> Any:
    """Convert strings, whole numbers, booleans, or lists of them, to labels."""
    if pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type):
        return labels.cast(pa.list_(pa.string()))
    return encoded(labels if pa.types.is_dictionary(labels.type) else labels.cast(pa.string()))


def as_lists(labels: Any) -> Any:
    """Labels as lists; a single label becomes a list of one."""
    if pa.types.is_list(labels.type):
        return labels
    values = labels.cast(pa.string())
    edges = np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(number_column(edges), values)


def split_labels(labels: Any, separator: str) -> Any:
    """Split strings that name several labels into lists. An empty string gives an empty list.

    Blanks around a label are removed, and a label is in its list once.
    """
    if pa.types.is_list(labels.type):
        groups = labels.to_pylist()
        split = [None if group is None else _parts(group, separator) for group in groups]
        return pa.array(split, pa.list_(pa.string()))
    distinct = [_parts([value or ""], separator) for value in labels.dictionary.to_pylist()]
    return pa.array(distinct, pa.list_(pa.string())).take(labels.indices)


def _parts(group: Sequence[str | None], separator: str) -> list[str | None]:
    """The labels in strings. A null stays: it is reported later."""
    parts: list[str | None] = []
    for value in group:
        parts += [None] if value is None else filter(None, map(str.strip, value.split(separator)))
    return list(dict.fromkeys(parts))


def column_of_labels(labels: Sequence[str | list[str] | None]) -> Any:
    """Labels as a column; of lists if one of them is a list. None stands for bad rows."""
    if any(isinstance(label, list) for label in labels):
        lists = [label if isinstance(label, list) else [label or ""] for label in labels]
        return pa.array(lists, pa.list_(pa.string()))
    return encoded(text_column([str(label or "") for label in labels]))


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
