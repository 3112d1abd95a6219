"""Prints the digests of one room's results, as JSON."""

import json
import sys
from hashlib import blake2b
from importlib import import_module

import numpy as np
import pyarrow as pa
from tests.cases.same_bits import HEAVY


def add(digest, value):
    """Everything that tells a value from others: types, shapes and bits."""
    if isinstance(value, dict):
        value = sorted(value.items())
    if isinstance(value, list | tuple):
        digest.update(f"{type(value).__name__} {len(value)} ".encode())
        for item in value:
            add(digest, item)
    elif isinstance(value, pa.Array | pa.ChunkedArray):
        add(digest, value.to_pylist())
    elif isinstance(value, np.ndarray | np.generic):
        digest.update(f"{value.dtype} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    else:
        digest.update(f"{type(value).__name__} {value!r} ".encode())


def digests(room):
    for name, value in import_module(f"tests.cases.same_bits.{room}").cases():
        digest = blake2b(digest_size=8)
        add(digest, value)
        yield name, digest.hexdigest()


if __name__ == "__main__":
    found = dict(digests(sys.argv[1]))
    json.dump({"digests": found, "heavy": [m for m in HEAVY if m in sys.modules]}, sys.stdout)
