"""A table in 8 or 4 bits, which is decoded where it will lie in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F32, U8, whole_rows
from hashembed.core.code_kernels import fill_decoded
from hashembed.engine.packed import PackedTable


class CodedTable:
    """Codes (rows, bytes) of numbers (rows, columns).

    A model that copied an array of the numbers would touch four times as much memory as the codes
    have, twice.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, codes: U8, values: F32, columns: int) -> None:
        """values: the number of each code, 256 or 16 of them."""
        self.codes, self.values, self.columns = codes, values, columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the table."""
        return len(self.codes), self.columns

    def fill(self, table: F32) -> None:
        """Write the numbers to a table of this shape, which may be a part of wider rows."""
        if table.shape != self.shape:
            raise ValueError(f"cannot decode a table of {self.shape} into one of {table.shape}")
        if table.size:
            fill_decoded(self.codes, self.values, self.columns, whole_rows(table))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the numbers of a coded table are always a copy")
        out = np.empty(self.shape, np.float32)
        self.fill(out)
        return out if dtype is None else out.astype(dtype, copy=False)


Stored = Mapping[str, npt.NDArray[Any] | CodedTable | PackedTable]  # the tensors of a file
