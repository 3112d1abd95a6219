"""A folder of documents, one in each file."""

from collections.abc import Iterator

import numpy as np

from hashembed.core.arrow_columns import text_column
from hashembed.readers import streams
from hashembed.readers.encodings import Decoder
from hashembed.readers.report import DataError, Problem, Report
from hashembed.readers.rows import Options, Rows, column_of_labels
from hashembed.readers.rows import without_surrogates as clean
from hashembed.readers.sources import Source, not_a_file

_DOCUMENTS = 1024  # in a batch of rows


class _Unreadable(Exception):
    """A document that cannot be read: why, and in which line."""

    def __init__(self, line: int | None, reason: str):
        self.line, self.reason = line, reason


def folder_rows(source: Source, options: Options, report: Report) -> Iterator[Rows]:
    """The documents of a folder, sorted by class and name."""
    number = 1
    labels: list[str] = []
    texts: list[str] = []
    bad: dict[int, Problem] = {}
    size = 0
    for label, path in source.documents or ():
        try:
            if options.labelled and not label.strip():
                raise _Unreadable(None, "the name of its folder, the class, is blank")
            text = _document(path, options, report)
        except _Unreadable as problem:
            bad[len(texts)] = Problem(path, problem.line, problem.reason)
            text = ""
        labels.append(clean(label))
        texts.append(text)
        size += len(text)
        if len(texts) == _DOCUMENTS or size >= streams.BLOCK:
            yield _rows(labels, texts, number, bad, options)
            number += len(texts)
            labels, texts, bad, size = [], [], {}, 0
    if texts:
        yield _rows(labels, texts, number, bad, options)


def _rows(
    labels: list[str], texts: list[str], number: int, bad: dict[int, Problem], options: Options
) -> Rows:
    column = column_of_labels(labels) if options.labelled else None
    lines = np.arange(number, number + len(texts))
    return Rows(column, text_column(texts), lines, bad)


def _document(path: str, options: Options, report: Report) -> str:
    if (reason := not_a_file(path)) is not None:
        raise _Unreadable(None, reason)
    decoder, parts, size = Decoder(options.encoding), list[str](), 0
    try:
        source = streams.Input(path, path)
    except DataError as error:
        raise _Unreadable(None, str(error).removeprefix(f"{path}: ")) from None
    try:
        for block in streams.line_blocks(source, decoder):
            if block.error is not None:
                raise _Unreadable(None, block.error)
            for line, reason in sorted(block.marks.items()):
                raise _Unreadable(line, reason)
            for line, how in sorted(block.repairs.items()):
                report.repair(Problem(path, line, how))
            parts.append(block.data.decode())
            size += len(block.data)
            if size > streams.MAX_ROW:
                raise _Unreadable(
                    None, f"found more than {streams.MAX_ROW:,} bytes: check that it is text"
                )
    finally:
        source.close()
    return "".join(parts)
