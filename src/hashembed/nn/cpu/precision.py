"""Tables of any precision, read and written by kernels that compute in float32 or float64.

Numba has no half precision on a CPU, so kernels see the bits: bfloat16 as uint16 and float16 as
int16. The type of the array picks the conversion, at compile time.
"""

import numpy as np
from numba import types
from numba.extending import overload

from hashembed.core.njit import njit

u32 = np.uint32

_MAGNITUDE, _INFINITY = u32(0x7FFFFFFF), u32(0x7F800000)
_TWO_112 = np.float32(2.0**112)
_HALF_OVERFLOW = u32(0x477FF000)  # 65520: what rounds to infinity in float16
_HALF_NORMAL = u32(0x38800000)  # 2^-14: the smallest normal float16


@njit
def _bits(x):
    return np.float32(x).view(np.uint32)


@njit
def _float(bits):
    return u32(bits).view(np.float32)


@njit
def bfloat16_to_float(bits):
    """uint16 -> float32."""
    return _float(u32(bits) << u32(16))


@njit
def float_to_bfloat16(x):
    """float32 -> uint16, to nearest even."""
    bits = _bits(x)
    if (bits & _MAGNITUDE) > _INFINITY:
        return np.uint16((bits >> u32(16)) | u32(0x40))
    return np.uint16(u32(bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) >> u32(16))


@njit
def float16_to_float(bits):
    """int16 -> float32: the exponents differ by 112, and a product gets subnormals right too."""
    wide = u32(np.uint16(bits))
    x = u32((wide & u32(0x7FFF)) << u32(13))
    if x >= u32(0x0F800000):  # infinity or NaN
        magnitude = u32(x | _INFINITY)
    else:
        magnitude = _bits(_float(x) * _TWO_112)
    return _float(magnitude | u32((wide & u32(0x8000)) << u32(16)))


@njit
def float_to_float16(x):
    """float32 -> int16, to nearest even."""
    bits = _bits(x)
    sign, magnitude = (bits >> u32(16)) & u32(0x8000), u32(bits & _MAGNITUDE)
    if magnitude > _INFINITY:
        half = u32(0x7E00)
    elif magnitude >= _HALF_OVERFLOW:
        half = u32(0x7C00)
    elif magnitude >= _HALF_NORMAL:
        even = (magnitude >> u32(13)) & u32(1)
        half = u32(u32(magnitude - u32(0x38000000)) + u32(0xFFF) + even) >> u32(13)
    else:  # the unit of a subnormal is 2^-24: adding 0.5 rounds to a multiple of it
        half = u32(_bits(_float(magnitude) + np.float32(0.5)) - u32(0x3F000000))
    return np.uint16(half | sign).view(np.int16)


def load(table, row, column):
    """table[row, column] as a number to compute with."""
    return table[row, column]


def store(table, row, column, value):
    """table[row, column] = value, rounded to nearest even."""
    table[row, column] = value


@overload(load)
def _load(table, row, column):
    if table.dtype == types.uint16:
        return lambda table, row, column: bfloat16_to_float(table[row, column])
    if table.dtype == types.int16:
        return lambda table, row, column: float16_to_float(table[row, column])
    return lambda table, row, column: table[row, column]


@overload(store)
def _store(table, row, column, value):
    if table.dtype == types.uint16:

        def put(table, row, column, value):
            table[row, column] = float_to_bfloat16(value)
    elif table.dtype == types.int16:

        def put(table, row, column, value):
            table[row, column] = float_to_float16(value)
    else:

        def put(table, row, column, value):
            table[row, column] = value

    return put
