"""Short names for array types. `_2D` tells native kernels the number of axes."""

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Dimensions(NamedTuple):
    """The number of axes of an array type; an array type without it has one."""

    axes: int


U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

U8_2D = Annotated[U8, Dimensions(2)]
U16_2D = Annotated[U16, Dimensions(2)]
U32_2D = Annotated[U32, Dimensions(2)]
U64_2D = Annotated[U64, Dimensions(2)]
I32_2D = Annotated[I32, Dimensions(2)]
I64_2D = Annotated[I64, Dimensions(2)]
I64_3D = Annotated[I64, Dimensions(3)]
F32_2D = Annotated[F32, Dimensions(2)]
F32_3D = Annotated[F32, Dimensions(3)]
F64_2D = Annotated[F64, Dimensions(2)]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values, sorted. `np.unique` imports `numpy.ma`, which takes longer than this."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[first])


def is_among(values: npt.NDArray[Any], among: npt.NDArray[Any]) -> Bools:
    """Which values (n,) are among others. `np.isin` imports `numpy.ma`, too."""
    if not len(among):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(among)
    places = np.searchsorted(ordered, values)
    return np.asarray(ordered[np.minimum(places, len(ordered) - 1)] == values)


def whole_rows(table: F32) -> F32:
    """The same memory with all columns that lie between the rows (rows, width) of a table.

    The last row may end behind the memory of the table: only its first columns exist.
    """
    stride, rest = divmod(table.strides[0], table.itemsize)
    if rest or table.strides[1] != table.itemsize or stride < table.shape[1]:
        raise ValueError(f"rows must lie side by side in memory, found strides {table.strides}")
    return np.lib.stride_tricks.as_strided(table, (len(table), stride))
