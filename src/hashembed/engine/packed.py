"""A packed table: rows that are zero are left out, the others have codes of one byte.

`docs/how-it-works/files.md` specifies the format. Reading trusts nothing: every size is known
before a stream is inflated.
"""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, I64, U8
from hashembed.engine.tensor_file import ModelFileError

# Of all packed tables of a file: few bytes can say that there are many zeros, which take memory.
MAX_NUMBERS = 2**26  # without the rows that are zero, if the model leaves them out of memory
MAX_ROWS = 2**24  # with those that are zero
MAX_VALUES = 254  # codes 0 and 1 are digits of runs of zeros
LONGEST = 255  # what one byte adds to a gap
_DIGITS = 40  # of the length of a run
_AT_A_TIME = 1 << 20  # codes that are decoded at a time


class PackedTable:
    """The rows of a table (rows, columns) that are not zero, in compressed streams."""

    dtype = np.dtype(np.float32)

    def __init__(
        self, rows: U8, codes: U8, values: F32, count: int, shape: tuple[int, int]
    ) -> None:
        """rows, codes: the streams; count: of the rows that are not zero."""
        self._rows, self._codes, self._values = rows, codes, values
        self.count, self.shape = count, shape

    def kept(self) -> tuple[I64, F32]:
        """The numbers of the rows that are not zero, and these rows (count, columns)."""
        return self._row_numbers(), self._numbers()

    def fill(self, table: F32) -> None:
        """Write the whole table to one of this shape."""
        if table.shape != self.shape:
            raise ValueError(f"cannot unpack a table of {self.shape} into one of {table.shape}")
        rows, numbers = self.kept()
        table[:] = 0
        table[rows] = numbers

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the numbers of a packed table are always a copy")
        out = np.empty(self.shape, np.float32)
        self.fill(out)
        return out if dtype is None else out.astype(dtype, copy=False)

    def _row_numbers(self) -> I64:
        gaps = _inflated(self._rows, self.count + self.shape[0] // LONGEST, "rows")
        ends = gaps < LONGEST
        numbers = (np.cumsum(gaps, dtype=np.int64) + np.cumsum(ends))[ends] - 1
        whole = bool(ends[-1]) if len(ends) else True
        if len(numbers) != self.count or not whole:
            raise ModelFileError(f"has a table with {len(numbers):,} rows, expected {self.count:,}")
        if len(numbers) and numbers[-1] >= self.shape[0]:
            raise ModelFileError(f"has a row {numbers[-1]:,} in a table of {self.shape[0]:,}")
        return np.asarray(numbers)

    def _numbers(self) -> F32:
        columns, total = self.shape[1], self.count * self.shape[1]
        codes = _inflated(self._codes, total, "codes")
        if (largest := int(codes.max(initial=0))) - 1 > len(self._values):
            raise ModelFileError(f"has the code {largest} without a value")
        flat = np.zeros(total, np.float32)
        place, digits = 0, 0  # numbers so far; digits of the run that the last part ended in
        for start in range(0, len(codes), _AT_A_TIME):
            part = codes[start : start + _AT_A_TIME]
            is_value, places = part >= 2, np.arange(len(part))
            # How many digits of its run are before a code, itself not counted.
            last = np.maximum.accumulate(np.where(is_value, places, -1 - digits))
            digit = places - last - 1
            if digit.max(initial=0) > _DIGITS:
                raise ModelFileError("has a run of zeros that is too long")
            steps = np.where(is_value, 1, (part.astype(np.int64) + 1) << np.maximum(digit, 0))
            ends = place + np.cumsum(steps)
            place, digits = int(ends[-1]), len(part) - 1 - int(last[-1])
            if place > total:
                break
            flat[ends[is_value] - 1] = self._values[part[is_value] - 2]
        if place != total:
            raise ModelFileError(f"has codes that do not describe {total:,} numbers")
        return np.ascontiguousarray(flat.reshape(columns, self.count).T)


def packed_table(
    rows: npt.NDArray[Any],
    codes: npt.NDArray[Any],
    values: npt.NDArray[Any],
    *,
    count: Any,
    shape: tuple[int, int],
) -> PackedTable:
    """The table of three tensors of a file, checked as far as it is possible without inflating."""
    for name, array, dtype in (
        ("rows", rows, "u1"),
        ("codes", codes, "u1"),
        ("values", values, "f4"),
    ):
        if array.ndim != 1 or array.dtype != np.dtype(dtype):
            raise ModelFileError(f"has {name} of a packed table of a wrong shape or type")
    if len(values) > MAX_VALUES:
        raise ModelFileError(f"has a packed table of {len(values)} values, at most {MAX_VALUES}")
    if type(count) is not int or not 0 <= count <= shape[0]:
        raise ModelFileError(f"has {count!r:.20} rows of {shape[0]:,} in a packed table")
    if count * shape[1] > MAX_NUMBERS:
        raise ModelFileError(f"has a packed table of {count:,} x {shape[1]:,} numbers: too large")
    return PackedTable(rows, codes, values, count, shape)


def pack(rows: I64, codes: npt.NDArray[np.int64], values: F32) -> dict[str, npt.NDArray[Any]]:
    """The three tensors of a table.

    rows: (n,), rising; codes: (n, columns), 0 for zero, otherwise c for values[c - 1].
    """
    gaps = np.diff(rows, prepend=-1) - 1
    longest = gaps // LONGEST
    ends = np.cumsum(longest + 1) - 1
    gap_bytes = np.full(int(ends[-1]) + 1 if len(ends) else 0, LONGEST, np.uint8)
    gap_bytes[ends] = gaps % LONGEST
    return {
        "rows": _deflated(gap_bytes),
        "codes": _deflated(_code_bytes(np.ascontiguousarray(codes.T).reshape(-1))),
        "values": np.asarray(values, np.float32),
    }


def _code_bytes(flat: npt.NDArray[np.int64]) -> U8:
    """Codes, 0 for zero -> bytes: runs of zeros in base-2 digits 1 and 2, other codes plus 1."""
    places = np.flatnonzero(flat)
    runs = np.diff(np.concatenate([[-1], places, [len(flat)]])) - 1
    # A run of r zeros has as many digits as r + 1 has bits, less one; they are those of r + 1
    # without its highest bit: digit 1 for a bit 0, and digit 2 for a bit 1.
    lengths = np.frexp((runs + 1).astype(np.float64))[1] - 1
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    out = np.empty(int(starts[-1]) - 1, np.uint8)  # nothing follows the last run
    for digit in range(int(lengths.max(initial=0))):
        own = np.flatnonzero(lengths > digit)
        out[starts[own] + digit] = (runs[own] + 1) >> digit & 1
    out[starts[1:-1] - 1] = flat[places] + 1
    return out


def _deflated(content: U8) -> U8:
    """In zlib format. Sparse and dense codes suit different strategies: the smaller one counts."""
    found = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        stream = zlib.compressobj(9, zlib.DEFLATED, 15, 9, strategy)
        found.append(stream.compress(content.tobytes()) + stream.flush())
    return np.frombuffer(min(found, key=len), np.uint8)


def _inflated(stream: U8, most: int, name: str) -> U8:
    """The content of a stream of at most so many bytes."""
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(stream.tobytes(), most + 1)
    except zlib.error:
        raise ModelFileError(f"has {name} of a packed table that do not inflate") from None
    if len(content) > most or not inflate.eof or inflate.unused_data:
        raise ModelFileError(f"has {name} of a packed table of a wrong length")
    return np.frombuffer(content, np.uint8)
