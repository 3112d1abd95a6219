"""From bags in memory or on disk to batches of tensors on a device."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hashembed.engine import I64
from hashembed.hashing import HashSpec
from hashembed.nn.inputs import check_ranks
from hashembed.text_kernels import gather

Keys = I64 | Tensor


def to_device(array: Any, device: torch.device) -> Tensor:
    """A NumPy array as a tensor."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def place_keys(keys: I64, spec: HashSpec, device: torch.device) -> Keys:
    """All keys, on the device; the CPU takes them from where they are, which may be a file."""
    if device.type == "cpu":
        return keys
    placed = to_device(keys, device)
    if spec.indexing == "identity":
        check_ranks(placed, spec.num_embeddings)
    return placed


def make_batch(keys: Keys, starts: I64, lengths: I64) -> tuple[Tensor, Tensor]:
    """Documents keys[start : start + length] -> their keys (N,), offsets (n + 1,)."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not isinstance(keys, Tensor):
        chosen = np.empty(total, np.int64)
        gather(keys, np.ascontiguousarray(starts), offsets, chosen)
        return torch.from_numpy(chosen), torch.from_numpy(offsets)
    shifts, counts = (to_device(a, keys.device) for a in (starts - offsets[:-1], lengths))
    places = torch.repeat_interleave(shifts, counts, output_size=total)
    places += torch.arange(total, device=keys.device)
    return keys[places], to_device(offsets, keys.device)
