"""Applies layers to documents in chunks that fit into memory."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import F32
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.batches import place_keys, to_device

NGRAMS_AT_ONCE, DOCUMENTS_AT_ONCE = 2**18, 2**12
ON_GPU = 16  # times as many, on a GPU

Layers = Callable[[Tensor, Tensor], Tensor]  # keys and offsets -> (documents, width)


@torch.no_grad()
def outputs(layers: Layers, bags: Bags, width: int, spec: HashSpec, device: torch.device) -> F32:
    """The output of layers for all documents (documents, width)."""
    out = np.empty((len(bags), width), np.float32)
    keys = place_keys(bags.keys, spec, device)
    offsets, begin = bags.offsets, 0
    more = ON_GPU if device.type == "cuda" else 1
    while begin < len(bags):
        most = offsets[begin] + more * NGRAMS_AT_ONCE
        fitting = int(np.searchsorted(offsets, most, "right")) - 1
        end = min(max(fitting, begin + 1), begin + more * DOCUMENTS_AT_ONCE)
        part = keys[offsets[begin] : offsets[end]]
        batch = part if isinstance(part, Tensor) else to_device(part, device)
        places = to_device(offsets[begin : end + 1] - offsets[begin], device)
        out[begin:end] = layers(batch, places).cpu().numpy()
        begin = end
    return out
