"""Calls of the kernels of `nn/cpu/bag_kernels.py` on tensors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hashembed.core.threads import run_workers
from hashembed.nn.cpu import bag_kernels

Array = npt.NDArray[Any]

# The precision of sums, by that of the tables.
ACCUMULATION = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
_ARRAY_TYPES = {
    torch.bool: np.dtype(np.bool_),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.int16),
    torch.bfloat16: np.dtype(np.uint16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}

_NUMBERS_PER_WORKER = 2**15  # less work than this is not worth a thread
MAX_TOKENS = 2**26  # in one call: with 64 hashes each, this many fit into half an item of a sort


def run_kernel(kernel: Callable[..., Any], numbers: int, *arguments: Any) -> list[Any]:
    """Run the kernel on torch's threads; numbers: how many it processes, to choose how many."""
    workers = max(1, min(torch.get_num_threads(), numbers // _NUMBERS_PER_WORKER))
    return run_workers(kernel, workers, *arguments)


class _Memory:
    """A tensor's memory in NumPy's array protocol. The array made of it keeps the tensor alive."""

    def __init__(self, tensor: Tensor, dtype: np.dtype[Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "typestr": dtype.str,
        }


def as_array(tensor: Tensor) -> Array:
    """The tensor's memory; half precision as integers, as `nn/cpu/precision.py` expects it.

    `Tensor.numpy()` would not do: torch refuses to resize a storage after it, and FSDP frees
    gathered parameters by resizing them to nothing.
    """
    if not tensor.is_contiguous():
        tensor = tensor.detach().contiguous()
    dtype = _ARRAY_TYPES[tensor.dtype]
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), dtype)
    return np.asarray(_Memory(tensor, dtype))


def _optional(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> Array:
    return np.empty(shape, _ARRAY_TYPES[dtype]) if tensor is None else as_array(tensor)


class Bags(NamedTuple):
    """One call of a layer: tables, the rows that each token reads, and options."""

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
        """Products that a pass computes."""
        return self.buckets.numel() * self.weight.shape[1]

    def arrays(self) -> bag_kernels.BagArrays:
        """The same for the kernels."""
        return bag_kernels.BagArrays(
            E=as_array(self.weight),
            P=_optional(self.importance, self.weight.dtype, 0, self.buckets.shape[1]),
            rows=as_array(self.rows),
            buckets=as_array(self.buckets),
            offsets=_optional(self.offsets, torch.int64, 0),
            keep=_optional(self.keep, torch.bool, 0),
            weights=_optional(self.weights, ACCUMULATION[self.weight.dtype], 0),
            mean=self.mean,
            concat=self.concat,
            append=self.append,
        )

    def check(self) -> None:
        """Refuse offsets that would make kernels read or write beyond their arrays."""
        n = len(self.rows)
        if n > MAX_TOKENS:
            raise ValueError(f"a call takes at most {MAX_TOKENS:,} ids, found {n:,}")
        if self.offsets is not None:
            o = self.offsets.numpy()
            if len(o) == 0 or o[0] != 0 or o[-1] > n or (o[1:] < o[:-1]).any():
                raise ValueError(f"offsets must begin with 0, never fall, and end at most at {n}")


def id_keys(ids: Tensor, columns: Tensor | None = None, count: int = 1) -> Tensor:
    """Integer ids (...) -> keys (...). Their columns (...), or if None, `count` columns in turn."""
    ids = ids.contiguous()
    keys = torch.empty_like(ids)
    run_kernel(
        bag_kernels.id_keys,
        ids.numel() * 8,
        as_array(ids).reshape(-1),
        _optional(columns, torch.int64, 0).reshape(-1),
        count,
        keys.numpy().reshape(-1),
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
    run_kernel(bag_kernels.forward, bags.numbers, bags.arrays(), total.numpy(), as_array(out))
    return out


class Gradient(NamedTuple):
    """The gradient of a table: all of it, or only the touched rows, in order."""

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
    dtype = ACCUMULATION[bags.weight.dtype]
    found = bag_kernels.TokenGradients(
        bags=torch.empty(n, dtype=torch.int64).numpy(),
        places=torch.empty(n, dtype=torch.int64).numpy(),
        factors=torch.empty(n, k, dtype=dtype).numpy(),
        P_terms=torch.empty(n, k, dtype=dtype).numpy(),
        weights_grad=(weights_grad := torch.empty(n, dtype=dtype)).numpy(),
    )
    arrays, upstream = bags.arrays(), as_array(grad)
    want_dots = wanted.importance or wanted.weights
    kernel = bag_kernels.token_gradients
    run_kernel(kernel, bags.numbers, arrays, upstream, want_dots, found)
    E_grad = P_grad = None
    if wanted.weight:
        step = bags.weight.shape[1] if bags.concat else 0
        terms = bag_kernels.Terms(arrays.buckets, upstream, found.bags, found.factors, step)
        E_grad = _sum_rows(bags.weight, terms, compact[0])
    if wanted.importance and bags.importance is not None:
        rows, ones = arrays.rows.reshape(-1, 1), found.factors[:0]
        terms = bag_kernels.Terms(rows, found.P_terms, found.places, ones, 0)
        P_grad = _sum_rows(bags.importance, terms, compact[1])
    return E_grad, P_grad, weights_grad if wanted.weights else None


def _sum_rows(table: Tensor, terms: bag_kernels.Terms, compact: bool) -> Gradient:
    """The gradient of a table as the sum of its terms."""
    workers, (n, c), (size, width) = torch.get_num_threads(), terms.targets.shape, table.shape
    items = torch.empty(2, workers, n * c, dtype=torch.int64).numpy().view(np.uint64)
    scratch = bag_kernels.SumScratch(
        items=items[0],
        spare=items[1],
        total=torch.empty(workers, width, dtype=ACCUMULATION[table.dtype]).numpy(),
        found=np.zeros(workers, np.int64),
    )
    most = min(n * c, size) if compact else 0
    rows = torch.empty(most, dtype=torch.int64)
    values = table.new_empty((most, width)) if compact else torch.zeros_like(table)
    out = bag_kernels.TableGradient(size, not compact, rows.numpy(), as_array(values))
    run_kernel(bag_kernels.sum_rows, n * c * width, terms, scratch, out)
    count = int(scratch.found.sum())
    return Gradient(rows[:count], values[:count]) if compact else Gradient(None, values)
