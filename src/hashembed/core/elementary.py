"""exp and log for kernels: the same bits on every machine.

The C library's functions, and NumPy's, differ between machines in the last bit. These use only
operations that IEEE 754 rounds correctly, without branches: LLVM vectorises loops over them.
"""

import numpy as np

from hashembed.core.intrinsics import bits_of, float_of
from hashembed.core.njit import njit

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm's
_ROUND = 1.5 * 2.0**52  # a sum with it is rounded to an integer, which its low bits hold
_LOWEST, _HIGHEST = -708.0, 709.0

_SMALLEST_NORMAL = 2.0**-1022
_ONE_BITS, _SQRT_HALF_BITS = np.int64(0x3FF0000000000000), np.int64(0x3FE6A09E667F3BCD)
_FRACTION = np.int64(0x000FFFFFFFFFFFFF)


@njit(inline="always")
def exp64(x):
    """exp(x) in float64, to 2 units in the last place; 0 below -708."""
    shifted = x * _LOG2_E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    y = 1 / 479001600 + r * (1 / 6227020800)
    y = 1 / 39916800 + r * y
    y = 1 / 3628800 + r * y
    y = 1 / 362880 + r * y
    y = 1 / 40320 + r * y
    y = 1 / 5040 + r * y
    y = 1 / 720 + r * y
    y = 1 / 120 + r * y
    y = 1 / 24 + r * y
    y = 1 / 6 + r * y
    y = 0.5 + r * y
    y = 1.0 + r * y
    y = 1.0 + r * y
    power = float_of((bits_of(shifted) << np.int64(52)) + _ONE_BITS)  # 2^k
    y = 0.0 if x < _LOWEST else y * power
    return np.inf if x > _HIGHEST else y


@njit(inline="always")
def log64(x):
    """log(x) in float64, to one unit in the last place: the method of fdlibm."""
    tiny = x < _SMALLEST_NORMAL
    bits = bits_of(x * 2.0**54 if tiny else x) + (_ONE_BITS - _SQRT_HALF_BITS)
    k = np.float64((bits >> np.int64(52)) - np.int64(1023 + 54 if tiny else 1023))
    f = float_of((bits & _FRACTION) + _SQRT_HALF_BITS) - 1.0  # x = 2^k * (1 + f)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (
        3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)
    )
    odd = 1.818357216161805012e-01 + w * 1.479819860511658591e-01
    odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * odd))
    half = 0.5 * f * f
    y = s * (half + (even + odd)) + k * _LN2_LOW - half + f + k * _LN2_HIGH
    y = y if x < np.inf else x  # infinity and NaN
    y = y if x != 0.0 else -np.inf
    return np.nan if x < 0.0 else y
