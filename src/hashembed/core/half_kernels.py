"""The kernel that converts tables to half precision.

NumPy converts one number at a time, and takes longest for the smallest ones, which importance
weights are. The results are the same, bit for bit.
"""

import numpy as np

from hashembed.core.arrays import F32_2D, I64, U16_2D, U32_2D
from hashembed.core.njit import njit

u32 = np.uint32

_BLOCK = 2048  # numbers that a worker converts at a time

_SIGN, _REST = u32(0x8000), u32(0x7FFFFFFF)
_LOWEST = u32(0x38800000)  # 2^-14: below it, halves have fewer digits
_OFFSET = u32(0x38000000)  # between the exponents of a float and a half
_ALMOST_HALF, _ONE = u32(0xFFF), u32(1)  # of what rounding drops
_DROPPED, _HALF_WIDTH = u32(13), u32(16)
_INFINITY = u32(0x7C00)
_STEP = np.float32(2**24)  # 1 over the distance of the smallest halves
_ROUND = np.float32(12582912)  # 1.5 * 2^23: adding it rounds to a whole number, ties to even
_HIGHEST = np.float32(2**-13)


@njit(native=True, nogil=True, error_model="numpy")
def fill_halves(
    worker: int, workers: int, barrier: I64, table: F32_2D, bits: U32_2D, width: int, out: U16_2D
) -> int:
    """out = the first `width` columns of the table in half precision -> the largest, as bits.

    `bits` is the memory of the table. Infinity stands for NaN and for numbers that are too large.
    """
    largest = u32(0)
    step = max(1, _BLOCK // max(width, 1))
    for first in range(worker * step, len(table), workers * step):
        for row in range(first, min(first + step, len(table))):
            numbers, words, halves = table[row], bits[row], out[row]
            for i in range(width):
                word = words[i]
                rest = u32(word & _REST)
                odd = u32(u32(rest >> _DROPPED) & _ONE)
                normal = u32(u32(rest + _ALMOST_HALF + odd - _OFFSET) >> _DROPPED)
                small = min(abs(numbers[i]), _HIGHEST) * _STEP
                whole = u32(np.int32((small + _ROUND) - _ROUND))
                half = min(normal, _INFINITY) if rest >= _LOWEST else whole
                largest = max(largest, half)
                halves[i] = np.uint16(half | u32(u32(word >> _HALF_WIDTH) & _SIGN))
    return int(np.int64(largest))
