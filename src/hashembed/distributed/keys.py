"""Keys of a dataset in files: made by all nodes, read by the node that trains.

A part is an Arrow file with the keys and the label of each row. Parts are in the order of the rows,
but their sizes are Ray's choice. So nothing may depend on where a part ends.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrow_columns import number_column
from hashembed.core.locations import delete_location, join_location, read_location, write_location
from hashembed.distributed.columns import Columns, Skipped, as_labels
from hashembed.distributed.groups import Group, results, run_groups
from hashembed.hashing.bags import Bags
from hashembed.text.arrow import pieces, to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

PART_BYTES = 64 << 20  # of keys
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
        """Delete the files."""
        for part in self.parts:
            delete_location(part.location)


def make_keys(ds: Any, columns: Columns, config: TextConfig, folder: str) -> Parts:
    """Hash the texts of a dataset, on all nodes, into files in this folder."""
    run = os.urandom(8).hex()  # of another run, nothing is read
    work = _write_parts, columns, config, join_location(folder, run)
    parts: list[Part] = []
    skipped = Skipped()
    for made, left_out in results(run_groups(columns.select(ds), "keys", *work)):
        parts += made
        skipped += left_out
    return Parts(tuple(parts), skipped)


def _write_parts(
    group: Group, columns: Columns, config: TextConfig, folder: str
) -> tuple[list[Part], Skipped]:
    """The task: hash the texts of a group and write them, in parts of limited size."""
    made: list[Part] = []
    skipped = Skipped()
    bags: list[Bags] = []
    labels: list[Any] = []
    size = 0

    def flush() -> None:
        nonlocal bags, labels, size
        location = join_location(folder, f"{group.number:08d}-{len(made):04d}.arrow")
        joined = Bags.concat(bags)
        write_location(location, part_bytes(joined, pa.chunked_array(labels).combine_chunks()))
        made.append(Part(location, len(joined), len(joined.keys)))
        bags, labels, size = [], [], 0

    for first, table in group.tables():
        texts, own, _ = columns.read(first, table, skipped)
        start = 0
        for piece in pieces(to_arrow(texts), PIECE_BYTES):
            bags.append(text_to_bags(piece, config, 1))
            labels.append(own.slice(start, len(piece)))
            start += len(piece)
            size += bags[-1].keys.nbytes
            if size >= PART_BYTES:
                flush()
    if bags:
        flush()
    return made, skipped


def part_bytes(bags: Bags, labels: Any) -> bytes:
    """A part as the bytes of an Arrow file."""
    lists = pa.LargeListArray.from_arrays(number_column(bags.offsets), number_column(bags.keys))
    table = pa.table({"keys": lists, "label": as_labels(labels)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_part(location: str) -> tuple[Bags, Any]:
    """The bags and the labels of a part."""
    table = pa.ipc.open_file(pa.py_buffer(read_location(location))).read_all()
    keys = table["keys"].combine_chunks()
    lists = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
    offsets = np.asarray(lists.offsets, np.int64)
    values = np.asarray(lists.values, np.int64)
    return Bags(values[offsets[0] : offsets[-1]], offsets - offsets[0]), _joined(table["label"])


def _joined(labels: pa.ChunkedArray) -> Any:
    if pa.types.is_dictionary(labels.type):
        labels = labels.unify_dictionaries()
    whole = labels.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def count_keys(parts: Sequence[Parts]) -> int:
    """The number of keys of all."""
    return sum(each.keys for each in parts)
