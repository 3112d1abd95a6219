"""Copy selected bags of keys into one array."""

from hashembed.core.arrays import I64
from hashembed.core.njit import njit


@njit(native=True, nogil=True, error_model="numpy")
def gather(keys: I64, starts: I64, offsets: I64, out: I64) -> None:
    """out[offsets[i] : offsets[i + 1]] = keys[starts[i] : ...] for each i."""
    for i in range(len(starts)):
        shift = starts[i] - offsets[i]
        for o in range(offsets[i], offsets[i + 1]):
            out[o] = keys[o + shift]
