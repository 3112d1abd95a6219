"""Keys of a dataset in files: made by all nodes, read by the node that trains.

A part is an Arrow file with the keys and the label of each row. Parts are in the order of the rows,
but their sizes are Ray's choice. So nothing may depend on where a part ends.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrow_columns import number_column
from hashembed.core.locations import delete_folder, join_location, read_location, write_location
from hashembed.distributed.cluster import plain_errors
from hashembed.distributed.columns import Columns, Skipped, as_labels, to_skip
from hashembed.distributed.groups import in_order
from hashembed.hashing.bags import Bags
from hashembed.readers.report import DataError
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

PART_BYTES = 32 << 20  # of keys
PIECE_BYTES = 4 << 20  # of text that is hashed at a time


@dataclass(frozen=True)
class Part:
    """A file of keys."""

    location: str
    rows: int
    keys: int


@dataclass(frozen=True)
class Parts:
    """All keys of a dataset, in the order of its rows."""

    folder: str
    parts: tuple[Part, ...]
    skipped: Skipped

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return sum(part.keys for part in self.parts)

    def __iter__(self) -> Iterator[tuple[Bags, Any]]:
        for part in self.parts:
            yield read_part(part.location)

    def delete(self) -> None:
        """Delete the files, those of tasks that ran again included."""
        delete_folder(self.folder)


def make_keys(ds: Any, columns: Columns, config: TextConfig, folder: str) -> Parts:
    """Hash the texts of a dataset, on all nodes, into files in this folder.

    The task that reads a block also hashes it: texts do not travel. What comes back is a row for
    each file, in the order of the dataset.
    """
    own = join_location(folder, os.urandom(8).hex())  # of another run, nothing is read
    made = columns.select(ds).map_batches(
        _write_parts,
        batch_size=None,
        batch_format="pyarrow",
        zero_copy_batch=True,
        fn_kwargs={
            "columns": replace(columns, on_error="skip"),
            "config": config,
            "folder": own,
        },
        num_cpus=1,
    )
    parts: list[Part] = []
    skipped, first = Skipped(), 0
    try:
        with plain_errors():
            for row in in_order(made).iter_rows():
                left_out = Skipped.from_json(row["skipped"], first)
                if columns.on_error == "stop" and (problem := left_out.first_problem):
                    raise DataError(f"{problem} ({to_skip()})")
                skipped += left_out
                first += row["read"]
                if row["location"]:
                    parts.append(Part(row["location"], row["rows"], row["keys"]))
    except BaseException:
        delete_folder(own)
        raise
    return Parts(own, tuple(parts), skipped)


def _write_parts(
    table: pa.Table, columns: Columns, config: TextConfig, folder: str
) -> Iterator[pa.Table]:
    """The task: hash the texts of a block and write them, in parts of limited size."""
    skipped = Skipped()
    texts, labels, _ = columns.read(0, table, skipped)
    bags: list[Bags] = []
    start = first = size = 0
    for piece in pieces(to_arrow(texts), PIECE_BYTES):
        bags.append(text_to_bags(piece, config, 1))
        start += len(piece)
        size += bags[-1].keys.nbytes
        if size >= PART_BYTES:
            yield _written(bags, labels.slice(first, start - first), folder)
            bags, first, size = [], start, 0
    if bags:
        yield _written(bags, labels.slice(first, start - first), folder)
    yield _about("", 0, 0, len(table), skipped.to_json())


def _written(bags: list[Bags], labels: Any, folder: str) -> pa.Table:
    """Write a part -> a row about it. A task that runs again writes another file."""
    location = join_location(folder, f"{os.urandom(12).hex()}.arrow")
    rows, keys = sum(map(len, bags)), sum(len(part.keys) for part in bags)
    write_location(location, part_bytes(bags, labels), sync=False)  # it can be made again
    bags.clear()
    return _about(location, rows, keys, 0, "")


def _about(location: str, rows: int, keys: int, read: int, skipped: str) -> pa.Table:
    """A row about a part, or about a block that was read."""
    return pa.table(
        {
            "location": [location],
            "rows": [rows],
            "keys": [keys],
            "read": [read],
            "skipped": [skipped],
        }
    )


def part_bytes(bags: Sequence[Bags], labels: Any) -> pa.Buffer:
    """A part as the bytes of an Arrow file: a batch of rows for each of the bags."""
    sink, start = pa.BufferOutputStream(), 0
    labels = as_labels(labels)
    schema = pa.schema({"keys": pa.large_list(pa.int64()), "label": labels.type})
    with pa.ipc.new_file(sink, schema) as writer:
        for part in bags:
            keys = pa.LargeListArray.from_arrays(
                number_column(part.offsets), number_column(part.keys)
            )
            own = labels.slice(start, len(part))
            writer.write_batch(pa.record_batch([keys, own], schema=schema))
            start += len(part)
    return sink.getvalue()


def read_part(location: str) -> tuple[Bags, Any]:
    """The bags and the labels of a part."""
    table = pa.ipc.open_file(pa.py_buffer(read_location(location))).read_all()
    bags = []
    for lists in table["keys"].chunks:
        offsets = np.asarray(lists.offsets, np.int64)
        values = np.asarray(lists.values, np.int64)
        bags.append(Bags(values[offsets[0] : offsets[-1]], offsets - offsets[0]))
    return Bags.concat(bags), _joined(table["label"])


def _joined(labels: pa.ChunkedArray) -> Any:
    if pa.types.is_dictionary(labels.type):
        labels = labels.unify_dictionaries()
    whole = labels.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
