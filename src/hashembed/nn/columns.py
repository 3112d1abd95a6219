"""Several columns of ids in one table: which column an id stands in, and what follows from it.

With `independent` and `shared` indexing the number of its column salts the key of an id
(`hashing/spec.py`). With `identity` each column has a range of rows of its own, one after the
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from hashembed.core.checks import whole_number
from hashembed.hashing.spec import MAX_COLUMNS, MAX_SIZE, Indexing
from hashembed.nn.inputs import check_ids, check_values


@dataclass(frozen=True)
class Columns:
    """The columns of a layer. `sizes`: with `identity`, how many ids each has; otherwise empty."""

    count: int
    sizes: tuple[int, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """What the buffer `hash_spec` says of them."""
        return [self.count, *self.sizes]

    @property
    def argument(self) -> int | list[int]:
        """The argument `columns` of a layer."""
        return list(self.sizes) or self.count

    def check_shape(self, ids: Tensor) -> None:
        """Refuse ids whose last dimension is not the columns."""
        if ids.dim() == 0 or ids.shape[-1] != self.count:
            raise ValueError(
                f"ids must have {self.count} columns, (..., {self.count}), found the shape "
                f"{tuple(ids.shape)}; to look up some columns only, say which: "
                "layer(ids, columns=...)"
            )

    def of_ids(self, ids: Tensor, columns: Tensor | int | None) -> Tensor:
        """The column of each id, in a shape that broadcasts to that of the ids; checked."""
        if columns is None:
            self.check_shape(ids)
            return torch.arange(self.count, device=ids.device)
        if isinstance(columns, int):
            whole_number("columns", columns, 0, self.count - 1)
            return torch.full((), columns, dtype=torch.int64, device=ids.device)
        columns = check_ids("columns", columns).to(ids.device)
        try:
            torch.broadcast_to(columns, ids.shape)
        except RuntimeError:
            raise ValueError(
                f"columns must be one number for each id, in the shape {tuple(ids.shape)} or one "
                f"that broadcasts to it, found {tuple(columns.shape)}"
            ) from None

        def message() -> str:
            return f"columns are numbered from 0 to {self.count - 1}{_found(columns)}"

        if columns.numel():
            check_values(((columns >= 0) & (columns < self.count)).all(), message)
        return columns

    def ranks(self, ids: Tensor, columns: Tensor | int | None) -> Tensor:
        """`identity`: ids of each column, from 0 on -> rows of the table."""
        column = self.of_ids(ids, columns)
        if ids.is_cuda and not torch.compiler.is_compiling():
            sizes, begins = _limits_on_a_gpu(self.sizes, ids.device)
        else:
            sizes, begins = _limits(self.sizes, ids.device)

        def message() -> str:
            return (
                'indexing="identity" takes ids from 0 to the size of their column minus 1, with '
                f"sizes {list(self.sizes)}{_found(ids)}"
            )

        if ids.numel():
            check_values(((ids >= 0) & (ids < sizes.take(column))).all(), message)
        return ids + begins.take(column)


def _limits(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sizes of columns, and the first row of each."""
    begins = [0, *accumulate(sizes)][:-1]
    return torch.tensor(sizes, device=device), torch.tensor(begins, device=device)


# Copied once: a copy would make every call wait, and is not allowed inside a CUDA graph.
_limits_on_a_gpu = lru_cache(maxsize=64)(_limits)


def _found(values: Tensor) -> str:
    return "" if values.is_cuda else f", found {int(values.min())} to {int(values.max())}"


def make_columns(
    columns: int | Sequence[int] | None, indexing: Indexing, num_embeddings: int
) -> Columns | None:
    """The argument `columns` of a layer, checked."""
    if columns is None:
        return None
    if indexing != "identity":
        if isinstance(columns, Sequence):
            raise TypeError(
                f'columns must be a number with indexing="{indexing}", found {columns!r:.60}: only '
                '"identity" needs to know how many ids each column has'
            )
        return Columns(whole_number("columns", columns, 1, MAX_COLUMNS))
    if not isinstance(columns, Sequence) or len(columns) == 0:
        raise TypeError(
            'columns must be a list of sizes with indexing="identity", the number of ids of each '
            f'column, found {columns!r:.60}; use indexing="independent" for arbitrary ids'
        )
    whole_number("the number of columns", len(columns), 1, MAX_COLUMNS)
    sizes = tuple(whole_number("the size of a column", size, 1, MAX_SIZE) for size in columns)
    if sum(sizes) != num_embeddings:
        raise ValueError(
            f"num_embeddings must be the sum of the sizes of all columns, {sum(sizes)}, found "
            f"{num_embeddings}"
        )
    return Columns(len(sizes), sizes)


def described(numbers: Sequence[int]) -> str:
    """The columns in a buffer `hash_spec`, for messages."""
    if not numbers:
        return "None"
    return str(list(numbers[1:])) if len(numbers) > 1 else str(numbers[0])
