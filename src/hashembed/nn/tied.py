"""Hash vectors as the weights of an output layer: scores of ids, and no accidental ties."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from hashembed.nn.data_parallel import live_layers
from hashembed.nn.layer_protocol import HashLayer
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.owners import may_have_owner

NOT_ROWS = (
    "it holds the component vectors that all ids share, not a row for each id, and cannot be tied "
    "to another layer. Give the other layer a weight of its own (Hugging Face: "
    "config.tie_word_embeddings = False), or score V ids by their vectors: "
    "layer.logits(hidden, torch.arange(V))"
)


def logits(layer: HashLayer, hidden: Tensor, ids: Tensor, columns: Tensor | int | None) -> Tensor:
    """`HashEmbedding.logits`."""
    if layer.append_importance:
        raise ValueError("logits need append_importance=False: the appended weights are no scores")
    if not hidden.is_floating_point() or hidden.dim() == 0 or hidden.shape[-1] != layer.output_dim:
        raise ValueError(
            f"hidden must be floating point, (..., {layer.output_dim}), found {hidden.dtype} of "
            f"the shape {tuple(hidden.shape)}"
        )
    keys, mix = layer._keys(ids, columns)
    if ids.dim() > 1:
        if ids.shape[:-1] != hidden.shape[:-1]:
            raise ValueError(
                "ids must be (V,), the same for all of hidden, or (..., V) with the leading "
                f"dimensions of hidden, {tuple(hidden.shape[:-1])}, found {tuple(ids.shape)}"
            )
        return (layer._vectors(ids, columns) @ hidden.unsqueeze(-1)).squeeze(-1)
    flat = hidden.reshape(-1, hidden.shape[-1])
    if _components_first(layer, len(flat), len(ids)):
        scores = _by_components(layer, flat, ids, keys, mix)
    else:
        scores = F.linear(flat, layer._vectors(ids, columns))
    return scores.view(*hidden.shape[:-1], len(ids))


def _components_first(layer: HashLayer, states: int, candidates: int) -> bool:
    """Whether the scores of all components, and then of ids, take fewer products.

    Vectors first: V vectors of k products of d numbers, then n V d. Components first: n B d, then
    n V k. The second way reads all of E by a plain product, which a row optimizer would not see,
    and gives E a dense gradient.
    """
    if layer.aggregation != "sum" or layer._sparse:
        return False
    if may_have_owner(layer.weight) or may_have_owner(layer.importance):
        return False
    d, k = layer.embedding_dim, layer.num_hashes
    vectors_first = candidates * d * (k + states)
    return states * (layer.num_buckets * d + candidates * k) < vectors_first


def _by_components(layer: HashLayer, hidden: Tensor, ids: Tensor, keys: Tensor, mix: int) -> Tensor:
    """hidden (n, d) -> scores (n, V), without a (V, d) matrix.

    sum_i P[row, i] (E[bucket_i] . h) is a look-up like any other, in the table E h of one number
    for each bucket. n states make a table of n columns. The kernels take a limited number of them.
    """
    parts = []
    for states in torch.split(hidden, ops.MAX_DIM):
        table = F.linear(layer.weight, states)  # (B, n); under autocast in half precision
        kind = table.dtype
        if layer.importance is not None:
            table = table.to(layer.importance.dtype)
        found = ops.hash_embedding(
            keys,
            table,
            layer.importance,
            layer._current_seeds(),
            layer.spec,
            keep=layer._keep(ids),
            mix=mix,
        )  # (V, n)
        parts.append(found.to(kind).T)
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def watch(layer: HashLayer) -> None:
    """From now on, assigning the layer's weight to an ordinary layer is an error."""
    live_layers.add(layer)


def _refuse_tied_weight(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
    """`head.weight = layer.weight` would give a logit for each bucket instead of each id."""
    if name != "weight" or module in live_layers:
        return
    if isinstance(module, nn.Linear | nn.Embedding | nn.EmbeddingBag):
        for layer in list(live_layers):
            if layer._parameters.get("weight") is parameter and not _has_a_row_for_each_id(layer):
                raise ValueError(
                    f"the weight of a HashEmbedding ({layer.num_buckets} x "
                    f"{layer.embedding_dim}) was assigned to a {type(module).__name__}: {NOT_ROWS}"
                )


def _has_a_row_for_each_id(layer: HashLayer) -> bool:
    return layer.spec.direct and layer.num_hashes == 1 and layer.importance is None


register_module_parameter_registration_hook(_refuse_tied_weight)
