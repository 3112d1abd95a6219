"""The hash of `hashing/spec.py` in PyTorch: int64 tensors whose intermediate values fit in 48 bits.

Signed overflow is undefined in the C++ that `torch.compile` generates, and ONNX has hardly any
unsigned arithmetic. So products are split in halves, and every device and exporter gives the bits
of the specification.
"""

import torch
from torch import Tensor

from hashembed.hashing.spec import GOLDEN, ID_ROUNDS, HashSpec

MASK = 0xFFFFFFFF


def _multiply(x: Tensor, constant: int) -> Tensor:
    """x * constant modulo 2^32."""
    low, high = x & 0xFFFF, x >> 16
    return (low * constant + ((high * constant & 0xFFFF) << 16)) & MASK


def fmix32(x: Tensor) -> Tensor:
    """MurmurHash3's finalizer."""
    x = _multiply(x ^ (x >> 16), 0x85EBCA6B)
    x = _multiply(x ^ (x >> 13), 0xC2B2AE35)
    return x ^ (x >> 16)


def reduce_range(lane: Tensor, n: int | Tensor) -> Tensor:
    """Lanes -> [0, n): floor(lane * n / 2^32)."""
    low, high = lane & 0xFFFF, lane >> 16
    return (high * n + (low * n >> 16)) >> 16


def unpack(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Keys -> lanes a and b."""
    return keys & MASK, (keys >> 32) & MASK


def id_keys(ids: Tensor, columns: Tensor | None = None) -> Tensor:
    """Integer ids (...) and their columns, in a shape that broadcasts, or all 0 -> keys (...)."""
    a, b = unpack(ids)
    salt = 0 if columns is None else _multiply(columns, GOLDEN)
    a = a ^ fmix32((b + (salt + ID_ROUNDS[0])) & MASK)
    b = b ^ fmix32((a + (salt + ID_ROUNDS[1])) & MASK)
    a = a ^ fmix32((b + (salt + ID_ROUNDS[2])) & MASK)
    b = b ^ fmix32((a + (salt + ID_ROUNDS[3])) & MASK)
    # b's top bit is the sign: shift it in as a number in [-2^31, 2^31), which cannot overflow.
    return ((b ^ 0x80000000) - 0x80000000) * 0x100000000 + a


def derive_seeds(seed: Tensor, num_hashes: int) -> Tensor:
    """One int64 seed () -> 1 + k distinct 32-bit seeds (1 + k,)."""
    a, b = unpack(id_keys(seed))
    # Not `arange * GOLDEN`: TorchInductor 2.11 takes such products for 32-bit indices on a GPU.
    steps = torch.tensor([i * GOLDEN & MASK for i in range(1 + num_hashes)], device=seed.device)
    return fmix32(fmix32((b + steps) & MASK) ^ a)


def rows_and_buckets(keys: Tensor, seeds: Tensor, spec: HashSpec) -> tuple[Tensor, Tensor]:
    """keys (...) -> rows (...), buckets (..., k)."""
    a, b = unpack(keys)
    if spec.indexing == "identity":
        rows = keys
    else:
        rows = reduce_range(fmix32(a ^ seeds[0]), spec.num_embeddings)
    if spec.indexing != "independent":
        a, b = rows, torch.zeros_like(rows)
    s = seeds[1:]  # (k,)
    inner = fmix32(a.unsqueeze(-1) ^ s) + (b.unsqueeze(-1) ^ s)
    buckets = reduce_range(fmix32(inner & MASK), spec.num_buckets)
    if spec.direct:
        buckets = torch.cat([rows.unsqueeze(-1), buckets[..., 1:]], dim=-1)
    return rows, buckets
