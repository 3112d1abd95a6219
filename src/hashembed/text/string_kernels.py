"""The kernel behind `hashembed.keys`: whole strings to keys, without looking for words in them."""

from hashembed.core.arrays import I64, U8
from hashembed.core.njit import njit
from hashembed.hashing.scalars import fmix32, murmur_absorb, murmur_scramble, pack, u32
from hashembed.hashing.spec import WORD_SEEDS

_WORD_A, _WORD_B = (u32(s) for s in WORD_SEEDS)


@njit(inline="always")
def _block(data, i):
    """Four bytes from i on, little-endian."""
    low = u32(u32(data[i]) | u32(u32(data[i + 1]) << u32(8)))
    high = u32(u32(data[i + 2]) | u32(u32(data[i + 3]) << u32(8)))
    return u32(low | u32(high << u32(16)))


@njit(native=True, nogil=True, error_model="numpy")
def string_keys(
    worker: int, workers: int, barrier: I64, data: U8, starts: I64, ends: I64, keys: I64
) -> None:
    """Keys (n,) of the strings data[starts[s] : ends[s]]; a worker owns strings."""
    n = len(starts)
    for s in range(n * worker // workers, n * (worker + 1) // workers):
        i, end = starts[s], ends[s]
        size = u32(end - i)
        a, b = _WORD_A, _WORD_B
        while i + 4 <= end:
            block = murmur_scramble(_block(data, i))
            a, b = murmur_absorb(a, block), murmur_absorb(b, block)
            i += 4
        if i < end:
            tail = u32(0)
            for j in range(end - i):
                tail = u32(tail | u32(u32(data[i + j]) << u32(8 * j)))
            tail = murmur_scramble(tail)
            a, b = u32(a ^ tail), u32(b ^ tail)
        keys[s] = pack(fmix32(u32(a ^ size)), fmix32(u32(b ^ size)))
