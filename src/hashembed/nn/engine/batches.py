"""Turns bags, in memory or on disk, into tensors on a device."""

import weakref

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hashembed.core.arrays import I64
from hashembed.hashing.gather import gather
from hashembed.hashing.spec import HashSpec
from hashembed.nn.inputs import check_ranks

Array = npt.NDArray[np.generic]
Keys = I64 | Tensor


def to_device(array: Array, device: torch.device) -> Tensor:
    """A NumPy array as a tensor."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


SHARE = 0.5  # of a GPU's free memory that the keys of a training set may take

_placed: dict[tuple[int, str], Tensor] = {}


def placed(array: Array, device: torch.device) -> Tensor:
    """An array on a GPU, copied at its first use and kept for as long as the array lives.

    So the array must not change. It is used for keys, offsets and labels of data sets.
    """
    place = id(array), str(device)
    if place not in _placed:
        _placed[place] = to_device(array, device)
        weakref.finalize(array, _placed.pop, place, None)
    return _placed[place]


def free_memory(device: torch.device) -> int:
    """Bytes that are free, or cached by PyTorch and unused."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def place_keys(keys: I64, spec: HashSpec, device: torch.device) -> Keys:
    """All keys, copied to a GPU if they fit; otherwise as they are, perhaps in a file."""
    if device.type != "cuda":
        return keys
    new = (id(keys), str(device)) not in _placed
    if new and keys.nbytes > SHARE * free_memory(device):
        return keys
    found = placed(keys, device)
    if new and spec.indexing == "identity":
        check_ranks(found, spec.num_embeddings)
    return found


def make_batch(keys: I64, starts: I64, lengths: I64, device: torch.device) -> tuple[Tensor, Tensor]:
    """Documents keys[start : start + length] -> their keys (N,), offsets (n + 1,)."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    chosen = np.empty(int(offsets[-1]), np.int64)
    gather(keys, np.ascontiguousarray(starts), offsets, chosen)
    return to_device(chosen, device), to_device(offsets, device)
