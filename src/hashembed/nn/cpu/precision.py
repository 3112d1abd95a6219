"""Tables of any precision, read and written by kernels that compute in float32 or float64.

Numba has no half precision on a CPU, so kernels see the bits: bfloat16 as uint16 and float16 as
int16. The type of the array picks the conversion, at compile time.

The annotations of kernels say float32, the only precision that the library of compiled kernels has.
Numba compiles the others when they are first used: they are rare, and each would take as long to
build as all of float32.
"""

import numpy as np

from hashembed.core.njit import Intrinsic, njit

_CODE = "hashembed.nn.cpu.table_code"

load = Intrinsic(_CODE, "load")
store = Intrinsic(_CODE, "store")
prefetch_number = Intrinsic(_CODE, "prefetch_number")
dot = Intrinsic(_CODE, "dot")

LINE = 16  # floats in a cache line

u32, u64 = np.uint32, np.uint64

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


@njit(forceinline=True)
def prefetch_row(table, row):
    """Prefetch all cache lines of a row."""
    width = table.shape[1]
    for j in range(0, width, LINE):
        prefetch_number(table, row, j)
    prefetch_number(table, row, width - 1)
