"""Layers in `DistributedDataParallel` (DDP), whose tables have sparse gradients.

DDP decides when it is built how it will exchange each gradient. It expects sparse gradients only of
an `nn.Embedding` or `nn.EmbeddingBag` whose attribute `sparse` is true. So a layer gets a class
with such a base, its *twin*, once its gradients are sparse: by `sparse=True`, or because a row
optimizer takes its tables while processes are connected.
"""

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hashembed.nn.ops.sparse import sparse_rows
from hashembed.nn.owners import owner_of

TWINS: dict[type[nn.Module], type[nn.Module]] = {}  # class of a layer -> the one that DDP knows
live_layers: weakref.WeakSet[Any] = weakref.WeakSet()


class ExpectsSparseGradients(nn.Module):
    """What all twins have in common."""

    _sparse: bool
    _seen_by_ddp = False  # whether DDP has been told that gradients will be sparse

    @property
    def sparse(self) -> bool:
        """Whether the gradients of the tables are sparse, for now. DDP asks when it is built."""
        found = self._sparse or _is_owned(self)
        self._seen_by_ddp = self._seen_by_ddp or found
        return found

    def _get_name(self) -> str:
        return next(c.__name__ for c, twin in TWINS.items() if twin is type(self))


def expect_sparse_gradients(layer: nn.Module) -> None:
    """Let DDP expect sparse gradients of a layer. Derived classes have no twin."""
    layer.__class__ = TWINS.get(type(layer), type(layer))


def announce(table: Tensor) -> None:
    """A row optimizer takes a table: from now on its gradients are sparse."""
    if _several_processes():
        for layer in _layers_of(table):
            expect_sparse_gradients(layer)


def add_missing_gradients(tables: list[Tensor]) -> None:
    """Give tables that DDP will exchange an empty sparse gradient where they have none.

    Otherwise DDP fails on a rank that does not use a layer (`find_unused_parameters=True`).
    """
    if not _several_processes():
        return
    for table in tables:
        expected = any(isinstance(layer, ExpectsSparseGradients) for layer in _layers_of(table))
        if table.grad is None and table.requires_grad and expected:
            rows = torch.empty(0, dtype=torch.int64, device=table.device)
            table.grad = sparse_rows(rows, table.new_empty(0, table.shape[1]), table.shape)


def check_expected(layer: nn.Module) -> None:
    """Before a layer is called inside DDP: refuse what DDP could not exchange."""
    if torch.compiler.is_compiling() or DistributedDataParallel._active_ddp_module is None:
        return
    if not torch.is_grad_enabled() or not _is_owned(layer):
        return
    if not layer._sparse and not getattr(layer, "_seen_by_ddp", False):
        raise RuntimeError(
            "DistributedDataParallel was built before it could know that a row optimizer makes "
            "the gradients of a hash layer sparse: create the optimizer first (after "
            "init_process_group), or the layer with sparse=True"
        )
    for table in layer._parameters.values():
        owner = owner_of(table)
        if owner is None or table is None or not table.is_cuda:
            continue
        if owner.updates_in_backward(table):
            raise RuntimeError(
                "in_backward=True updates tables before DistributedDataParallel could exchange "
                "their gradients: use in_backward=False"
            )


def _several_processes() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _layers_of(table: Tensor) -> list[nn.Module]:
    return [
        layer for layer in list(live_layers) if any(p is table for p in layer._parameters.values())
    ]


def _is_owned(layer: nn.Module) -> bool:
    return any(owner_of(table) is not None for table in layer._parameters.values())
