"""Initial values: the same on every device, sharded or not."""

from typing import Any

import torch
from torch import Tensor

_DRAW = 2**24  # normals drawn at a time


@torch.no_grad()
def fill_normal(tensor: Tensor, std: float, generator: torch.Generator, mean: float = 0.0) -> None:
    """Normals drawn in float32 where the generator lives, then moved: the same on every device."""
    if tensor.is_meta:
        return
    if hasattr(tensor, "device_mesh"):
        _fill_sharded(tensor, std, generator, mean)
        return
    for part in torch.split(tensor.view(-1), _DRAW):
        draw = torch.empty(part.shape, dtype=torch.float32, device=generator.device)
        part.copy_(draw.normal_(mean, std, generator=generator))


def _fill_sharded(tensor: Any, std: float, generator: torch.Generator, mean: float) -> None:
    """Each rank draws all values, as one process would, and keeps its own."""
    from torch.distributed.tensor import distribute_tensor

    whole = torch.empty(tensor.shape, dtype=torch.float32, device=generator.device)
    fill_normal(whole, std, generator, mean)
    whole = whole.to(tensor.device_mesh.device_type, tensor.dtype)
    tensor.copy_(
        distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
    )
