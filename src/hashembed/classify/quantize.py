"""Tables quantized to 8 or 4 bits, for model files.

A number is stored as sign * (code / top)^2 * largest, with integer codes from -top to top. The
steps are fine near zero, where most importance weights are, and coarse far from it. `largest` is
the largest absolute value of the whole table.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, U8

BITS = (8, 4)


def encode(table: npt.NDArray[Any], bits: int) -> tuple[U8, float]:
    """Numbers (rows, columns) -> codes, two in a byte with 4 bits; and the largest number."""
    top = 2 ** (bits - 1) - 1
    largest = float(np.abs(table).max(initial=0)) or 1.0
    roots = np.sqrt(np.abs(table, dtype=np.float32) / np.float32(largest))
    codes = (np.sign(table) * np.rint(roots * top)).astype(np.int8).view(np.uint8)
    if bits == 4:
        codes = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2))) & 15
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    return np.ascontiguousarray(codes), largest


def decode(codes: U8, largest: float, bits: int, columns: int) -> F32:
    """Codes -> approximately the numbers that `encode` got: (rows, columns)."""
    top = 2 ** (bits - 1) - 1
    if bits == 4:
        pairs = np.stack([codes << 4, codes & 240], axis=2).reshape(len(codes), 2 * codes.shape[1])
        whole = pairs.view(np.int8)[:, :columns] >> 4
    else:
        whole = codes.view(np.int8)
    x = whole.astype(np.float32) / np.float32(top)
    out: F32 = np.sign(x) * x * x * np.float32(largest)
    return out
