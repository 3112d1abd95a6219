"""Labelled text from files, as Arrow columns: CSV, TSV, JSON lines, Parquet, fastText, folders.

    data = read("train.csv")
    print(data.report)
    TextClassifier().fit(data.texts, data.labels)

`read` takes files whole, `read_batches` with bounded memory; `read_texts` and `read_text_batches`
are for texts without labels. `docs/guides/data.md` describes the formats, and how bad rows are
handled.
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

ROWS = 10_000  # rows of a batch


@dataclass(frozen=True, eq=False)
class LabelledText:
    """Rows that were read.

    labels: an Arrow column of strings, dictionary-encoded; or of lists of strings where rows have
        several labels; or None where only texts were asked for.
    texts: an Arrow column of large strings, in chunks.
    kept: an Arrow table of the columns that `keep` asked for, or None.
    report: what was found. Batches share one, which grows as the reading goes on.
    """

    labels: Any
    texts: pa.ChunkedArray
    report: Report
    kept: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.texts)


class ReadOptions(TypedDict, total=False):
    """The options of `read`."""

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


def read(
    paths: Paths,
    *,
    format: str | None = None,
    label: Column | None = None,
    text: Column | Sequence[Column] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    quotes: bool | None = None,
    escapes: bool | None = None,
    label_separator: str | None = None,
    label_prefix: str | None = None,
    encoding: str | None = None,
    on_error: str = "stop",
) -> LabelledText:
    """Labels and texts from files; what is not given is recognised, and `report` says how.

    paths: a file, a folder with a folder for each class, a glob, "-" for standard input, or a list
        of these. gzip, bzip2, xz and zstd are undone.
    format: one of FORMATS but "lines".
    label, text: a column by name, or by number from 1; `text` may be several, which are joined by
        a space. Names take a header. "review.body" is the key body within the key review.
    header: whether the first row names the columns. delimiter: what is between columns.
    quotes: whether double quotes enclose columns. escapes: whether a backslash and an n stand for
        a line end, as in the files of Zhang et al.
    label_separator: what is between several labels in one string, such as "," in "sports,news";
        labels are then lists.
    label_prefix: what marks labels in fastText's format, by default "__label__".
    encoding: an encoding to insist on. Without one, a byte order mark decides, then UTF-8, and
        lines that are not UTF-8 are repaired and reported.
    on_error: what to do about a row that cannot be read: "stop" raises a DataError that names file
        and line, "skip" leaves the row out, and counts and reports it.
    """
    options = Options(
        *(format, label, text, header, delimiter, quotes, escapes),
        *(label_separator, label_prefix, encoding, on_error),
    )
    return _whole(paths, options)


def read_batches(
    paths: Paths, *, rows: int = ROWS, **options: Unpack[ReadOptions]
) -> Iterator[LabelledText]:
    """The same as `read`, in batches of so many rows, with memory for little more than a batch.

    A batch comes when it is full, and from a pipe or a terminal as soon as the stream pauses. The
    rows before a problem that stops the reading come before the error.
    Labels become lists with the first batch in which a row has several, and stay lists.
    """
    return _batches(paths, Options(**options), rows)


def read_texts(paths: Paths, **options: Unpack[ReadOptions]) -> LabelledText:
    """Texts alone, all of them and in order; labels may be there or not, and are not read.

    The options are those of `read`, and `keep`: columns that the texts shall come with, or True
    for all of them, as they stand in the file; see `LabelledText.kept`.
    The format follows from the name of the file, and is "lines" where that says nothing: a line, a
    text, also if it is empty. With "skip", a row that cannot be read stays in its place, as null.
    `label` only says which column is not text.
    """
    return _whole(paths, Options(**options, labelled=False))


def read_text_batches(
    paths: Paths, *, rows: int = ROWS, **options: Unpack[ReadOptions]
) -> Iterator[LabelledText]:
    """`read_texts` in batches, as `read_batches` has them."""
    return _batches(paths, Options(**options, labelled=False), rows)


def no_texts() -> LabelledText:
    """What a reading without any row gives."""
    return LabelledText(None, pa.chunked_array([], pa.large_string()), Report())


def _whole(paths: Paths, options: Options) -> LabelledText:
    reading = Reading(options)
    pieces = list(reading.pieces(find_sources(paths, options.labelled)))
    return _joined(pieces, any(_has_lists(piece) for piece in pieces), reading)


def _batches(paths: Paths, options: Options, rows: int) -> Iterator[LabelledText]:
    whole_number("rows", rows, 1, 2**31 - 1)
    return _cut(Reading(options), find_sources(paths, options.labelled), rows)


def _cut(reading: Reading, sources: list[Source], rows: int) -> Iterator[LabelledText]:
    """Pieces of any size -> batches of `rows`, or less where the stream pauses or ends."""
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
