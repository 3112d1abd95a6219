"""A fused step of the shallow model: calls `fused_kernels.py` and returns the gradients."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import fused_kernels as triton_shallow
from hashembed.nn.engine.member import Member
from hashembed.nn.engine.network import Network
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.kernels.layout import RuleTensors
from hashembed.nn.gpu.places import Places, span
from hashembed.nn.gpu.rows import GradientTerms, Rule
from hashembed.nn.gpu.tiles import INTERPRETED, acc, device_of

MAX_LAYER_GRADS = 1 << 11  # numbers of the output layer's gradient, for each document
MAX_BATCH_GRADS = 1 << 26  # for all documents of a batch
# Numbers of a document that a program holds: of a whole document, or of a part of a longer one.
WHOLE, PART = (256, 64) if INTERPRETED else (1 << 13, 1 << 10)
WARPS = 8
_NO_RULE = (None,) * len(RuleTensors._fields)


def suits(models: Sequence[Member], batch_size: int) -> bool:
    """Whether the kernel can train these models on the same batches."""
    # Prepared batches must lie equally far apart for all models: they share one cursor.
    rows = {(m.network.bag.spec.num_hashes, m.network.bag.importance is None) for m in models}
    return len(rows) == 1 and all(_takes(model, batch_size) for model in models)


def _takes(model: Member, batch_size: int) -> bool:
    bag, (C, d) = model.network.bag, model.network.output.weight.shape
    plain = bag.aggregation == "sum" and not bag.append_importance
    grads = C * d + C
    fits = grads <= MAX_LAYER_GRADS and batch_size * grads <= MAX_BATCH_GRADS
    return plain and fits and not (model.multilabel or model.network.hidden)


class Documents(NamedTuple):
    """The documents of a batch, or of the prepared batches that the cursor points into."""

    offsets: Tensor  # (n + 1,)
    labels: Tensor  # (n,)
    weights: Tensor  # (n,)
    size: int  # n
    longest: int  # most tokens of a document


class LossRecord(NamedTuple):
    """Where the losses of a step are recorded."""

    step_number: Tensor  # (): steps before this one
    losses: Tensor  # of all steps, n each
    finite: Tensor  # (): becomes 0 when a loss is not finite


class Gradients(NamedTuple):
    """The gradients of a batch."""

    layer_grads: Tensor  # (n, C d + C): those of W, then of bias, for each document
    E_terms: GradientTerms
    P_terms: GradientTerms | None

    @property
    def tensors(self) -> list[Tensor]:
        """All memory that was allocated for them."""
        P_source = None if self.P_terms is None else self.P_terms.source
        found = (self.layer_grads, self.E_terms.source, self.E_terms.factors, P_source)
        return [tensor for tensor in found if tensor is not None]


def _tile(longest: int, d: int, k: int) -> dict[str, object]:
    """Tokens in a tile, its powers of 2, whether it holds whole documents, and its warps."""
    D, KP = triton.next_power_of_2(d), triton.next_power_of_2(k)
    T = triton.next_power_of_2(max(longest, 1))
    whole = T * KP * D <= WHOLE
    if not whole:
        T = max(1, PART // (KP * D))
    warps = max(1, min(WARPS, T * KP * D // 1024))
    return {"WHOLE": whole, "T": T, "D": D, "KP": KP, "num_warps": warps}


def learn(
    network: Network,
    documents: Documents,
    record: LossRecord,
    call: Call,
    places: Places,
    rule_of: Callable[[Tensor], Rule],
    scale: float,
) -> Gradients:
    """Record the losses of documents, times their weights -> their gradients, times `scale`."""
    (B, d), n, N, k = call.weight.shape, documents.size, len(call.keys), call.num_hashes
    W, bias = network.output.weight.detach(), network.output.bias.detach()
    C, mean = len(W), network.bag.mode == "mean"
    E = rule_of(network.bag.weight)
    P = None if network.bag.importance is None else rule_of(network.bag.importance)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=call.keys.device)

    layer_grads, x_grad = empty(n, C * d + C), empty(n, d)
    factors, P_source = (None, None) if P is None else (empty(k, N), empty(N, k))
    with device_of(W):
        triton_shallow.learn_bags[(n,)](
            places.cursor,
            *(documents.offsets, documents.labels, documents.weights),
            *(places.of_E, None if P is None else places.of_P),
            *(W, bias),
            *record,
            *(layer_grads, x_grad, factors, P_source),
            *E.tensors,
            *(_NO_RULE if P is None else P.tensors),
            *(n, N, B, places.base, span(call), C),
            *(scale, 1.0 if mean else 1 / (1 - network.dropout)),
            d=d,
            k=k,
            E_record=E.state_width,
            P_record=0 if P is None else P.state_width,
            RULE=E.kind.value,
            MEAN=mean,
            CP=triton.next_power_of_2(C),
            ACC=acc(W),
            **_tile(documents.longest, d, k),
        )
    return Gradients(layer_grads, *_terms(call, places, x_grad, factors, P_source))


def _terms(
    call: Call, places: Places, x_grad: Tensor, factors: Tensor | None, P_source: Tensor | None
) -> tuple[GradientTerms, GradientTerms | None]:
    """The gradient terms of E and P."""
    E_rows, P_rows = places.distinct
    E_terms = GradientTerms(
        source=x_grad,
        tokens=len(call.keys),
        rows=call.weight.shape[0],
        components=call.num_hashes,
        token_bags=places.token_bags,
        factors=factors,
        distinct=E_rows,
        cursor=places.cursor,
    )
    if P_source is None:
        return E_terms, None
    P_terms = GradientTerms(
        source=P_source,
        tokens=len(call.keys),
        rows=call.num_embeddings,
        base=places.base,
        distinct=P_rows,
        cursor=places.cursor,
    )
    return E_terms, P_terms
