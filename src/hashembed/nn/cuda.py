"""The Triton kernels of `triton_kernels.py`, called on tensors.

`cuda_ops.py` shows them to autograd. They run on a GPU and, under TRITON_INTERPRET=1, on the CPU.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from hashembed.nn import triton_kernels
from hashembed.nn.cpu import ACCUMULATION, Gradient
from hashembed.nn.cuda_rows import (
    INTERPRETED,
    STORE,
    Distinct,
    Rule,
    Terms,
    acc,
    device_of,
    sum_rows,
)

MAX_TOKENS = 2**30  # in one call
_INT32 = 2**31 - 1
_BLOCK = 32 if INTERPRETED else 128  # most columns in a tile
_KEYS = 8 if INTERPRETED else 1024  # of which one program counts the new ones


def _tile(D: int) -> tuple[int, int]:
    """How many tokens a program takes at a time, with D columns of each; and its warps."""
    if INTERPRETED:
        return 8, 1
    return min(64, max(16, 1024 // D)), 1 if D <= 32 else 4


class Call(NamedTuple):
    """One call: the tables, the tokens' keys and the hash, and what to do with them."""

    weight: Tensor  # E (B, d)
    importance: Tensor | None  # P (K, k)
    keys: Tensor  # (N,), or ids with `mix`
    seeds: Tensor  # (k + 1,)
    offsets: Tensor | None  # (n + 1,); without them each token is a bag
    keep: Tensor | None  # (N,)
    weights: Tensor | None  # (N,), in the precision of accumulation
    num_embeddings: int
    indexing: int
    mix: bool
    mean: bool
    concat: bool
    append: bool

    @property
    def num_hashes(self) -> int:
        """k."""
        return self.seeds.shape[0] - 1

    @property
    def num_bags(self) -> int:
        """Rows of the output."""
        return self.keys.shape[0] if self.offsets is None else self.offsets.shape[0] - 1

    @property
    def width(self) -> int:
        """Columns of the output."""
        k = self.num_hashes
        return self.weight.shape[1] * (k if self.concat else 1) + (k if self.append else 0)

    @property
    def options(self) -> dict[str, Any]:
        """What all kernels of the layers are compiled for."""
        return {
            "d": self.weight.shape[1],
            "k": self.num_hashes,
            "width": self.width,
            "INDEXING": self.indexing,
            "MIX": self.mix,
            "CONCAT": self.concat,
            "APPEND": self.append,
            "ACC": acc(self.weight),
        }

    def contiguous(self) -> "Call":
        """As the kernels want it."""
        n = self.keys.shape[0]
        if n > MAX_TOKENS:
            raise ValueError(f"a call takes at most {MAX_TOKENS:,} ids, found {n:,}")
        fields: Any = (f.contiguous() if isinstance(f, Tensor) else f for f in self)
        return Call(*fields)


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


class Places(NamedTuple):
    """Where the tokens of a call point: their bags, and the rows of E and P, E's first."""

    bag: Tensor  # (N,)
    keys: Tensor  # (k N + N,), one after the other for each table that is wanted
    base: int  # subtracted from the keys of P
    in_E: int  # how many keys are of E
    aside: tuple[Tensor, Tensor, torch.cuda.Event] | None = None  # being sorted, by `sort_aside`
    room: "Room | None" = None  # sorted already, by `prepare`
    # A stream where E's gradient is added up while P's is, for the caller to wait for; and from
    # when on tables may be changed.
    beside: torch.cuda.Stream | None = None
    free: torch.cuda.Event | None = None

    @property
    def of_E(self) -> Tensor:
        """Rows of E (k N,); B where a token does not count."""
        return self.keys[: self.in_E]

    @property
    def of_P(self) -> Tensor:
        """Rows of P (N,), counted from `base`; base + K where a token does not count."""
        return self.keys[self.in_E :]

    @property
    def distinct(self) -> tuple[Distinct, Distinct] | tuple[None, None]:
        """The rows of E and of P, if the call was prepared."""
        if self.room is None:
            return None, None
        E, P = slice(None, self.in_E), slice(self.in_E, None)
        slots, rows, found = self.room.slots, self.room.rows, self.room.found
        return Distinct(slots[E], rows[E], found[0]), Distinct(slots[P], rows[P], found[1])


class Room(NamedTuple):
    """Where `prepare` puts its results, for as many tokens as there is room for."""

    bag: Tensor  # (N,)
    keys: Tensor  # (k N + N,)
    sorted: Tensor  # the same keys, sorted
    order: Tensor  # which was where
    slots: Tensor  # which of its table's distinct rows, in order, a sorted key is
    rows: Tensor  # those rows, E's from 0 on, P's from k N on
    counts: Tensor  # how many distinct rows begin in each block of keys
    found: Tensor  # (2,): how many there are


def make_room(call: Call) -> Room:
    """For the tokens of this call, in both tables."""
    N, k = call.keys.shape[0], call.num_hashes
    P = call.importance is not None
    size, kind = k * N + (N if P else 0), _kind(call, True, P)

    def empty(n: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(n, dtype=dtype, device=call.keys.device)

    return Room(
        empty(N, torch.int32),
        empty(size, kind),
        empty(size, kind),
        empty(size, torch.int64),
        empty(size, torch.int32),
        empty(size, torch.int64),
        empty(triton.cdiv(k * N, _KEYS) + triton.cdiv(size - k * N, _KEYS), torch.int32),
        empty(2, torch.int32),
    )


def prepare(call: Call, room: Room, owners: Tensor | None = None) -> Places:
    """Where the tokens point, sorted, and which rows that are: all that needs no table.

    So it can be done for one step while another is under way. owners (N,): their bags, if known.
    """
    found = locate(call, True, call.importance is not None, room, owners)
    size, in_E = len(found.keys), found.in_E
    sorted_keys, order = room.sorted[:size], room.order[:size]
    torch.sort(found.keys, stable=True, out=(sorted_keys, order))
    blocks_E = triton.cdiv(in_E, _KEYS)
    blocks = blocks_E + triton.cdiv(size - in_E, _KEYS)
    if size:
        sizes = (size, in_E, blocks_E)
        with device_of(sorted_keys):
            triton_kernels.count_new[(blocks,)](sorted_keys, room.counts, *sizes, S=_KEYS)
            triton_kernels.distinct_rows[(blocks,)](
                sorted_keys,
                room.counts,
                room.slots,
                room.rows,
                room.found,
                *sizes,
                blocks,
                found.base,
                S=_KEYS,
                C=_KEYS,
            )
    return prepared(call, room)


def prepared(call: Call, room: Room) -> Places:
    """What `prepare` has found, for a call with the same tokens."""
    N, k = call.keys.shape[0], call.num_hashes
    in_E, size = k * N, k * N + (0 if call.importance is None else N)
    bag, *of_keys, counts, found = room
    keys, in_order, order, slots, rows = (tensor[:size] for tensor in of_keys)
    used = Room(bag[:N], keys, in_order, order, slots, rows, counts, found)
    return Places(used.bag, used.keys, call.weight.shape[0] + 1, in_E, room=used)


def _kind(call: Call, E: bool, P: bool) -> torch.dtype:
    """Of keys that number the rows of both tables."""
    B = call.weight.shape[0]
    largest = (B + 1 if E else 0) + call.num_embeddings if P else B
    return torch.int32 if largest <= _INT32 else torch.int64


def locate(
    call: Call, E: bool, P: bool, room: Room | None = None, owners: Tensor | None = None
) -> Places:
    """Where the tokens point, in the tables that are wanted."""
    call = call.contiguous()
    N, k, B = call.keys.shape[0], call.num_hashes, call.weight.shape[0]
    in_E, in_P, base = k * N if E else 0, N if P else 0, B + 1 if E else 0
    if room is None:
        bag = torch.empty(N, dtype=torch.int32, device=call.keys.device)
        keys = torch.empty(in_E + in_P, dtype=_kind(call, E, P), device=call.keys.device)
    else:
        bag, keys = room.bag[:N], room.keys[: in_E + in_P]
    T = 32 if INTERPRETED else 256
    if N:
        with device_of(keys):
            triton_kernels.sort_keys[(triton.cdiv(N, T),)](
                call.keys,
                call.offsets,
                owners,
                call.keep,
                call.seeds,
                bag,
                keys[:in_E] if E else None,
                keys[in_E:] if P else None,
                N,
                call.num_bags,
                call.num_bags.bit_length(),
                call.num_embeddings,
                B,
                base,
                k=k,
                INDEXING=call.indexing,
                MIX=call.mix,
                T=T,
            )
    return Places(bag, keys, base, in_E)


def sort_aside(places: Places) -> Places:
    """Begin to sort, on a stream of its own, while the forward pass runs."""
    here = torch.cuda.current_stream(places.keys.device)
    aside = _side_stream(here)
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        keys, order = torch.sort(places.keys, stable=True)
        done = aside.record_event()
    places.keys.record_stream(aside)
    return places._replace(aside=(keys, order, done))


def _sorted(places: Places) -> tuple[Tensor, Tensor]:
    if places.room is not None:
        return places.room.sorted, places.room.order
    if places.aside is None:
        return torch.sort(places.keys, stable=True)
    keys, order, done = places.aside
    here = torch.cuda.current_stream(keys.device)
    here.wait_event(done)
    keys.record_stream(here)
    order.record_stream(here)
    return keys, order


@cache
def _side_stream(here: torch.cuda.Stream) -> torch.cuda.Stream:
    """One beside each stream."""
    return torch.cuda.Stream(here.device)  # type: ignore[no-untyped-call]


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

    def add_up_E(*free: torch.cuda.Event) -> Gradient | None:
        if E_sink is None:
            return None
        terms = (keys[:in_E], order[:in_E], 0, 0, N, k, B, grad, d if call.concat else 0)
        return E_sink(Terms(*terms, places.bag, factors, E_rows, free))

    def add_up_P(*free: torch.cuda.Event) -> Gradient | None:
        if P_sink is None or slope is None:
            return None
        terms = (keys[in_E:], order[in_E:], places.base, in_E, N, 1, call.num_embeddings, slope)
        return P_sink(Terms(*terms, 0, None, None, P_rows, free))

    wanted = E_sink is not None and factors is None, P_sink is not None, want_weights
    if places.beside is None:
        new, slope, of_weights = _slopes(call, grad, places.bag, *wanted)
        factors = new if factors is None else factors
        keys, order = _sorted(places)  # perhaps only now
        return add_up_E(), add_up_P(), of_weights
    here, beside = torch.cuda.current_stream(grad.device), places.beside
    free = () if places.free is None else (places.free,)
    beside.wait_stream(here)
    _, slope, of_weights = _slopes(call, grad, places.bag, False, *wanted[1:])
    read = here.record_event()
    keys, order = _sorted(places)
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
        begins = torch.ones_like(keys, dtype=torch.bool)
        torch.ne(keys[1:], keys[:-1], out=begins[1:])
        begins &= keys < terms.base + terms.rows
        slots = begins.cumsum(0) - 1
        rows = keys[begins].to(torch.int64) - terms.base
        out = table.new_empty((len(rows), table.shape[1]))
        sum_rows(terms, Rule(STORE, out), slots)
        return Gradient(rows, out)

    return sink
