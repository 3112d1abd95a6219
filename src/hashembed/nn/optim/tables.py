"""Tables and their gradients, as the row optimizers and the clipping need them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION, Array, as_array

Group = dict[str, Any]
State = dict[str, Any]


def memory(p: Tensor) -> Array:
    """A parameter as an array that kernels may write to."""
    if not p.is_contiguous() or p.device.type != "cpu":
        raise ValueError("row optimizers update contiguous tables on the CPU")
    return as_array(p)


def state_dtype(p: Tensor) -> torch.dtype:
    """The precision of the state and of the arithmetic of updates."""
    return ACCUMULATION.get(p.dtype, p.dtype)


def subtract(p: Tensor, change: Tensor) -> None:
    """p -= change, rounded once."""
    p.copy_(p.to(change.dtype) - change)


def coalesced(grad: Tensor) -> Tensor:
    """Each row once, in order. Gradients of our kernels are, but autograd forgets that."""
    if grad.sparse_dim() == 1 and grad.device.type == "cpu":
        rows = grad._indices()[0].numpy()
        if (rows[1:] > rows[:-1]).all():
            return grad
    return grad.coalesce()


def rows_and_values(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows (m,) and their gradients (m, width)."""
    grad = coalesced(grad)
    return grad._indices()[0].contiguous(), grad._values()


def is_capturing(table: Tensor) -> bool:
    """Whether a CUDA graph is being captured."""
    return table.is_cuda and torch.cuda.is_current_stream_capturing()


def stamps_of(records: Tensor) -> Tensor:
    """The memory of records as integers."""
    return records.view(torch.int32 if records.dtype == torch.float32 else torch.int64)


def zero_records(shape: tuple[int, int], p: Tensor) -> Tensor:
    """Records of a table. On the CPU from NumPy, which gets huge pages: rows are found faster."""
    dtype = state_dtype(p)
    if p.device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=p.device)
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype == torch.float64 else np.float32))
