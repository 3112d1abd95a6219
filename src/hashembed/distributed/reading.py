"""Files as a Ray dataset, by the readers of hashembed: every format, and reports of bad rows."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Unpack

import pyarrow as pa

from hashembed.core.wording import command_options, option_names
from hashembed.distributed.cluster import cluster_cores, connected
from hashembed.distributed.columns import NOTE
from hashembed.distributed.groups import in_order
from hashembed.readers.read_files import LabelledText, ReadOptions
from hashembed.readers.reading import Reading
from hashembed.readers.report import DataError, Problem, Report
from hashembed.readers.rows import Options
from hashembed.readers.sources import STDIN, Paths, Source, find_sources

TASKS_PER_CORE = 8  # enough for an even load; a task for each of many small files takes longer
MOST_FILES = 64  # of a task
TABLE_BYTES = 16 << 20  # of a table that a task gives to Ray; small ones cost more than they hold


def read(paths: Paths, *, labelled: bool = True, **options: Unpack[ReadOptions]) -> Any:
    """Read files with the readers of `hashembed.readers` -> a Ray dataset.

    Files are divided among tasks, several for each core; one file is read by one task. The files
    must be where all nodes can reach them.

    Args:
        paths: files, globs and folders, as paths or URIs such as s3://bucket/folder.
        labelled: whether rows have labels (default True). Without labels, every row stays: one that
            cannot be read has a null as its text.
        **options: as in `hashembed.readers.read`.

    The columns are `text`, with labels also `label`, and those that `keep` names. With
    on_error="skip", bad rows are left out. `fit` and `evaluate` report them.
    """
    ray = connected()
    checked = Options(**options, labelled=labelled)
    sources = find_sources(paths, labelled)
    if any(source.path == STDIN for source in sources):
        raise DataError("standard input ('-') cannot be read by the nodes of a cluster: give files")
    schema = _schema(sources, checked)
    items = [{"source": number} for number in range(len(sources))]
    listed = ray.put(sources)
    tasks = max(TASKS_PER_CORE * cluster_cores(), -(-len(items) // MOST_FILES))
    files = ray.data.from_items(items, override_num_blocks=min(tasks, len(items)))
    found = files.map_batches(
        _read_files,
        batch_size=None,
        batch_format="pyarrow",
        fn_kwargs={
            "sources": listed,
            "options": checked,
            "schema": schema,
            "names": dict(option_names()),
        },
        num_cpus=1,
    )
    return in_order(found)


def _schema(sources: list[Source], options: Options) -> pa.Schema:
    """The columns of the dataset, from the first rows."""
    for table in _tables(sources, 0, options):
        return table.schema
    return _table(
        LabelledText(None, pa.chunked_array([], pa.large_string()), Report()), None
    ).schema


def _read_files(
    batch: pa.Table, sources: Any, options: Options, schema: pa.Schema, names: dict[str, str]
) -> Iterator[pa.Table]:
    """The task: the rows of some files. Messages name options as `names` says."""
    import ray

    known: list[Source] = ray.get(sources)
    with command_options(names):
        for number in batch["source"].to_pylist():
            yield from _joined(_as(table, schema) for table in _tables(known, number, options))


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in larger tables. Labels may be lists from some table on."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if waiting and (size >= TABLE_BYTES or waiting[0].schema != table.schema):
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(table)
        size += table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _tables(sources: list[Source], number: int, options: Options) -> Iterator[pa.Table]:
    """The rows of one file, read with what the first file shows about the format."""
    reading = Reading(options, may_be_empty=True)
    if number:
        _look_at(reading, sources[0])
    report = reading.report
    rows = problems = 0  # that were noted
    for piece in reading.pieces([sources[number]]):
        note = None
        if options.labelled and (report.skipped > rows or len(report.problems) > problems):
            note = _note(report.skipped - rows, report.problems[problems:])
            rows, problems = report.skipped, len(report.problems)
        yield _table(LabelledText(piece.labels, piece.texts, report, piece.kept), note)


def _look_at(reading: Reading, first: Source) -> None:
    """Let the reading see the beginning of the first file, whose format later files have."""
    for _ in reading.pieces([first]):
        break
    reading.report = Report()


def _note(rows: int, problems: list[Problem]) -> str:
    """What was skipped, as JSON."""
    return json.dumps({"rows": rows, "problems": [str(problem) for problem in problems]})


def _table(found: LabelledText, note: str | None) -> pa.Table:
    """Rows as a table; a note is a row of its own at the end."""
    columns: dict[str, Any] = {"text": found.texts}
    if found.labels is not None:
        plain = found.labels
        columns["label"] = plain.cast(pa.string()) if pa.types.is_dictionary(plain.type) else plain
    if found.kept is not None:
        for name in found.kept.column_names:
            columns.setdefault(name, found.kept[name])
    table = pa.table(columns)
    if found.labels is None:
        return table
    notes = pa.nulls(len(table), pa.string())
    table = table.append_column(NOTE, notes)
    if note is None:
        return table
    row = {field.name: pa.nulls(1, field.type) for field in table.schema}
    row[NOTE] = pa.array([note], pa.string())
    return pa.concat_tables([table, pa.table(row, table.schema)])


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of the first one; labels may have become lists."""
    missing = [name for name in schema.names if name not in table.column_names]
    for name in missing:
        table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
    table = table.select(schema.names)
    for i, field in enumerate(schema):
        if table.schema.field(i).type != field.type and not pa.types.is_list(
            table.schema.field(i).type
        ):
            table = table.set_column(i, field, table[i].cast(field.type))
    return table
