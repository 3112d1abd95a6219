"""Steps of the shallow model: the kernel of `fused_kernels.py`, then the updates of the rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import fused_kernels as triton_shallow
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.places import Places, span
from hashembed.nn.gpu.rows import INTERPRETED, Rule, Terms, acc, device_of

MOST_SLOPES = 1 << 11  # of the output layer, for each document
MOST_SUMS = 1 << 26  # for all of a batch
# Numbers of a document that a program has at a time: of a whole one, or of a part of a longer one.
WHOLE, PART = (256, 64) if INTERPRETED else (1 << 13, 1 << 10)
WARPS = 8


def suits(models: Sequence[Any], batch_size: int) -> bool:
    """Whether the kernel can train these models, on the same batches."""
    # What is known of batches must lie as far apart for one as for the other.
    rows = {(m.network.bag.spec.num_hashes, m.network.bag.importance is None) for m in models}
    return len(rows) == 1 and all(_takes(model, batch_size) for model in models)


def _takes(model: Any, batch_size: int) -> bool:
    bag, (C, d) = model.network.bag, model.network.output.weight.shape
    plain = bag.aggregation == "sum" and not bag.append_importance
    small = C * d + C <= MOST_SLOPES and batch_size * (C * d + C) <= MOST_SUMS
    return plain and small and not (model.multilabel or model.network.hidden)


class Documents(NamedTuple):
    """The documents of a batch, or of several of which one has its turn."""

    offsets: Tensor  # (n + 1,)
    labels: Tensor  # (n,)
    weights: Tensor  # (n,)
    number: int  # n
    longest: int  # tokens that one may have


class Record(NamedTuple):
    """Where a step's losses are noted."""

    number: Tensor  # (): steps before it
    losses: Tensor  # of all steps, n each
    good: Tensor  # (): becomes 0 when one is not finite


class Learned(NamedTuple):
    """What a batch has left: slopes of W and bias (n, C d + C), terms of E and P."""

    sums: Tensor
    of_E: Terms
    of_P: Terms | None

    @property
    def tensors(self) -> list[Tensor]:
        """All that is new."""
        of_P = None if self.of_P is None else self.of_P.source
        found = (self.sums, self.of_E.source, self.of_E.factors, of_P)
        return [tensor for tensor in found if tensor is not None]


def learn(
    model: Any,
    documents: Documents,
    record: Record,
    call: Call,
    places: Places,
    rule_of: Callable[[Tensor], Rule],
    scale: float,
) -> Learned:
    """The losses of documents, times their weights, are noted -> slopes, times `scale`."""
    network, (B, d), n = model.network, call.weight.shape, documents.number
    W, bias = network.output.weight.detach(), network.output.bias.detach()
    N, k, C, K = len(call.keys), call.num_hashes, len(W), call.num_embeddings
    E = rule_of(network.bag.weight)
    P = None if call.importance is None else rule_of(network.bag.importance)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=call.keys.device)

    sums, of_x = empty(n, C * d + C), empty(n, d)
    factors, slope = (None, None) if P is None else (empty(k, N), empty(N, k))
    D, KP = triton.next_power_of_2(d), triton.next_power_of_2(k)
    T = triton.next_power_of_2(max(documents.longest, 1))
    whole = T * KP * D <= WHOLE
    if not whole:
        T = max(1, PART // (KP * D))
    mean = network.bag.mode == "mean"
    with device_of(W):
        triton_shallow.learn_bags[(n,)](
            places.turn,
            *documents[:3],
            places.of_E,
            None if P is None else places.of_P,
            W,
            bias,
            *record,
            sums,
            of_x,
            factors,
            slope,
            *E.tensors,
            *((None,) * 6 if P is None else P.tensors),
            n,
            N,
            B,
            places.base,
            span(call),
            C,
            scale,
            1.0 if mean else 1 / (1 - network.dropout),
            d=d,
            k=k,
            E_record=E.record,
            P_record=0 if P is None else P.record,
            RULE=E.number,
            MEAN=mean,
            WHOLE=whole,
            T=T,
            D=D,
            KP=KP,
            CP=triton.next_power_of_2(C),
            ACC=acc(W),
            num_warps=max(1, min(WARPS, T * KP * D // 1024)),
        )
    E_rows, P_rows = places.distinct
    E_terms = (None, None, 0, 0, N, k, B, of_x, 0, places.bag, factors)
    of_E, of_P = Terms(*E_terms, E_rows, places.turn), None
    if slope is not None:
        P_terms = (None, None, places.base, 0, N, 1, K, slope, 0, None, None)
        of_P = Terms(*P_terms, P_rows, places.turn)
    return Learned(sums, of_E, of_P)
