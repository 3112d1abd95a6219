"""Clipping of sparse gradients: our own function, and support for those of PyTorch.

`torch.nn.utils.clip_grad_norm_` computes norms with an operator that PyTorch has for dense tensors
only. `clip_grad_value_` needs other such operators. Hugging Face's `Trainer`, Lightning and
Accelerate call these functions. This module registers the operators for sparse tensors.
"""

import math
import warnings
from collections.abc import Iterable
from types import GeneratorType

import torch
from torch import Tensor

from hashembed.nn.optim.tables import coalesced
from hashembed.nn.owners import owner_of

_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Like `torch.nn.utils.clip_grad_norm_`, for dense and sparse gradients. Returns their norm."""
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not found and isinstance(parameters, GeneratorType):
        warnings.warn(
            "parameters is an empty generator: nothing is clipped. A generator can be used once",
            stacklevel=2,
        )
    tensors = []
    for p in found:
        owner = owner_of(p)
        if p.grad is None and owner is not None and owner.has_updated_in_backward(p):
            raise ValueError(
                "in_backward=True has already updated a table by its gradient, so it cannot be "
                "clipped any more: use in_backward=False, or leave the tables out"
            )
        if p.grad is not None and p.grad.is_sparse:
            p.grad = coalesced(p.grad)
            _check_norm_type(norm_type)
            if p.grad._nnz():  # the largest of no numbers has no value
                tensors.append(p.grad._values())
        elif p.grad is not None:
            tensors.append(p.grad)
    total = torch.nn.utils.get_total_norm(tensors, norm_type, error_if_nonfinite, foreach)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for tensor in tensors:
        tensor.mul_(scale.to(tensor.device))
    return total


def _check_norm_type(norm_type: float) -> None:
    if not 0 <= norm_type <= math.inf:
        raise ValueError(f"norm_type must be from 0 on for sparse gradients, found {norm_type}")


def _norm_of_sparse(
    x: Tensor,
    ord: float = 2.0,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """`torch.linalg.vector_norm` of a whole sparse tensor: zeros do not count."""
    if dim is not None or keepdim:
        raise NotImplementedError("the norm of a sparse tensor is taken of all of it, without dim")
    _check_norm_type(ord)
    values = x.coalesce().values()
    if not values.numel():  # the largest of no numbers has no value
        return values.new_zeros((), dtype=dtype)
    norm: Tensor = torch.linalg.vector_norm(values, ord, dtype=dtype)
    return norm


def _clamp_sparse_(x: Tensor, least: float | None = None, most: float | None = None) -> Tensor:
    """`x.clamp_`, where zeros stay zeros."""
    if (least is not None and least > 0) or (most is not None and most < 0):
        raise NotImplementedError("clamping must leave the zeros of a sparse tensor alone")
    found = x.coalesce()
    found.values().clamp_(least, most)
    return x if found is x else x.copy_(found)


# Register each of them, unless this PyTorch has it.
for _key in ("SparseCPU", "SparseCUDA"):
    for _name, _function in (
        ("linalg_vector_norm", _norm_of_sparse),
        ("clamp_", _clamp_sparse_),
        ("clamp_min_", _clamp_sparse_),
        ("clamp_max_", lambda x, most: _clamp_sparse_(x, None, most)),
    ):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_name}", _key):
            _library.impl(_name, _function, _key)  # type: ignore[no-untyped-call]
