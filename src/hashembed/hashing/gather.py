"""Copy selected bags of keys into one array."""

from hashembed.core.njit import njit


@njit(cache=True, nogil=True, error_model="numpy")
def gather(keys, starts, offsets, out):
    """out[offsets[i] : offsets[i + 1]] = keys[starts[i] : ...] for each i."""
    for i in range(len(starts)):
        shift = starts[i] - offsets[i]
        for o in range(offsets[i], offsets[i + 1]):
            out[o] = keys[o + shift]
