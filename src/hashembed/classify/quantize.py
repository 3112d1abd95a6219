"""Tables quantized to 8 or 4 bits, for model files.

A number is stored as sign * (code / top)^2 * largest, with integer codes from -top to top. The
steps are fine near zero, where most importance weights are, and coarse far from it. `largest` is
the largest absolute value of the whole table.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, I64, U8, distinct
from hashembed.engine.coded import CodedTable
from hashembed.engine.packed import MAX_VALUES

BITS = (8, 4)
_ROWS = 1 << 12  # coded at a time: they stay in the cache


def encode(table: npt.NDArray[Any], bits: int) -> tuple[U8, float]:
    """Numbers (rows, columns) -> codes, two in a byte with 4 bits; and the largest number."""
    top = 2 ** (bits - 1) - 1
    parts = [table[i : i + _ROWS] for i in range(0, len(table), _ROWS)]
    largest = max((float(np.abs(part).max(initial=0)) for part in parts), default=0.0) or 1.0
    codes = np.empty((len(table), -(-table.shape[1] * bits // 8)), np.uint8)
    for i, part in enumerate(parts):
        roots = np.sqrt(np.abs(part, dtype=np.float32) / np.float32(largest))
        whole = (np.sign(part) * np.rint(roots * top)).astype(np.int8).view(np.uint8)
        if bits == 4:
            whole = np.pad(whole, ((0, 0), (0, whole.shape[1] % 2))) & 15
            whole = whole[:, ::2] | whole[:, 1::2] << 4
        codes[i * _ROWS : (i + 1) * _ROWS] = whole
    return codes, largest


def codes_and_values(numbers: npt.NDArray[Any]) -> tuple[I64, F32]:
    """Numbers (rows, columns) -> codes, 0 for zero and c for values[c - 1]; and the values.

    They are exact if there are few different numbers, as in a compressed model. Otherwise they are
    those of 8 bits.
    """
    flat = np.asarray(numbers, np.float32).reshape(-1)
    values = distinct(flat[flat != 0])
    if len(values) > MAX_VALUES:
        coded, largest = encode(flat.reshape(-1, 1), 8)
        every = values_of(largest, 8)
        flat = every[coded[:, 0]]
        values = distinct(flat[flat != 0])
    codes = np.where(flat == 0, 0, np.searchsorted(values, flat) + 1)
    return codes.reshape(np.shape(numbers)).astype(np.int64), values


def values_of(largest: float, bits: int) -> F32:
    """The number of each code, 256 or 16 of them."""
    top, codes = 2 ** (bits - 1) - 1, np.arange(2**bits)
    signed = np.where(codes < 2 ** (bits - 1), codes, codes - 2**bits)
    x = signed.astype(np.float32) / np.float32(top)
    return np.asarray(np.sign(x) * x * x * np.float32(largest), np.float32)


def coded_table(codes: U8, largest: float, bits: int, columns: int) -> CodedTable:
    """Approximately the numbers that `encode` got: (rows, columns)."""
    return CodedTable(codes, values_of(largest, bits), columns)
