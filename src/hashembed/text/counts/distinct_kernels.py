"""Kernels that estimate the number of distinct keys: see `text/counts/distinct.py`."""

import numpy as np

from hashembed.core.arrays import I64, U8, U64_2D
from hashembed.core.intrinsics import bit_count, leading_zeros
from hashembed.core.njit import njit
from hashembed.core.threads import wait_for_all

BITS = 1 << 24  # of a worker's map


@njit(native=True, nogil=True)
def mark(worker: int, workers: int, barrier: I64, keys: I64, bitmaps: U64_2D) -> int:
    """Set one of 2^24 bits for each key, each worker in its own map -> how many are set in any."""
    own, words = bitmaps[worker], bitmaps.shape[1]
    for x in range(len(keys) * worker // workers, len(keys) * (worker + 1) // workers):
        bit = np.uint64(keys[x]) >> np.uint64(40)
        own[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    wait_for_all(barrier, workers)
    ones = 0
    for x in range(words * worker // workers, words * (worker + 1) // workers):
        word = np.uint64(0)
        for other in range(workers):
            word |= bitmaps[other, x]
        ones += int(bit_count(word))
    return ones


@njit(error_model="numpy")
def add_to_registers(key, registers, precision):
    """Count one key: the low bits choose a register, the zeros above the rest are its rank."""
    bits = np.uint64(key)
    rank = leading_zeros(bits >> np.uint64(precision)) - np.uint64(precision) + np.uint64(1)
    register = bits & np.uint64(len(registers) - 1)
    registers[register] = max(registers[register], np.uint8(rank))


@njit(native=True, nogil=True, error_model="numpy")
def add_all(keys: I64, registers: U8, precision: int) -> None:
    """Count all keys."""
    for x in range(len(keys)):
        add_to_registers(keys[x], registers, precision)
