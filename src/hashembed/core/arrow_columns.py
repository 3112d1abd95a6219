"""Arrow columns made of Python and NumPy values, and back, by their buffers.

`pa.array` and `to_numpy` do the same, but import pandas if that is installed. This takes longer
than many commands.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text_column(texts: Sequence[str | None], kind: Any = None) -> pa.Array:
    """Strings as large strings, or as large binaries if that is the kind; None is null."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    valid = None
    if not all(encoded):  # some are empty or null
        valid = _bits(np.array([text is not None for text in texts], np.bool_))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind or pa.large_string(), len(encoded), buffers)


def number_column(numbers: npt.NDArray[np.int32 | np.int64]) -> pa.Array:
    """Whole numbers; the column shares their memory."""
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])


def mask_column(mask: npt.NDArray[np.bool_]) -> pa.Array:
    """Booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, _bits(mask)])


def null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are null."""
    valid, end = column.buffers()[0], column.offset + len(column)
    if valid is None:
        return np.zeros(len(column), np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=end, bitorder="little")
    return np.asarray(bits[column.offset :] == 0)


def whole_numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """A column of whole numbers without nulls."""
    if len(array) == 0:
        return np.empty(0, np.int64)
    dtype = np.dtype(str(array.type))
    start = array.offset * dtype.itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), start).astype(np.int64)


def _bits(mask: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
