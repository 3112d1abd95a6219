"""Tensors in one safetensors file, with everything needed to read them in its header.

Writing is atomic: the file appears complete, or not at all. Reading verifies a checksum over header
and tensors: a damaged file is refused with a clear message.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hashembed.core.background import in_background
from hashembed.core.printable import printable
from hashembed.core.tensor_layout import (
    MAX_HEADER,
    Layout,
    layout_bytes,
    read_layout,
    read_tensor,
)
from hashembed.core.writing import Parts, PathLike, write_whole
from hashembed.hashing.spec import HASH_VERSION

FORMAT_VERSION = 1  # what earlier versions read
PACKED_VERSION = 2  # with packed tables, which they must refuse
VECTORS_VERSION = 3  # with word vectors, which both must refuse
KEY, CHECKSUM = "hashembed", "checksum"
CHECKSUM_BYTES = 16
_NO_CHECKSUM = "0" * 2 * CHECKSUM_BYTES  # as long as one

Arrays = dict[str, npt.NDArray[Any]]
LARGEST = float(np.finfo(np.float32).max)  # the largest number that models compute with


class ModelFileError(ValueError):
    """A file that is not a model, or not one that this version can read."""


def save_tensors(
    path: PathLike,
    kind: str,
    tensors: Mapping[str, npt.NDArray[Any]],
    meta: Any,
    version: int = FORMAT_VERSION,
) -> None:
    """Write tensors and metadata; `kind` says what they are, `version` who can read them."""
    header = _header(kind, meta, version)
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    checksum = in_background(lambda: _checksum(header, arrays))  # while the tensors are written

    def first() -> bytes:
        return layout_bytes(arrays, {KEY: header, CHECKSUM: checksum()})[0]

    before, order = layout_bytes(arrays, {KEY: header, CHECKSUM: _NO_CHECKSUM})
    write_whole(path, Parts(len(before), first, [_bytes_of(arrays[name]) for name in order]))


def bytes_of_file(
    kind: str, tensors: Mapping[str, npt.NDArray[Any]], meta: Any, version: int
) -> int:
    """The size of the file that `save_tensors` would write."""
    header = {KEY: _header(kind, meta, version), CHECKSUM: _NO_CHECKSUM}
    return len(layout_bytes(tensors, header)[0]) + sum(a.nbytes for a in tensors.values())


def _header(kind: str, meta: Any, version: int) -> str:
    header = json.dumps(
        {"kind": kind, "format": version, "hash": HASH_VERSION, "meta": meta}, default=_plain
    )
    if len(header) > MAX_HEADER // 2:  # its quotes are escaped in the file's own header
        raise ValueError(
            f"cannot save: labels and settings take {len(header):,} bytes, but a file holds at "
            f"most {MAX_HEADER // 2:,}"
        )
    return header


def load_tensors(path: PathLike, kind: str) -> tuple[Arrays, Any]:
    """What `save_tensors` wrote -> tensors, metadata."""
    arrays, meta, verify = open_tensors(path, kind)
    verify()
    return arrays, meta


def open_tensors(path: PathLike, kind: str) -> tuple[Arrays, Any, Callable[[], None]]:
    """The same, and a function that raises if the file is damaged.

    The checksum takes as long as making a model of the tensors. A second thread computes it
    meanwhile.
    """
    with _opened(path) as (file, layout):
        header = layout.metadata[KEY]
        content = _understand(path, kind, header)
        arrays = {name: read_tensor(file, layout, name) for name in layout.places}
        checksum = in_background(lambda: _checksum(header, arrays))

        def verify() -> None:
            if checksum() != layout.metadata.get(CHECKSUM, ""):
                raise ModelFileError(f"{path} is damaged: its checksum does not fit its content")

        try:
            _check_numbers(path, arrays)
        except ModelFileError:
            verify()
            raise
        return arrays, content["meta"], verify


def _check_numbers(path: PathLike, arrays: Arrays) -> None:
    """Refuse numbers that models cannot compute with."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not all_finite(array):
            raise ModelFileError(f"{path} holds NaN or infinity in its tensor {name!r:.50}")
        if array.dtype == np.float64 and (np.abs(array) > LARGEST).any():
            raise ModelFileError(f"{path} holds numbers too large in its tensor {name!r:.50}")


def all_finite(array: npt.NDArray[Any]) -> bool:
    """Whether no number is NaN or infinite."""
    if array.dtype != np.float16:
        return bool(np.isfinite(array).all())
    # NumPy converts each half to a float first. Comparing bits takes a fiftieth of the time.
    bits = np.ascontiguousarray(array).view(np.uint16)
    infinity, sign = 0x7C00, 0x8000
    highest, lowest = bits.view(np.int16).max(initial=0), bits.max(initial=0)
    return bool(highest < infinity and lowest < infinity + sign)


def read_header(path: PathLike) -> dict[str, Any]:
    """Kind, versions, metadata and the shapes of the tensors, without reading the tensors."""
    with _opened(path) as (file, layout):
        content = _understand(path, None, layout.metadata[KEY])
        shapes = {
            name: {"shape": list(place.shape), "dtype": place.dtype}
            for name, place in layout.places.items()
        }
        return {**content, "tensors": shapes, "bytes": os.fstat(file.fileno()).st_size}


def kind_of(path: PathLike) -> str | None:
    """What a file of ours holds, such as "TextClassifier"; None if the file is not ours."""
    try:
        with _opened(path) as (_, layout):
            return str(_understand(path, None, layout.metadata[KEY])["kind"])
    except ModelFileError:
        return None


@contextmanager
def understanding(path: PathLike) -> Iterator[None]:
    """Around code that interprets a file's fields: turns any error into one clear message."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(printable(f"{path} {error}")) from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        message = f"{type(error).__name__}: {error!s:.300}"
        raise ModelFileError(printable(f"{path} cannot be understood: {message}")) from None


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot save {value!r} of type {type(value).__name__}")


def _checksum(header: str, arrays: Arrays) -> str:
    """Over the header and each tensor's name, type, shape and bytes."""
    digest = blake2b(header.encode(), digest_size=CHECKSUM_BYTES)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(_bytes_of(array))
    return digest.hexdigest()


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


@contextmanager
def _opened(path: PathLike) -> Iterator[tuple[BinaryIO, Layout]]:
    """The file and its layout, with our own header among the metadata."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ModelFileError(f"{path} is a folder, not a model file")
    if not stat.S_ISREG(mode):  # reading a pipe could block
        raise ModelFileError(f"{path} is a pipe, a device or a socket: save it to a file first")
    with open(path, "rb") as file:
        try:
            layout = read_layout(file)
            if KEY not in layout.metadata:
                raise ModelFileError(f"{path} is a safetensors file, but not one of hashembed's")
            yield file, layout
        except ModelFileError:
            raise
        except ValueError as error:
            message = f"{path} is damaged or not a safetensors file: {error}"
            raise ModelFileError(printable(message)) from None


def _understand(path: PathLike, kind: str | None, header: str) -> dict[str, Any]:
    try:
        content = json.loads(header)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is damaged: its header is not JSON") from None
    wanted = {"kind", "format", "hash", "meta"}
    if not isinstance(content, dict) or not wanted <= content.keys():
        raise ModelFileError(f"{path} is damaged: its header lacks {sorted(wanted)}")
    if not isinstance(content["format"], int) or content["format"] > VECTORS_VERSION:
        raise ModelFileError(
            f"{path} has format {content['format']!r:.20}, but this version of hashembed reads up "
            f"to {VECTORS_VERSION}: upgrade it"
        )
    if content["hash"] != HASH_VERSION:
        raise ModelFileError(
            f"{path} was made with hash version {content['hash']!r:.20}, this is {HASH_VERSION}"
        )
    if kind is not None and content["kind"] != kind:
        found = printable(f"{content['kind']!s:.50}")
        raise ModelFileError(f"{path} holds a {found}, not a {kind}")
    return content


@contextmanager
def opened_tensors(path: PathLike, kind: str) -> Iterator[tuple[BinaryIO, Layout, Any]]:
    """The open file, its layout and its metadata. Of its content, only the header is checked."""
    with _opened(path) as (file, layout):
        yield file, layout, _understand(path, kind, layout.metadata[KEY])["meta"]
