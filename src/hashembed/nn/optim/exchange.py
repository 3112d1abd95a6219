"""Sparse gradients between processes: a communication hook of `DistributedDataParallel` (DDP).

DDP itself exchanges sparse gradients with the backend gloo only. This hook does it with any
backend: `ddp.register_comm_hook(None, exchange_rows)`.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from hashembed.nn.ops.sparse import sparse_rows
from hashembed.nn.optim.tables import coalesced


def exchange_rows(
    state: dist.ProcessGroup | None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # DDP checks this annotation
) -> Future[Tensor]:
    """Average gradients over all processes: sparse ones by rows, dense ones as DDP does.

    A row's gradients are divided by the number of processes, then added in the order of the ranks.
    So all processes get the same bits.

    Args:
        state: process group. None (default) is the default group.
        bucket: gradients, from DDP.
    """
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    group = state or dist.distributed_c10d._get_default_group()
    gradient = bucket.buffer()
    if not gradient.is_sparse:
        return allreduce_hook(group, bucket)
    done: Future[Tensor] = Future()
    done.set_result(_average(gradient, group))
    return done


def _average(gradient: Tensor, group: dist.ProcessGroup) -> Tensor:
    own = coalesced(gradient)
    processes = group.size()
    rows, values = own._indices()[0], own._values() / processes
    counts = _gather(torch.tensor([len(rows)], device=rows.device), processes, group)
    lengths = [int(count) for count in counts]
    most = max(lengths)
    all_rows = _gather(_padded(rows, most), processes, group)
    all_values = _gather(_padded(values, most), processes, group)
    joined = sparse_rows(
        torch.cat([r[:n] for r, n in zip(all_rows, lengths, strict=True)]),
        torch.cat([v[:n] for v, n in zip(all_values, lengths, strict=True)]),
        gradient.shape,
        coalesced=False,
    )
    return joined.coalesce()


def _padded(tensor: Tensor, length: int) -> Tensor:
    """All processes must send tensors of one size."""
    padded = tensor.new_zeros((length, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


def _gather(tensor: Tensor, processes: int, group: dist.ProcessGroup) -> list[Tensor]:
    """The tensors of all processes, in the order of their ranks."""
    found = [torch.empty_like(tensor) for _ in range(processes)]
    dist.all_gather(found, tensor, group=group)
    return found
