"""The Triton kernels of `nn/gpu/kernels/bags.py`, called on tensors.

`nn/ops/on_gpu.py` shows them to autograd. They run on a GPU and, under TRITON_INTERPRET=1, on
the CPU.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION, Gradient
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.kernels import bags as triton_kernels
from hashembed.nn.gpu.places import Places, locate, sort
from hashembed.nn.gpu.rows import INTERPRETED, STORE, Rule, Terms, device_of, sum_rows

_BLOCK = 32 if INTERPRETED else 128  # most columns in a tile


def _tile(D: int) -> tuple[int, int]:
    """How many tokens a program takes at a time, with D columns of each; and its warps."""
    if INTERPRETED:
        return 8, 1
    return min(64, max(16, 1024 // D)), 1 if D <= 32 else 4


def id_keys(ids: Tensor) -> Tensor:
    """Integer ids (...) -> keys (...)."""
    ids = ids.contiguous()
    keys, T = torch.empty_like(ids), 1024
    if ids.numel():
        with device_of(ids):
            triton_kernels.id_keys[(triton.cdiv(ids.numel(), T),)](ids, keys, ids.numel(), T=T)
    return keys


def forward(call: Call, factors: Tensor | None = None) -> Tensor:
    """Sums or means of hash vectors (n, D).

    factors (k, N): what the components of bags are multiplied with goes there, but for the mean.
    """
    call = call.contiguous()
    N, B, d = call.keys.shape[0], *call.weight.shape
    out = call.weight.new_empty((call.num_bags, call.width))
    if call.num_bags == 0:
        return out
    D = min(triton.next_power_of_2(d), _BLOCK)
    T, warps = _tile(D)
    parts = triton.cdiv(d, D) * (call.num_hashes if call.concat else 1)
    tables = (call.keep, call.weights, call.weight, call.importance, call.seeds, out)
    sizes = (N, call.num_embeddings, B)
    tile = {"T": T, "D": D, "KP": triton.next_power_of_2(call.num_hashes), "num_warps": warps}
    with device_of(out):
        if call.offsets is None:
            grid = (triton.cdiv(N, T), parts)
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
    """Room for what `forward` multiplies components with."""
    shape, kind = (call.num_hashes, len(call.keys)), ACCUMULATION[call.weight.dtype]
    return torch.empty(shape, dtype=kind, device=call.keys.device)


# Where the sums of a table's rows go.
Sink = Callable[[Terms], Gradient | None]


def backward(
    call: Call,
    grad: Tensor,
    sinks: tuple[Sink | None, Sink | None],
    want_weights: bool = False,
    places: Places | None = None,
    factors: Tensor | None = None,
) -> tuple[Gradient | None, Gradient | None, Tensor | None]:
    """Gradients of E, P and the per-sample weights, where wanted; factors: of the forward pass."""
    call, grad = call.contiguous(), grad.contiguous()
    if call.mean and call.offsets is not None:
        grad = grad.to(ACCUMULATION[call.weight.dtype]) / _counts(call).clamp(min=1)[:, None]
    N, k, (B, d) = call.keys.shape[0], call.num_hashes, call.weight.shape
    E_sink, P_sink = sinks[0], sinks[1] if call.importance is not None else None
    if places is None:
        places = locate(call, E_sink is not None, P_sink is not None)
    in_E, (E_rows, P_rows) = places.in_E, places.distinct

    def sorted_keys(part: slice) -> tuple[Tensor | None, Tensor | None]:
        return (None, None) if in_order is None else (in_order[0][part], in_order[1][part])

    def add_up_E(*free: torch.cuda.Event) -> Gradient | None:
        if E_sink is None:
            return None
        terms = (*sorted_keys(slice(in_E)), 0, 0, N, k, B, grad, d if call.concat else 0)
        return E_sink(Terms(*terms, places.bag, factors, E_rows, free=free))

    def add_up_P(*free: torch.cuda.Event) -> Gradient | None:
        if P_sink is None or slope is None:
            return None
        K = call.num_embeddings
        terms = (*sorted_keys(slice(in_E, None)), places.base, in_E, N, 1, K, slope)
        return P_sink(Terms(*terms, 0, None, None, P_rows, free=free))

    wanted = E_sink is not None and factors is None, P_sink is not None, want_weights
    if places.beside is None:
        new, slope, of_weights = _slopes(call, grad, places.bag, *wanted)
        factors = new if factors is None else factors
        in_order = sort(places)  # perhaps only now
        return add_up_E(), add_up_P(), of_weights
    here, beside = torch.cuda.current_stream(grad.device), places.beside
    free = () if places.free is None else (places.free,)
    beside.wait_stream(here)
    _, slope, of_weights = _slopes(call, grad, places.bag, False, *wanted[1:])
    read = here.record_event()
    in_order = sort(places)
    for tensor in (grad, factors):
        tensor.record_stream(beside)  # type: ignore[union-attr]
    with torch.cuda.stream(beside):
        of_E = add_up_E(read, *free)
    return of_E, add_up_P(*free), of_weights


def _slopes(
    call: Call, grad: Tensor, bag: Tensor, for_E: bool, for_P: bool, want_weights: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    N, k, (B, d) = call.keys.shape[0], call.num_hashes, call.weight.shape

    def empty(wanted: bool, *shape: int) -> Tensor | None:
        kind = ACCUMULATION[call.weight.dtype]
        return torch.empty(shape, dtype=kind, device=grad.device) if wanted else None

    factors = empty(for_E, k, N)
    slope, of_weights = empty(for_P or want_weights, N, k), empty(want_weights, N)
    D = min(triton.next_power_of_2(d), _BLOCK)
    T, warps = _tile(D)
    if N and (for_E or for_P or want_weights):
        with device_of(grad):
            triton_kernels.slopes[(triton.cdiv(N, T),)](
                call.keys,
                bag,
                call.weights,
                call.weight,
                call.importance,
                call.seeds,
                grad,
                factors,
                slope,
                of_weights,
                N,
                call.num_bags,
                call.num_embeddings,
                B,
                **call.options,
                T=T,
                D=D,
                num_warps=warps,
            )
    return factors, slope, of_weights


def _counts(call: Call) -> Tensor:
    """How many tokens of each bag count; (n,)."""
    assert call.offsets is not None
    if call.keep is None:
        return call.offsets.diff()
    return F.pad(call.keep.cumsum(0), (1, 0))[call.offsets].diff()


def dense(table: Tensor) -> Sink:
    """A gradient of the table's size."""

    def sink(terms: Terms) -> Gradient:
        out = torch.zeros_like(table, memory_format=torch.contiguous_format)
        sum_rows(terms, Rule(STORE, out))
        return Gradient(None, out)

    return sink


def compact(table: Tensor) -> Sink:
    """The touched rows, in order, and their gradients; waits for the GPU to count them."""

    def sink(terms: Terms) -> Gradient:
        keys = terms.keys
        assert keys is not None
        begins = torch.ones_like(keys, dtype=torch.bool)
        torch.ne(keys[1:], keys[:-1], out=begins[1:])
        begins &= keys < terms.base + terms.rows
        slots = begins.cumsum(0) - 1
        rows = keys[begins].to(torch.int64) - terms.base
        out = table.new_empty((len(rows), table.shape[1]))
        sum_rows(terms, Rule(STORE, out), slots)
        return Gradient(rows, out)

    return sink
