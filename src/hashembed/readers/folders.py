"""A folder of documents, one a file."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from hashembed.readers.encodings import Decoder
from hashembed.readers.report import Problem, Report
from hashembed.readers.rows import Options, Rows, column_of_labels
from hashembed.readers.rows import without_surrogates as clean
from hashembed.readers.sources import Source
from hashembed.readers.streams import Input, line_blocks

_DOCUMENTS = 1024  # read before rows are made of them


def folder_rows(source: Source, options: Options, report: Report) -> Iterator[Rows]:
    """The documents of a folder, each as it stands, by class and name."""
    documents = iter(source.documents or ())
    number = 1
    while some := list(islice(documents, _DOCUMENTS)):
        texts: list[str] = []
        bad: dict[int, Problem] = {}
        for label, path in some:
            text, problem = _document(path, options, report)
            if problem is None and options.labelled and not label.strip():
                problem = Problem(path, None, "found no class")
            if problem is not None:
                bad[len(texts)] = problem
            texts.append(text)
        labels = column_of_labels([clean(label) for label, _ in some]) if options.labelled else None
        column = pa.array(texts, pa.large_string())
        yield Rows(labels, column, np.arange(number, number + len(some)), bad)
        number += len(some)


def _document(path: str, options: Options, report: Report) -> tuple[str, Problem | None]:
    decoder = Decoder(options.encoding)
    source = Input(path, path)
    try:
        blocks = list(line_blocks(source, decoder))
    finally:
        source.close()
    if blocks[-1].error is not None:
        return "", Problem(path, None, blocks[-1].error)
    for block in blocks:
        for line, how in sorted(block.repairs.items()):
            report.repair(Problem(path, line, how))
        for line, reason in sorted(block.marks.items()):
            return "", Problem(path, line, reason)
    return b"".join(block.data for block in blocks).decode(), None
