"""Forward and backward pass of the layers: calls of the kernels of `nn/gpu/kernels/bags.py`.

`nn/ops/on_gpu.py` registers them with autograd. They run on a GPU and, under TRITON_INTERPRET=1, on
the CPU.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION, Gradient
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.kernels import bags as triton_kernels
from hashembed.nn.gpu.kernels.layout import RuleKind
from hashembed.nn.gpu.places import Places, locate, side_stream, sort
from hashembed.nn.gpu.rows import GradientTerms, Rule, sum_rows
from hashembed.nn.gpu.tiles import INTERPRETED, cdiv, device_of, next_power_of_2, on_stream

_BLOCK = 32 if INTERPRETED else 128  # most columns in a tile


def _tile(D: int) -> tuple[int, int]:
    """Tokens that a program takes at a time, with D columns of each; and its warps."""
    if INTERPRETED:
        return 8, 1
    return min(64, max(16, 1024 // D)), 1 if D <= 32 else 4


def id_keys(ids: Tensor, columns: Tensor | None = None, count: int = 1) -> Tensor:
    """Integer ids (...) -> keys (...). Their columns (...), or if None, `count` columns in turn."""
    ids = ids.contiguous()
    columns = None if columns is None else columns.contiguous()
    keys, T = torch.empty_like(ids), 1024
    if ids.numel():
        with device_of(ids):
            grid = (cdiv(ids.numel(), T),)
            triton_kernels.id_keys[grid](ids, columns, keys, ids.numel(), COUNT=count, T=T)
    return keys


def forward(call: Call, factors: Tensor | None = None) -> Tensor:
    """Sums or means of hash vectors (n, D).

    factors (k, N): takes what each component is multiplied by, without the division of a mean.
    """
    call = call.contiguous()
    N, B, d = call.keys.shape[0], *call.weight.shape
    out = call.weight.new_empty((call.num_bags, call.width))
    if call.num_bags == 0:
        return out
    D = min(next_power_of_2(d), _BLOCK)
    T, warps = _tile(D)
    parts = cdiv(d, D) * (call.num_hashes if call.concat else 1)
    tables = (call.keep, call.weights, call.weight, call.importance, call.seeds, out)
    sizes = (N, call.num_embeddings, B)
    tile = {"T": T, "D": D, "KP": next_power_of_2(call.num_hashes), "num_warps": warps}
    with device_of(out):
        if call.offsets is None:
            grid = (cdiv(N, T), parts)
            triton_kernels.token_forward[grid](call.keys, *tables, *sizes, **call.options, **tile)
        else:
            grid = (call.num_bags, parts)
            triton_kernels.bag_forward[grid](
                call.keys,
                call.offsets,
                *tables,
                factors,
                *sizes,
                **call.options,
                MEAN=call.mean,
                **tile,
            )
    return out


def make_factors(call: Call) -> Tensor:
    """Memory for the factors that `forward` writes."""
    shape, kind = (call.num_hashes, len(call.keys)), ACCUMULATION[call.weight.dtype]
    return torch.empty(shape, dtype=kind, device=call.keys.device)


# Takes the gradient terms of a table, and gives its gradient, unless it updates the table at once.
Sink = Callable[[GradientTerms], Gradient | None]


def backward(
    call: Call,
    grad: Tensor,
    sinks: tuple[Sink | None, Sink | None],
    want_weights: bool = False,
    places: Places | None = None,
    factors: Tensor | None = None,
) -> tuple[Gradient | None, Gradient | None, Tensor | None]:
    """Gradients of E, P and the per-sample weights, where wanted.

    factors: those of the forward pass; they must be given if `places` have a side stream.
    """
    call, grad = call.contiguous(), grad.contiguous()
    if call.mean and call.offsets is not None:
        grad = grad.to(ACCUMULATION[call.weight.dtype]) / _counts(call).clamp(min=1)[:, None]
    E_sink, P_sink = sinks[0], sinks[1] if call.importance is not None else None
    if places is None:
        places = locate(call, E_sink is not None, P_sink is not None)
    here, side = None, places.side_stream
    if side is not None:
        here = torch.cuda.current_stream(grad.device)
        side.wait_stream(here)
    want_factors = E_sink is not None and factors is None
    found = _token_gradients(
        call, grad, places.token_bags, want_factors, P_sink is not None, want_weights
    )
    factors = found.factors if factors is None else factors
    writable = () if places.writable is None else (places.writable,)
    E_writable = writable if here is None else (here.record_event(), *writable)
    in_order = sort(places)  # perhaps only now
    join = None
    if places.side_by_side and E_sink is not None and P_sink is not None:
        here = torch.cuda.current_stream(grad.device)
        join = side_stream(here)
        join.wait_stream(here)
    E_grad = P_grad = None
    if E_sink is not None:
        if side is not None:
            for tensor in (grad, factors):
                tensor.record_stream(side)  # type: ignore[union-attr]
        with on_stream(side or join):
            E_grad = E_sink(_terms_of_E(call, places, grad, factors, in_order, E_writable))
    if P_sink is not None and found.P_terms is not None:
        P_grad = P_sink(_terms_of_P(call, places, found.P_terms, in_order, writable))
    if here is not None and join is not None:
        here.wait_stream(join)
    return E_grad, P_grad, found.weights_grad


def _terms_of_E(
    call: Call,
    places: Places,
    grad: Tensor,
    factors: Tensor | None,
    in_order: tuple[Tensor, Tensor] | None,
    wait_for: tuple[torch.cuda.Event, ...],
) -> GradientTerms:
    B, d = call.weight.shape
    keys, order = (None, None) if in_order is None else (t[: places.in_E] for t in in_order)
    return GradientTerms(
        source=grad,
        tokens=len(call.keys),
        rows=B,
        components=call.num_hashes,
        component_stride=d if call.concat else 0,
        token_bags=places.token_bags,
        factors=factors,
        keys=keys,
        order=order,
        distinct=places.distinct[0],
        wait_for=wait_for,
    )


def _terms_of_P(
    call: Call,
    places: Places,
    P_terms: Tensor,
    in_order: tuple[Tensor, Tensor] | None,
    wait_for: tuple[torch.cuda.Event, ...],
) -> GradientTerms:
    keys, order = (None, None) if in_order is None else (t[places.in_E :] for t in in_order)
    return GradientTerms(
        source=P_terms,
        tokens=len(call.keys),
        rows=call.num_embeddings,
        keys=keys,
        order=order,
        base=places.base,
        first_term=places.in_E,
        distinct=places.distinct[1],
        wait_for=wait_for,
    )


class _TokenGradients(NamedTuple):
    factors: Tensor | None  # (k, N)
    P_terms: Tensor | None  # (N, k): the terms of P's gradient
    weights_grad: Tensor | None  # (N,)


def _token_gradients(
    call: Call, grad: Tensor, token_bags: Tensor, for_E: bool, for_P: bool, want_weights: bool
) -> _TokenGradients:
    N, k, (B, d) = call.keys.shape[0], call.num_hashes, call.weight.shape

    def empty(wanted: bool, *shape: int) -> Tensor | None:
        kind = ACCUMULATION[call.weight.dtype]
        return torch.empty(shape, dtype=kind, device=grad.device) if wanted else None

    out = _TokenGradients(
        factors=empty(for_E, k, N),
        P_terms=empty(for_P or want_weights, N, k),
        weights_grad=empty(want_weights, N),
    )
    D = min(next_power_of_2(d), _BLOCK)
    T, warps = _tile(D)
    if N and (for_E or for_P or want_weights):
        with device_of(grad):
            triton_kernels.token_gradients[(cdiv(N, T),)](
                call.keys,
                token_bags,
                call.weights,
                call.weight,
                call.importance,
                call.seeds,
                grad,
                *out,
                N,
                call.num_bags,
                call.num_embeddings,
                B,
                **call.options,
                T=T,
                D=D,
                num_warps=warps,
            )
    return out


def _counts(call: Call) -> Tensor:
    """The number of tokens of each bag that count; (n,)."""
    assert call.offsets is not None
    if call.keep is None:
        return call.offsets.diff()
    return F.pad(call.keep.cumsum(0), (1, 0))[call.offsets].diff()


def dense(table: Tensor) -> Sink:
    """A dense gradient."""

    def sink(terms: GradientTerms) -> Gradient:
        out = torch.zeros_like(table, memory_format=torch.contiguous_format)
        sum_rows(terms, Rule(RuleKind.STORE, out))
        return Gradient(None, out)

    return sink


def compact(table: Tensor) -> Sink:
    """The touched rows, in order, and their gradients; waits for the GPU to count them."""

    def sink(terms: GradientTerms) -> Gradient:
        keys = terms.keys
        assert keys is not None
        begins = torch.ones_like(keys, dtype=torch.bool)
        torch.ne(keys[1:], keys[:-1], out=begins[1:])
        begins &= keys < terms.base + terms.rows
        slots = begins.cumsum(0) - 1
        rows = keys[begins].to(torch.int64) - terms.base
        out = table.new_empty((len(rows), table.shape[1]))
        sum_rows(terms, Rule(RuleKind.STORE, out), slots)
        return Gradient(rows, out)

    return sink
