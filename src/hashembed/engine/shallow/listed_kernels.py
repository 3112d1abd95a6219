"""The kernel that finds the rows of n-grams in a table of which only some rows are kept."""

import numpy as np

from hashembed.core.arrays import I64, U32
from hashembed.core.njit import njit
from hashembed.hashing.locate import INDEPENDENT, bucket_of

BLOCK_BITS = 6  # rows are looked up in blocks of 64


@njit(inline="always")
def add_places(keys, begin, end, seed, B, listed, blocks, out, count):
    """Write the places of the buckets of keys[begin:end] in `listed` to out[count:] -> their end.

    `listed` rises; those of the buckets 64 x to 64 x + 63 are at the places blocks[x] to
    blocks[x + 1] - 1. Keys whose bucket is not listed are left out.
    """
    for t in range(begin, end):
        bucket = np.uint32(bucket_of(0, keys[t], 0, seed, B, INDEPENDENT))
        block = bucket >> np.uint32(BLOCK_BITS)
        for place in range(blocks[block], blocks[block + np.uint32(1)]):
            if listed[place] == bucket:
                out[count] = place
                count += 1
                break
    return count


@njit(native=True, nogil=True, error_model="numpy")
def keep_listed(
    keys: I64, offsets: I64, seed: np.uint32, B: int, listed: U32, blocks: U32,
    out_keys: I64, out_offsets: I64,
) -> int:  # fmt: skip
    """Replace the keys of each bag by the places of their buckets -> how many these are."""
    count = 0
    for q in range(len(offsets) - 1):
        out_offsets[q] = count
        begin, end = offsets[q], offsets[q + 1]
        count = add_places(keys, begin, end, seed, B, listed, blocks, out_keys, count)
    out_offsets[len(offsets) - 1] = count
    return count
