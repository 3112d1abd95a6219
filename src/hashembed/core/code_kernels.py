"""The kernel that decodes tables of 8 or 4 bits."""

import numpy as np

from hashembed.core.arrays import F32, F32_2D, U8_2D
from hashembed.core.njit import njit


@njit(native=True, nogil=True, error_model="numpy")
def fill_decoded(codes: U8_2D, values: F32, columns: int, out: F32_2D) -> None:
    """The first `columns` columns of `out` = the values (256,) of the codes.

    If there are 16 values, a byte has two codes, the first in its lower half.
    """
    for row in range(len(codes)):
        own, numbers = codes[row], out[row]
        if len(values) == 256:
            for i in range(columns):
                numbers[i] = values[own[i]]
        else:
            for i in range(columns):
                numbers[i] = values[(own[i >> 1] >> np.uint8(4 * (i & 1))) & np.uint8(15)]
