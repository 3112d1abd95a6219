"""Labelled text from files, as Arrow columns: CSV, TSV, JSON lines, Parquet, fastText, folders.

    data = read("train.csv")
    print(data.report)
    TextClassifier().fit(data.texts, data.labels)

`read` reads whole files, `read_batches` reads in bounded memory. `read_texts` and
`read_text_batches` read texts without labels. `docs/guides/data.md` describes the formats, and what
happens to bad rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import pyarrow as pa

from hashembed.core.checks import whole_number
from hashembed.readers.reading import Piece, Reading
from hashembed.readers.report import DataError, Report
from hashembed.readers.rows import Column, Options, as_lists
from hashembed.readers.sources import Paths, Source, find_sources

ROWS = 10_000  # in a batch


@dataclass(frozen=True, eq=False)
class LabelledText:
    """Rows that were read.

    labels: an Arrow column of dictionary-encoded strings; of lists of strings if rows have several
        labels; or None in a reading without labels.
    texts: an Arrow column of large strings, in chunks.
    kept: an Arrow table of the columns named by `keep`, or None.
    report: what was found. Batches share one report, which grows during the reading.
    """

    labels: Any
    texts: pa.ChunkedArray
    report: Report
    kept: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.texts)


class ReadOptions(TypedDict, total=False):
    """The options of `read`. None, or leaving one out, means that it is detected."""

    format: str | None
    label: Column | None
    text: Column | Sequence[Column] | None
    header: bool | None
    delimiter: str | None
    quotes: bool | None
    escapes: bool | None
    label_separator: str | None
    label_prefix: str | None
    encoding: str | None
    on_error: str
    keep: bool | Sequence[Column]


def read(paths: Paths, **options: Unpack[ReadOptions]) -> LabelledText:
    """Read labels and texts from files. Options that are not given are detected, see `report`.

    Args:
        paths: a file, a folder with one folder for each class, a glob, "-" for standard input, or a
            list of these. gzip, bzip2, xz and zstd files are decompressed.
        format: one of FORMATS, except "lines".
        label: the column of the label, by name or by number from 1. Names need a header. In JSON
            and Parquet, "review.body" is the key `body` in the object `review`.
        text: the column of the text, or several columns, which are joined by a space.
        header: whether the first row names the columns.
        delimiter: the character between columns.
        quotes: whether double quotes enclose columns.
        escapes: whether a backslash and an n stand for a line end, as in the files of Zhang et al.
        label_separator: the string between several labels in one string, such as "," in
            "sports,news". Labels are then lists.
        label_prefix: the prefix of labels in fastText's format, by default "__label__".
        encoding: the encoding. By default a byte order mark decides, otherwise it is UTF-8, and
            lines that are not UTF-8 are repaired and reported.
        on_error: what to do with a row that cannot be read: "stop" raises a DataError that names
            the file and the line; "skip" leaves the row out, counts it and reports it.
        keep: other columns to return unchanged, or True for all; see `LabelledText.kept`.
    """
    return _whole(paths, Options(**options))


def read_batches(
    paths: Paths, *, rows: int = ROWS, **options: Unpack[ReadOptions]
) -> Iterator[LabelledText]:
    """Read like `read`, but in batches. Memory holds little more than one batch.

    A batch is returned when it is full. From a pipe or a terminal, it is also returned when the
    stream pauses. If a bad row stops the reading, the rows before it are returned before the error
    is raised. Labels become lists in the first batch in which a row has several labels, and stay
    lists from then on.

    Args:
        paths: as in `read`.
        rows: most rows in a batch.
        **options: as in `read`.
    """
    return _batches(paths, Options(**options), rows)


def read_texts(paths: Paths, **options: Unpack[ReadOptions]) -> LabelledText:
    """Read texts without labels, in order. The options are those of `read`.

    If the name of a file does not tell its format, it is "lines": every line is a text, even an
    empty one. With on_error="skip", a row that cannot be read becomes a null. `label` only tells
    which column is not text.
    """
    return _whole(paths, Options(**options, labelled=False))


def read_text_batches(
    paths: Paths, *, rows: int = ROWS, **options: Unpack[ReadOptions]
) -> Iterator[LabelledText]:
    """Read like `read_texts`, in batches like those of `read_batches`."""
    return _batches(paths, Options(**options, labelled=False), rows)


def no_texts() -> LabelledText:
    """The result of a reading without any row."""
    return LabelledText(None, pa.chunked_array([], pa.large_string()), Report())


def _whole(paths: Paths, options: Options) -> LabelledText:
    reading = Reading(options)
    pieces = list(reading.pieces(find_sources(paths, options.labelled)))
    return _joined(pieces, any(_has_lists(piece) for piece in pieces), reading)


def _batches(paths: Paths, options: Options, rows: int) -> Iterator[LabelledText]:
    whole_number("rows", rows, 1, 2**31 - 1)
    return _cut(Reading(options), find_sources(paths, options.labelled), rows)


def _cut(reading: Reading, sources: list[Source], rows: int) -> Iterator[LabelledText]:
    """Cut pieces of any size into batches of `rows`, or fewer where the stream pauses or ends."""
    waiting: list[Piece] = []
    count, lists = 0, False
    try:
        for piece in reading.pieces(sources):
            lists = lists or _has_lists(piece)
            at, size = 0, len(piece.texts)
            while count + size - at >= rows:
                batch = [*waiting, piece.slice(at, rows - count)]
                at += rows - count
                waiting, count = [], 0
                yield _joined(batch, lists, reading)
            if at < size:
                waiting.append(piece.slice(at, size - at))
                count += size - at
            if piece.pause and waiting:
                batch, waiting, count = waiting, [], 0
                yield _joined(batch, lists, reading)
    except DataError:
        if waiting:
            yield _joined(waiting, lists, reading)
        raise
    if waiting:
        yield _joined(waiting, lists, reading)


def _has_lists(piece: Piece) -> bool:
    return piece.labels is not None and bool(pa.types.is_list(piece.labels.type))


def _joined(pieces: list[Piece], lists: bool, reading: Reading) -> LabelledText:
    texts = pa.chunked_array([piece.texts for piece in pieces], pa.large_string())
    labels: Any = None
    if reading.options.labelled and lists:
        labels = pa.concat_arrays([as_lists(piece.labels) for piece in pieces])
    elif reading.options.labelled:
        chunks = pa.chunked_array([piece.labels for piece in pieces])
        labels = pa.concat_arrays(chunks.unify_dictionaries().chunks)
    kept = [piece.kept for piece in pieces if piece.kept is not None]
    table = pa.concat_tables(kept, promote_options="permissive") if kept else None
    return LabelledText(labels, texts, reading.report, table)
