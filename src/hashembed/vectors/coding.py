"""Tables in a few bits, for files: each row has a scale of its own.

A number is scale * level. With 3, 4 and 8 bits the levels are whole numbers from -top to top; with
2 bits they are -1.5, -0.5, 0.5 and 1.5. The scale of a row is that of several candidates with the
least squared error.
"""

import numpy as np

from hashembed.core.arrays import F32, U8

BITS = (8, 4, 3, 2)
_ROWS = 1 << 13
_CANDIDATES = {8: (1.0,), 4: (1.0, 0.9, 0.8, 0.7, 0.6), 3: (1.0, 0.85, 0.7, 0.6, 0.5)}
_CANDIDATES[2] = (0.9, 0.75, 0.65, 0.55, 0.45)


def encode_rows(table: F32, bits: int) -> tuple[U8, "np.ndarray"]:
    """Numbers (rows, d) -> packed codes (rows, bytes), scales (rows,) in half precision."""
    rows, dim = table.shape
    codes = np.empty((rows, -(-dim * bits // 8)), np.uint8)
    scales = np.empty(rows, np.float16)
    for first in range(0, rows, _ROWS):
        part = table[first : first + _ROWS]
        own_codes, own_scales = _best(part, bits)
        codes[first : first + _ROWS] = _packed(own_codes, bits)
        scales[first : first + _ROWS] = own_scales
    return codes, scales


def decode_rows(codes: U8, scales: "np.ndarray", bits: int, out: F32) -> None:
    """Write the numbers of codes into a table (rows, d)."""
    dim = out.shape[1]
    for first in range(0, len(codes), _ROWS):
        part = slice(first, first + _ROWS)
        levels = _levels(_unpacked(codes[part], bits, dim), bits)
        out[part] = levels * scales[part].astype(np.float32)[:, None]


def _top(bits: int) -> float:
    return 1.5 if bits == 2 else 2 ** (bits - 1) - 1


def _levels(codes: U8, bits: int) -> F32:
    return np.asarray(codes.astype(np.float32) - np.float32(_top(bits)), np.float32)


def _best(part: F32, bits: int) -> tuple[U8, "np.ndarray"]:
    top, largest = _top(bits), np.abs(part).max(axis=1)
    best_codes = np.zeros(part.shape, np.uint8)
    best_scales, best_errors = np.zeros(len(part), np.float16), np.full(len(part), np.inf)
    for candidate in _CANDIDATES[bits]:
        scales = (largest * np.float32(candidate / top)).astype(np.float16)
        safe = np.where(scales > 0, scales, 1).astype(np.float32)[:, None]
        codes = np.clip(np.rint(part / safe + np.float32(top)), 0, 2 * top).astype(np.uint8)
        errors = ((_levels(codes, bits) * scales.astype(np.float32)[:, None] - part) ** 2).sum(1)
        better = errors < best_errors
        best_codes[better], best_scales[better] = codes[better], scales[better]
        best_errors[better] = errors[better]
    return best_codes, best_scales


def _packed(codes: U8, bits: int) -> U8:
    """Codes (rows, d) below 2^bits -> bytes, the first code in the lowest bits."""
    if bits == 8:
        return codes
    single = np.unpackbits(codes[:, :, None], axis=2, count=bits, bitorder="little")
    return np.packbits(single.reshape(len(codes), -1), axis=1, bitorder="little")


def _unpacked(codes: U8, bits: int, dim: int) -> U8:
    if bits == 8:
        return codes
    if 8 % bits == 0:  # a code does not cross bytes; ten times as fast as single bits
        each = 8 // bits
        out = np.empty((len(codes), codes.shape[1] * each), np.uint8)
        for place in range(each):
            out[:, place::each] = codes >> (bits * place) & (2**bits - 1)
        return out[:, :dim]
    single = np.unpackbits(codes, axis=1, count=dim * bits, bitorder="little")
    return np.packbits(single.reshape(len(codes), dim, bits), axis=2, bitorder="little")[:, :, 0]
