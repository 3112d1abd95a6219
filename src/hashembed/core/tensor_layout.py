"""The layout of a safetensors file: writes it, and reads it without trusting it.

The file has three parts: eight bytes with the length of the header; a JSON header with metadata and
the type, shape and position of each tensor; and the tensors, one after the other. The safetensors
library maps the file into memory, so the process crashes if another process truncates the file
meanwhile. This module reads the file instead of mapping it. The library also copies all tensors
before it writes them, which this module does not need.
"""

import json
import math
import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

MAX_HEADER = 100_000_000  # bytes, as in the format's own library
MAX_DIMENSIONS = 32

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Place(NamedTuple):
    """Where a tensor is in the file, and what it is."""

    dtype: str
    shape: tuple[int, ...]
    begin: int  # bytes from the end of the header
    end: int


class Layout(NamedTuple):
    """What a header says; `begin` is where it ends."""

    metadata: dict[str, str]
    places: dict[str, Place]
    begin: int


def layout_bytes(
    arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """How a file with these tensors begins, and the order in which they follow."""
    # Tensors of the largest numbers come first, as in the format's own library: all are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded, order


def read_layout(file: BinaryIO) -> Layout:
    """The header of an open file; a ValueError says what is wrong with it."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise ValueError(f"it has {len(start)} bytes")
    length = struct.unpack("<Q", start)[0]
    if length > min(MAX_HEADER, size - 8):
        raise ValueError(f"its header is said to have {length:,} bytes, the file has {size:,}")
    encoded = file.read(length)
    if len(encoded) < length:
        raise ValueError("it became shorter while it was read")
    try:
        header = json.loads(encoded.decode(), object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("its header is not UTF-8") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its metadata are not strings")
    places = {name: _place(name, entry) for name, entry in header.items()}
    _check_tiling(places, size - 8 - length)
    return Layout(metadata, places, 8 + length)


def read_tensor(file: BinaryIO, layout: Layout, name: str) -> npt.NDArray[Any]:
    """One tensor of the file."""
    place = layout.places[name]
    array = np.empty(place.shape, DTYPES[place.dtype])
    file.seek(layout.begin + place.begin)
    if file.readinto(array.reshape(-1).view(np.uint8).data) < array.nbytes:  # type: ignore[attr-defined]
        raise ValueError("it became shorter while it was read")
    return array


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has the same name twice")
    return found


def _place(name: str, entry: Any) -> Place:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"its tensor {name!r:.50} is not described by type, shape and place")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"its tensor {name!r:.50} has the type {dtype!r:.20}")
    if not (_are_sizes(shape) and len(shape) <= MAX_DIMENSIONS):
        raise ValueError(f"its tensor {name!r:.50} has the shape {shape!r:.50}")
    if not (_are_sizes(offsets) and len(offsets) == 2):
        raise ValueError(f"its tensor {name!r:.50} has the place {offsets!r:.50}")
    if math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize != offsets[1] - offsets[0]:
        raise ValueError(f"its tensor {name!r:.50} has more or fewer bytes than its shape says")
    return Place(dtype, tuple(shape), *offsets)


def _are_sizes(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**62 for n in numbers)


def _check_tiling(places: dict[str, Place], size: int) -> None:
    """Refuse gaps, overlaps and data after the last tensor."""
    end = 0
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != end:
            raise ValueError("its tensors overlap, or something lies between them")
        end = place.end
    if end != size:
        raise ValueError(f"its tensors take {end:,} bytes, but there are {size:,}")
