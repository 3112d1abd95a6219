"""Which format a file has: by its name, or by its first lines.

Each format is imported when a file needs it.
"""

import os

from hashembed.core.wording import given
from hashembed.readers.report import DataError
from hashembed.readers.rows import FORMATS, Options, Parser

_COMPRESSED = (".gz", ".gzip", ".zst", ".zstd", ".xz", ".bz2")
_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".ft": "fasttext",
    ".fasttext": "fasttext",
}


def format_by_name(path: str) -> str | None:
    """The format of the extension, before that of a compression."""
    root, extension = os.path.splitext(path.lower())
    if extension in _COMPRESSED:
        extension = os.path.splitext(root)[1]
    return _EXTENSIONS.get(extension)


def _format_by_content(data: bytes, last: bool, options: Options, file: str) -> str:
    begin = data[:1000].lstrip()
    if begin.startswith(options.prefix.encode()):
        return "fasttext"
    if begin.startswith(b"{"):
        return "jsonl"
    from hashembed.readers.formats.dialect import recognise, sample_of

    sample = sample_of(data)
    if recognise(sample, last and len(sample) == len(data), options).columns > 1:
        return "csv"
    line = begin.split(b"\n")[0][:60].decode("utf-8", "replace")
    listed = ", ".join(FORMATS[:5])
    raise DataError(
        f"{file}: found no known format, the first line is {line!r}. Give {given('format')}, one "
        f"of {listed}. If each line begins with a label, as in fastText's format, give the "
        f"beginning of labels with {given('label_prefix')}"
    )


def open_parser(
    data: bytes, last: bool, options: Options, file: str, before: Parser | None
) -> Parser | None:
    """The parser for a file that begins like this, or None if it has no row yet."""
    if options.format is None and not data.strip():
        return None
    format = options.format or _format_by_content(data, last, options, file)
    if format == "lines":
        from hashembed.readers.formats.lines import Lines

        return Lines()
    if format == "fasttext":
        from hashembed.readers.formats.lines import FastText

        return FastText(options.labelled, options.prefix, file)
    if format == "jsonl":
        if data[:1000].lstrip().startswith(b"["):
            raise DataError(
                f"{file}: found a JSON list, expected JSON lines: one object {{...}} on each line"
            )
        from hashembed.readers.formats.jsonl import JsonLines

        return JsonLines(options, file, before)
    from hashembed.readers.formats.delimited import open_delimited

    return open_delimited(data, last, options, file, before)
