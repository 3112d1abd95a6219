"""The Numba kernels of `nn/cpu/bag_kernels.py`, called on tensors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hashembed.core.njit import may_compile
from hashembed.core.threads import run_workers
from hashembed.nn.cpu import bag_kernels

Array = npt.NDArray[Any]

# What sums are taken in, by the tables' precision.
ACCUMULATION = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
_AS_BITS = {torch.float16: torch.int16, torch.bfloat16: torch.uint16}
_ARRAY_TYPES = {
    getattr(torch, name): np.dtype(name)
    for name in ("bool", "int16", "int32", "int64", "uint16", "float32", "float64")
}

_NUMBERS_PER_WORKER = 2**15  # less work than this is not worth a thread
MAX_TOKENS = 2**26  # in one call; so many fit, with 64 hashes each, into half an item of a sort


def run_kernel(kernel: Callable[..., Any], numbers: int, *arguments: Any) -> list[Any]:
    """The kernel on as many of torch's threads as so many numbers are worth."""
    workers = max(1, min(torch.get_num_threads(), numbers // _NUMBERS_PER_WORKER))
    types = tuple(a.dtype for a in arguments if isinstance(a, np.ndarray))
    with may_compile((kernel, types)):
        return run_workers(kernel, workers, *arguments)


class _Memory:
    """A tensor's memory as NumPy's protocol describes it, kept alive by the array made of it."""

    def __init__(self, tensor: Tensor, dtype: np.dtype[Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "typestr": dtype.str,
        }


def as_array(tensor: Tensor) -> Array:
    """The tensor's memory; half precision as integers, the way `nn/cpu/precision.py` wants it.

    Not by `Tensor.numpy()`, after which torch refuses to resize the storage: FSDP frees the
    parameters that it has gathered by resizing them to nothing.
    """
    tensor = tensor.detach().contiguous()
    dtype = _ARRAY_TYPES[_AS_BITS.get(tensor.dtype, tensor.dtype)]
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), dtype)
    return np.asarray(_Memory(tensor, dtype))


def _optional(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> Array:
    return as_array(torch.empty(shape, dtype=dtype) if tensor is None else tensor)


class Bags(NamedTuple):
    """One call: the tables, which of their rows each token reads, and what to do with them."""

    weight: Tensor  # E (B, d)
    importance: Tensor | None  # P (K, k)
    rows: Tensor  # (N,)
    buckets: Tensor  # (N, k)
    offsets: Tensor | None  # (n + 1,); without them each token is a bag
    keep: Tensor | None  # (N,)
    weights: Tensor | None  # (N,), in the precision of accumulation
    mean: bool
    concat: bool
    append: bool

    @property
    def num_bags(self) -> int:
        """Rows of the output."""
        return self.rows.shape[0] if self.offsets is None else self.offsets.shape[0] - 1

    @property
    def width(self) -> int:
        """Columns of the output."""
        k = self.buckets.shape[1]
        return self.weight.shape[1] * (k if self.concat else 1) + (k if self.append else 0)

    @property
    def numbers(self) -> int:
        """Products that a pass takes."""
        return self.buckets.numel() * self.weight.shape[1]

    def arrays(self) -> tuple[Any, ...]:
        """What the kernels begin with; an option that is absent is an empty array."""
        return (
            as_array(self.weight),
            _optional(self.importance, self.weight.dtype, 0, self.buckets.shape[1]),
            as_array(self.rows),
            as_array(self.buckets),
            _optional(self.offsets, torch.int64, 0),
            _optional(self.keep, torch.bool, 0),
            _optional(self.weights, ACCUMULATION[self.weight.dtype], 0),
            self.mean,
            self.concat,
            self.append,
        )

    def check(self) -> None:
        """Kernels do not look where they write."""
        n = len(self.rows)
        if n > MAX_TOKENS:
            raise ValueError(f"a call takes at most {MAX_TOKENS:,} ids, found {n:,}")
        if self.offsets is not None:
            o = self.offsets.numpy()
            if len(o) == 0 or o[0] != 0 or o[-1] > n or (o[1:] < o[:-1]).any():
                raise ValueError(f"offsets must begin with 0, never fall, and end at most at {n}")


def id_keys(ids: Tensor) -> Tensor:
    """Integer ids (...) -> keys (...)."""
    ids = ids.contiguous()
    keys = torch.empty_like(ids)
    run_kernel(
        bag_kernels.id_keys, ids.numel() * 8, as_array(ids).reshape(-1), keys.numpy().reshape(-1)
    )
    return keys


def locate(
    keys: Tensor, seeds: Tensor, num_embeddings: int, num_buckets: int, indexing: int
) -> tuple[Tensor, Tensor]:
    """keys (N,) -> rows (N,), buckets (N, k)."""
    rows, buckets = torch.empty_like(keys), keys.new_empty((len(keys), len(seeds) - 1))
    found = run_kernel(
        bag_kernels.locate,
        buckets.numel() * 8,  # a hash is worth a few products
        as_array(keys),
        seeds.detach().numpy().astype(np.uint32),
        num_embeddings,
        num_buckets,
        indexing,
        rows.numpy(),
        buckets.numpy(),
    )
    if not all(found):
        raise IndexError(
            f"identity indexing takes ids from 0 to {num_embeddings - 1}, "
            f"found ids from {int(keys.min())} to {int(keys.max())}"
        )
    return rows, buckets


def forward(bags: Bags) -> Tensor:
    """Sums or means of hash vectors (n, D)."""
    bags.check()
    out = bags.weight.new_empty((bags.num_bags, bags.width))
    total = torch.empty(torch.get_num_threads(), bags.width, dtype=ACCUMULATION[bags.weight.dtype])
    run_kernel(bag_kernels.forward, bags.numbers, *bags.arrays(), total.numpy(), as_array(out))
    return out


class Gradient(NamedTuple):
    """Of a table: all of it; or the rows that were touched, in order."""

    rows: Tensor | None  # (m,)
    values: Tensor  # (m, width)


class Wanted(NamedTuple):
    """Which gradients a backward pass computes."""

    weight: bool
    importance: bool
    weights: bool


# Of E, P and the per-sample weights.
Gradients = tuple[Gradient | None, Gradient | None, Tensor | None]


def backward(bags: Bags, grad: Tensor, wanted: Wanted, compact: tuple[bool, bool]) -> Gradients:
    """The wanted gradients; compact: whether those of E and of P hold only touched rows."""
    bags.check()
    n, k = bags.buckets.shape
    d, dtype = bags.weight.shape[1], ACCUMULATION[bags.weight.dtype]
    bag, place = torch.empty_like(bags.rows), torch.empty_like(bags.rows)
    factors, slope = torch.empty(n, k, dtype=dtype), torch.empty(n, k, dtype=dtype)
    of_weights = torch.empty(n, dtype=dtype)
    run_kernel(
        bag_kernels.slopes,
        bags.numbers,
        *bags.arrays(),
        as_array(grad),
        wanted.importance or wanted.weights,
        *(t.numpy() for t in (bag, place, factors, slope, of_weights)),
    )
    of_E = of_P = None
    if wanted.weight:
        step = d if bags.concat else 0
        of_E = _sum_rows(bags.weight, bags.buckets, bag, grad, step, factors, compact[0])
    if wanted.importance and bags.importance is not None:
        ones, rows = factors[:0], bags.rows.unsqueeze(1)
        of_P = _sum_rows(bags.importance, rows, place, slope, 0, ones, compact[1])
    return of_E, of_P, of_weights if wanted.weights else None


def _sum_rows(
    table: Tensor,
    index: Tensor,
    source_rows: Tensor,
    source: Tensor,
    step: int,
    factors: Tensor,
    compact: bool,
) -> Gradient:
    """See `sum_rows` in `nn/cpu/bag_kernels.py`."""
    workers, (n, c), (size, width) = torch.get_num_threads(), index.shape, table.shape
    items = torch.empty(2, workers, n * c, dtype=torch.int64).numpy().view(np.uint64)
    total = torch.empty(workers, width, dtype=ACCUMULATION[table.dtype])
    found = torch.zeros(workers, dtype=torch.int64)
    most = min(n * c, size) if compact else 0
    rows = torch.empty(most, dtype=torch.int64)
    out = table.new_empty((most, width)) if compact else torch.zeros_like(table)
    run_kernel(
        bag_kernels.sum_rows,
        n * c * width,
        as_array(index),
        size,
        as_array(source_rows),
        as_array(source),
        step,
        as_array(factors),
        not compact,
        *items,
        total.numpy(),
        found.numpy(),
        rows.numpy(),
        as_array(out),
    )
    count = int(found.sum())
    return Gradient(rows[:count], out[:count]) if compact else Gradient(None, out)
