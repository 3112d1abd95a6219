"""From sources to checked rows: problems are raised or counted, and everything is reported."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrow_columns import mask_column
from hashembed.core.locations import is_uri, open_location
from hashembed.core.wording import given
from hashembed.readers import streams
from hashembed.readers.blocks import Feeder
from hashembed.readers.encodings import Decoder, StreamError
from hashembed.readers.formats.detect import format_by_name
from hashembed.readers.report import DataError, Problem, Report, add_once
from hashembed.readers.rows import Options, Parser, Rows, null_where, split_labels
from hashembed.readers.sources import STDIN, Source

if TYPE_CHECKING:
    from hashembed.readers.suspicion import LabelWatch

PARQUET = b"PAR1"  # how Parquet files begin


@dataclass
class Piece:
    """Rows without problems; `pause` if the stream has no more data at the moment."""

    labels: Any
    texts: Any
    pause: bool = False
    kept: pa.Table | None = None

    def slice(self, start: int, size: int) -> "Piece":
        """Some of the rows."""
        labels = None if self.labels is None else self.labels.slice(start, size)
        kept = None if self.kept is None else self.kept.slice(start, size)
        return Piece(labels, self.texts.slice(start, size), kept=kept)


class Reading:
    """One pass over sources. `may_be_empty`: other sources, read elsewhere, may have the rows."""

    def __init__(self, options: Options, may_be_empty: bool = False):
        self.options, self.report = options, Report()
        self.may_be_empty = may_be_empty
        self._before: dict[str | None, Parser] = {}  # the first parser of each format
        self._watch = _label_watch() if options.labelled else None

    def pieces(self, sources: list[Source]) -> Iterator[Piece]:
        """All rows, in order."""
        for source in sources:
            self.report.files.append(source.name)
            if source.documents is not None:
                yield from self._folder(source)
            else:
                yield from self._file(source)
        if self._watch is not None and not self._watch.full:
            self._warn(self._watch.warnings())
        if self.options.labelled and not self.report.rows and not self.may_be_empty:
            raise DataError(f"found no rows with a label: {self.report}")

    def _folder(self, source: Source) -> Iterator[Piece]:
        if self.options.format not in (None, "folder"):
            raise DataError(
                f"{source.name}: is a folder. To read its files as {self.options.format}, give "
                f"'{source.name}/*'"
            )
        from hashembed.readers.formats.folders import folder_rows

        self._describe("folder", "the folder's name" if self.options.labelled else None, "the file")
        for rows in folder_rows(source, self.options, self.report):
            yield from self._checked(rows, source.name)

    def _file(self, source: Source) -> Iterator[Piece]:
        if self.options.format == "folder":
            raise DataError(
                f"{source.name}: is a file, expected a folder with one folder for each class"
            )
        stream = streams.Input(source.path, source.name)
        try:
            path = source.path.partition("?")[0] if is_uri(source.path) else source.path
            format = self.options.format or format_by_name(path)
            if format == "parquet" or (self.options.format is None and stream.head[:4] == PARQUET):
                yield from self._parquet(source, stream)
            else:
                yield from self._text(source, stream, format or self._format_unnamed())
        finally:
            stream.close()

    def _format_unnamed(self) -> str | None:
        """The format if the file's name does not tell it; None to detect it by content."""
        options = self.options
        if options.label_prefix is not None:
            return "fasttext"
        columns = (options.label, options.text, options.header, options.delimiter, options.quotes)
        return None if options.labelled or any(c is not None for c in columns) else "lines"

    def _parquet(self, source: Source, stream: streams.Input) -> Iterator[Piece]:
        from hashembed.readers.formats.parquet import Parquet

        content: Any = source.path
        if source.path == STDIN or stream.live or stream.compression is not None:
            try:
                content = pa.py_buffer(b"".join(iter(stream.read, b"")))
            except StreamError as error:
                raise DataError(f"{source.name}: {error}") from None
        elif is_uri(source.path):
            content = open_location(source.path)
        parquet = Parquet(content, self.options, source.name)
        self._describe(parquet.format, parquet.label, parquet.text)
        for rows in parquet.rows():
            yield from self._checked(rows, source.name)

    def _text(self, source: Source, stream: streams.Input, format: str | None) -> Iterator[Piece]:
        name, report = source.name, self.report
        decoder = Decoder(self.options.encoding)
        feeder = Feeder(replace(self.options, format=format), name, self._before.get(format))
        for block in streams.line_blocks(stream, decoder, keep_nuls=format == "lines"):
            for line, how in sorted(block.repairs.items()):
                report.repair(Problem(name, line, how))
            rows = feeder.feed(block)
            if rows is not None and feeder.parser is not None:
                parser = feeder.parser
                self._before.setdefault(format, parser)
                self._describe(parser.format, parser.label, parser.text, parser.notes)
                yield from self._checked(rows, name, block.pause)
            if block.error is not None:
                line = block.line + block.data.count(b"\n")
                self._trouble(Problem(name, line, block.error))
            elif block.last and feeder.parser is None and self.options.labelled:
                found = "is empty" if feeder.untouched else "has only blank lines"
                self._trouble(Problem(name, None, f"the file {found}"))
        if decoder.found is not None and not decoder.found.startswith("utf-8"):
            add_once(report.encodings, decoder.found.upper())

    def _kept(self, rows: Rows) -> pa.Table | None:
        """The columns to keep. In a format without columns, the text is the only one."""
        if rows.kept is not None or not self.options.keep:
            return rows.kept
        keep = self.options.keep
        if not isinstance(keep, bool) and list(keep) not in (["text"], [1]):
            raise DataError(f"found no column {keep[0]!r} to keep: the only column is 'text'")
        return pa.table({"text": rows.texts})

    def _describe(
        self, format: str, label: str | None, text: str | None, notes: list[str] | None = None
    ) -> None:
        report = self.report
        self._warn(self._not_used(format))
        add_once(report.formats, format)
        add_once(report.labels, label)
        add_once(report.texts, text)
        for note in notes or ():
            add_once(report.notes, note)

    def _not_used(self, format: str) -> Iterator[str]:
        """Warnings about options that have no effect on this format."""
        columns = ("label", "text")
        used = {
            "fastText": ("label_prefix", "encoding"),
            "JSON lines": (*columns, "encoding"),
            "Parquet": columns,
            "folder": ("encoding",),
            "lines": ("encoding",),
        }.get(format, (*columns, "header", "delimiter", "quotes", "escapes", "encoding"))
        others = ("header", "delimiter", "quotes", "escapes", "label_prefix", "encoding")
        for name in (*columns, *others):
            value = getattr(self.options, name)
            if value is not None and name not in used:
                option = given(name, value if isinstance(value, bool) else None)
                yield f"{option} was ignored: it does not apply to the format {format}"

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            add_once(self.report.warnings, warning)

    def _trouble(self, problem: Problem) -> None:
        """Raise or count a problem of a whole file."""
        if self.options.on_error == "stop":
            raise DataError(str(problem))
        self.report.skip([problem], rows=0)

    def _checked(self, rows: Rows, file: str, pause: bool = False) -> Iterator[Piece]:
        """The good rows. In a reading without labels, a bad row becomes a null.

        If problems stop the reading, the rows before the first problem still come.
        """
        labels, texts = rows.labels, rows.texts
        if labels is not None and self.options.label_separator is not None:
            labels = split_labels(labels, self.options.label_separator)
        broken, stop = rows.bad, self.options.on_error == "stop"
        bad = broken if labels is None else broken | _empty_labels(labels)

        def problem(row: int) -> Problem:
            if broken[row]:
                return rows.problem(row)
            return Problem(file, int(rows.lines[row]), "the label is empty", rows.unit)

        piece = Piece(labels, texts, pause, self._kept(rows))
        wrong = np.flatnonzero(bad)
        if len(wrong) and stop:
            piece = piece.slice(0, int(wrong[0]))
        elif len(wrong):
            self.report.skip(map(problem, wrong.tolist()), len(wrong))
            mask = mask_column(~bad)
            if labels is None:
                piece.texts = null_where(bad, texts)
            else:
                piece.labels, piece.texts = labels.filter(mask), texts.filter(mask)
                piece.kept = None if piece.kept is None else piece.kept.filter(mask)
        self.report.rows += len(piece.texts)
        if self._watch is not None and not self._watch.full:
            self._watch.see(piece.labels)
            self._warn(self._watch.warnings() if self._watch.full else [])
        yield piece
        if len(wrong) and stop:
            skip = given("on_error", "skip")
            raise DataError(f"{problem(int(wrong[0]))} (to skip such rows, give {skip})")


def _label_watch() -> "LabelWatch":
    from hashembed.readers.suspicion import LabelWatch

    return LabelWatch()


def _empty_labels(labels: Any) -> npt.NDArray[np.bool_]:
    """Which rows have a blank label, alone or among others."""
    empty = np.zeros(len(labels), np.bool_)
    lists = pa.types.is_list(labels.type)
    values = labels.flatten().dictionary_encode() if lists else labels
    blank = [i for i, name in enumerate(values.dictionary.to_pylist()) if not (name or "").strip()]
    if not blank:
        return empty
    import pyarrow.compute as pc

    found = pc.is_in(values.indices, pa.array(blank, values.indices.type))
    if not lists:
        return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    empty[pc.list_parent_indices(labels).filter(found).to_numpy()] = True
    return empty
