"""A model in one safetensors file: tensors, and in its header everything needed to read them.

Writing is atomic: the file appears whole, or not at all.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.hashing import HASH_VERSION

FORMAT_VERSION = 1
KEY = "hashembed"

Arrays = dict[str, npt.NDArray[Any]]


class ModelFileError(ValueError):
    """A file that is not a model, or not one that this version can read."""


def save_tensors(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, npt.NDArray[Any]], meta: Any
) -> None:
    """Write tensors and metadata; `kind` says what they are."""
    from safetensors.numpy import save

    header = {"kind": kind, "format": FORMAT_VERSION, "hash": HASH_VERSION, "meta": meta}
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    data = save(contiguous, {KEY: json.dumps(header)})
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def load_tensors(path: str | os.PathLike[str], kind: str) -> tuple[Arrays, Any]:
    """What `save_tensors` wrote -> tensors, metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            stored = (file.metadata() or {}).get(KEY)
            if stored is None:
                raise ModelFileError(f"{path} is a safetensors file, but not one of hashembed's")
            header = json.loads(stored)
            _check(path, kind, header)
            return {name: file.get_tensor(name) for name in file.keys()}, header["meta"]  # noqa: SIM118
    except SafetensorError as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {error}") from None


def _check(path: str | os.PathLike[str], kind: str, header: dict[str, Any]) -> None:
    if header["format"] > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {header['format']}, but this version of hashembed reads up to "
            f"{FORMAT_VERSION}: upgrade it"
        )
    if header["hash"] != HASH_VERSION:
        raise ModelFileError(
            f"{path} was made with hash version {header['hash']}, this is {HASH_VERSION}"
        )
    if header["kind"] != kind:
        raise ModelFileError(f"{path} holds a {header['kind']}, not a {kind}")
