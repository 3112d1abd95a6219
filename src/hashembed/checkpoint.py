"""Tensors in one safetensors file, and in its header everything needed to read them.

Writing is atomic: the file appears whole, or not at all. A checksum over header and tensors is
verified on reading: a damaged file is refused with a sentence, never half understood.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.hashing import HASH_VERSION

FORMAT_VERSION = 1
KEY, CHECKSUM = "hashembed", "checksum"

Arrays = dict[str, npt.NDArray[Any]]
PathLike = str | os.PathLike[str]


class ModelFileError(ValueError):
    """A file that is not a model, or not one that this version can read."""


def save_tensors(
    path: PathLike, kind: str, tensors: Mapping[str, npt.NDArray[Any]], meta: Any
) -> None:
    """Write tensors and metadata; `kind` says what they are."""
    from safetensors.numpy import save

    header = json.dumps(
        {"kind": kind, "format": FORMAT_VERSION, "hash": HASH_VERSION, "meta": meta},
        default=_plain,
    )
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    write_whole(path, save(arrays, {KEY: header, CHECKSUM: _checksum(header, arrays)}))


def load_tensors(path: PathLike, kind: str) -> tuple[Arrays, Any]:
    """What `save_tensors` wrote -> tensors, metadata."""
    with _opened(path) as (file, header, stored):
        content = _understand(path, kind, header)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _checksum(header, arrays) != stored:
            raise ModelFileError(f"{path} is damaged: its checksum does not fit its content")
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ModelFileError(f"{path} holds NaN or infinity in its tensor {name!r}")
        return arrays, content["meta"]


def read_header(path: PathLike) -> dict[str, Any]:
    """Kind, versions, metadata and the shapes of the tensors, without reading the tensors."""
    with _opened(path) as (file, header, _):
        content = _understand(path, None, header)
        shapes = {}
        for name in file.keys():  # noqa: SIM118
            part = file.get_slice(name)
            shapes[name] = {"shape": part.get_shape(), "dtype": part.get_dtype()}
        return {**content, "tensors": shapes, "bytes": os.stat(path).st_size}


def write_whole(path: PathLike, data: bytes) -> None:
    """A file that is there whole, on the disk, or not at all."""
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _plain(value: Any) -> Any:
    """NumPy's numbers, as JSON can hold them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot save {value!r} of type {type(value).__name__}")


def _checksum(header: str, arrays: Arrays) -> str:
    """Over the header and each tensor's name, type, shape and bytes."""
    digest = blake2b(header.encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


@contextmanager
def _opened(path: PathLike) -> Iterator[tuple[Any, str, str]]:
    """The file, its header as JSON, and the checksum it claims to have."""
    from safetensors import SafetensorError, safe_open

    if os.path.isdir(path):
        raise ModelFileError(f"{path} is a folder, not a model file")
    try:
        with safe_open(path, framework="numpy") as file:
            stored = file.metadata() or {}
            if KEY not in stored:
                raise ModelFileError(f"{path} is a safetensors file, but not one of hashembed's")
            yield file, stored[KEY], stored.get(CHECKSUM, "")
    except (SafetensorError, UnicodeDecodeError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {error}") from None
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        # safetensors checks layout, not every type that a header may claim
        raise ModelFileError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def _understand(path: PathLike, kind: str | None, header: str) -> dict[str, Any]:
    try:
        content = json.loads(header)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is damaged: its header is no JSON") from None
    wanted = {"kind", "format", "hash", "meta"}
    if not isinstance(content, dict) or not wanted <= content.keys():
        raise ModelFileError(f"{path} is damaged: its header lacks {sorted(wanted)}")
    if not isinstance(content["format"], int) or content["format"] > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {content['format']!r:.20}, but this version of hashembed reads up "
            f"to {FORMAT_VERSION}: upgrade it"
        )
    if content["hash"] != HASH_VERSION:
        raise ModelFileError(
            f"{path} was made with hash version {content['hash']!r:.20}, this is {HASH_VERSION}"
        )
    if kind is not None and content["kind"] != kind:
        raise ModelFileError(f"{path} holds a {content['kind']!s:.50}, not a {kind}")
    return content
