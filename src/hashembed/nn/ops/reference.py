"""The operations in plain PyTorch: the definition of what is correct.

Half-precision tables are read as they are; everything after the look-up is done in float32 and
rounded once, at the end.
"""

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.hashing.spec import HashSpec
from hashembed.nn.ops.indexing import rows_and_buckets


def _accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def token_vectors(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    *,
    aggregation: str = "sum",
    append_importance: bool = False,
    sparse: bool = False,
) -> Tensor:
    """keys (...) -> hash vectors (..., D), in the precision of accumulation.

        e_w = sum_i P[row(w), i] * E[bucket_i(w)]        optionally followed by P[row(w)]

    `aggregation="concat"` concatenates the k weighted components instead of adding them. Without
    `importance` every P is 1.
    """
    dtype = _accumulation_dtype(weight.dtype)
    rows, buckets = rows_and_buckets(keys, seeds, spec)
    components = F.embedding(buckets, weight, sparse=sparse).to(dtype)  # (..., k, d)
    p = None
    if importance is not None:
        p = F.embedding(rows, importance, sparse=sparse).to(dtype)  # (..., k)
        components = p.unsqueeze(-1) * components
    if aggregation == "concat":
        vectors = components.flatten(-2)
    else:  # not `sum(-2)`: in onnxruntime that keeps the dimension if there are no tokens
        vectors = reduce(torch.add, components.unbind(-2))
    if append_importance and p is not None:
        vectors = torch.cat([vectors, p], dim=-1)
    return vectors


def hash_embedding(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    *,
    keep: Tensor | None = None,
    aggregation: str = "sum",
    append_importance: bool = False,
    sparse: bool = False,
) -> Tensor:
    """keys (...) -> hash vectors (..., D); zeros where `keep` (...) is False."""

    def vectors(of: Tensor) -> Tensor:
        return token_vectors(
            of,
            weight,
            importance,
            seeds,
            spec,
            aggregation=aggregation,
            append_importance=append_importance,
            sparse=sparse,
        ).to(weight.dtype)

    if keep is None:
        return vectors(keys)
    if sparse:  # the indices of the gradient must not contain dropped tokens
        kept = vectors(keys[keep])
        return kept.new_zeros((*keys.shape, kept.shape[-1])).masked_scatter(
            keep.unsqueeze(-1), kept
        )
    return vectors(keys).masked_fill(~keep.unsqueeze(-1), 0)


def _bag_of_each_token(offsets: Tensor, count: int) -> Tensor:
    """offsets (n + 1,), N -> the bag of each token (N,); n for tokens behind the last bag.

    It is the number of bags that end at or before the token's position. `searchsorted` would find
    it, too, but cannot be exported to ONNX.
    """
    ends = offsets[1:]
    ends_at = offsets.new_zeros(count + 1).scatter_add(0, ends, torch.ones_like(ends))
    return ends_at.cumsum(0)[:count]


def hash_embedding_bag(
    keys: Tensor,
    offsets: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    *,
    per_sample_weights: Tensor | None = None,
    keep: Tensor | None = None,
    mode: str = "sum",
    aggregation: str = "sum",
    append_importance: bool = False,
    sparse: bool = False,
) -> Tensor:
    """keys (N,), offsets (n + 1,) -> sums or means of hash vectors over each bag (n, D).

    Bag i holds keys[offsets[i] : offsets[i + 1]]; an empty bag is zeros. Tokens where `keep` (N,)
    is False do not count, not even in a mean.
    """
    num_bags = offsets.numel() - 1
    bag = _bag_of_each_token(offsets, keys.numel())  # (N,)
    if keep is not None and sparse:
        keys, bag, keep, per_sample_weights = (
            keys[keep],
            bag[keep],
            None,
            None if per_sample_weights is None else per_sample_weights[keep],
        )
    vectors = token_vectors(
        keys,
        weight,
        importance,
        seeds,
        spec,
        aggregation=aggregation,
        append_importance=append_importance,
        sparse=sparse,
    )  # (N, D)
    if per_sample_weights is not None:
        vectors = vectors * per_sample_weights.to(vectors.dtype).unsqueeze(-1)
    if keep is not None:
        vectors = vectors.masked_fill(~keep.unsqueeze(-1), 0)
    total = vectors.new_zeros(num_bags + 1, vectors.shape[-1]).index_add(0, bag, vectors)
    if mode == "mean":
        ones = torch.ones_like(bag) if keep is None else keep.to(bag.dtype)
        count = torch.zeros_like(offsets).scatter_add(0, bag, ones)
        total = total / count.clamp(min=1).unsqueeze(-1).to(total.dtype)
    return total[:num_bags].to(weight.dtype)
