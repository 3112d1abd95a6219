"""Where the tokens of a call point, and what can be found out about it ahead of the call.

The steps of a training know their batches long before their turn. `prepare` sorts the rows that
several of them read at once: that takes a fraction of the time that one sort for each would.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.kernels import bags as triton_kernels
from hashembed.nn.gpu.rows import FEW, INTERPRETED, Distinct, device_of, long_from

INT32 = 2**31 - 1
NUMBERS = 6  # that `found` has of each call
_KEYS = 8 if INTERPRETED else 1024  # of which one program counts the new ones


class Places(NamedTuple):
    """Where the tokens of a call point: their bags, and the rows of E and P, E's first."""

    bag: Tensor  # (N,)
    keys: Tensor  # (k N + N,), one after the other for each table that is wanted
    base: int  # subtracted from the keys of P
    in_E: int  # how many keys are of E
    aside: tuple[Tensor, Tensor, torch.cuda.Event] | None = None  # being sorted, by `sort_aside`
    room: "Room | None" = None  # sorted already, by `prepare`
    turn: Tensor | None = None  # which of the calls in that room it is, for the GPU to say
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
        *of_keys, found = self.room[2:]
        E, P = slice(None, self.in_E), slice(self.in_E, None)
        of_E = Distinct._make([*(tensor[E] for tensor in of_keys), found[:3]])
        return of_E, Distinct._make([*(tensor[P] for tensor in of_keys), found[3:]])


class Room(NamedTuple):
    """Where `prepare` puts its results, of one call after the other."""

    bag: Tensor  # (N,), but as far from one call to the next as all that follow
    keys: Tensor  # (k N + N,); behind the first call each has all rows before it added
    # Of each table by itself, P's from k N on, as in `Distinct`:
    items: Tensor
    owners: Tensor
    slots: Tensor
    rows: Tensor
    starts: Tensor
    listed: Tensor
    extents: Tensor
    found: Tensor  # (NUMBERS,): three of E's rows and of P's

    def part(self, call: int, size: int, N: int) -> "Room":
        """Of one call with N tokens and `size` keys."""
        at = slice(call * size, (call + 1) * size)
        bag, *of_keys, found = self
        of_call = [bag[at][:N], *(tensor[at] for tensor in of_keys)]
        return Room._make([*of_call, found[NUMBERS * call : NUMBERS * (call + 1)]])


def make_room(call: Call, calls: int = 1, halves: int = 1) -> Room:
    """For so many calls with the tokens of this one; all of that several times."""
    kind = _kind(call, True, True, calls)
    of_one, tokens = keys_of(call, len(call.keys)), len(call.keys)
    if of_one > INT32:
        raise ValueError(
            f"a batch may read {INT32:,} rows, found {of_one:,} of {tokens:,} tokens: make batches "
            "smaller"
        )
    calls *= halves
    size = calls * of_one

    def empty(dtype: torch.dtype, n: int = size) -> Tensor:
        return torch.empty(n, dtype=dtype, device=call.keys.device)

    int32, int64 = torch.int32, torch.int64
    kinds = (int32, kind, int32, int32, int32, int64, int32, int64, int64)
    return Room._make([*map(empty, kinds), empty(int32, NUMBERS * calls)])


def keys_of(call: Call, N: int) -> int:
    """How many rows N tokens read."""
    return N * (call.num_hashes + (call.importance is not None))


def span(call: Call) -> int:
    """What the keys of one call lie above those of the call before."""
    B = call.weight.shape[0]
    return B + 1 + (0 if call.importance is None else call.num_embeddings + 1)


def prepare(call: Call, room: Room, owners: Tensor | None = None, calls: int = 1) -> None:
    """Where the tokens of calls point, sorted, and which rows that are: all that needs no table.

    So it can be done for some steps while others are under way. The calls' keys, offsets and owners
    (the bags of the tokens, if known) follow each other in `call`, all have as many.
    """
    keys = _locate(call, room.bag, room.keys, owners, calls)
    found = room.found[: NUMBERS * calls].zero_()
    if not len(keys):
        return
    in_order, order = torch.sort(keys, stable=True)
    N, k, (B, d) = len(call.keys) // calls, call.num_hashes, call.weight.shape
    size, in_E = len(keys) // calls, k * N
    blocks_E = triton.cdiv(in_E, _KEYS)
    blocks = blocks_E + triton.cdiv(size - in_E, _KEYS)
    counts = torch.empty(calls, blocks, dtype=torch.int32, device=keys.device)
    parts, grid = (size, in_E, blocks_E), (blocks, calls)
    with device_of(keys):
        triton_kernels.count_new[grid](in_order, counts, *parts, blocks, S=_KEYS)
        triton_kernels.distinct_rows[grid](
            in_order,
            order,
            counts,
            room.bag,
            *room[2:7],
            found,
            N,
            *parts,
            blocks,
            B + 1,
            span(call),
            k=k,
            S=_KEYS,
            C=_KEYS,
            num_warps=8,
        )
        triton_kernels.by_length[grid](
            *room[5:9],
            found,
            *parts,
            call.num_embeddings,
            B,
            long_from(d),
            long_from(k),
            FEW=FEW,
            S=_KEYS,
            num_warps=8,
        )


def prepared(call: Call, room: Room, number: int = 0) -> Places:
    """What `prepare` has found for this one of the calls."""
    N, k = len(call.keys), call.num_hashes
    size = keys_of(call, N)
    part, base = room.part(number, size, N), call.weight.shape[0] + 1
    return Places(part.bag, part.keys, base, k * N, room=part)


def _kind(call: Call, E: bool, P: bool, calls: int = 1) -> torch.dtype:
    """Of keys that number the rows of both tables."""
    B = call.weight.shape[0]
    P = P and call.importance is not None
    largest = (B + 1 if E else 0) + call.num_embeddings if P else B
    return torch.int32 if largest + (calls - 1) * span(call) <= INT32 else torch.int64


def locate(call: Call, E: bool, P: bool) -> Places:
    """Where the tokens point, in the tables that are wanted."""
    N, k, device = len(call.keys), call.num_hashes, call.keys.device
    in_E = k * N if E else 0
    bag = torch.empty(N, dtype=torch.int32, device=device)
    keys = torch.empty(in_E + (N if P else 0), dtype=_kind(call, E, P), device=device)
    _locate(call, bag, keys, E=E, P=P)
    return Places(bag, keys, call.weight.shape[0] + 1 if E else 0, in_E)


def _locate(
    call: Call,
    bag: Tensor,
    keys: Tensor,
    owners: Tensor | None = None,
    calls: int = 1,
    E: bool = True,
    P: bool = True,
) -> Tensor:
    """Fill `bag` and `keys` -> as many of the keys as there are."""
    call = call.contiguous()
    N, k, B = len(call.keys) // calls, call.num_hashes, call.weight.shape[0]
    P = P and call.importance is not None
    in_E, in_P = k * N if E else 0, N if P else 0
    bags = N if call.offsets is None else len(call.offsets) // calls - 1
    T = 32 if INTERPRETED else 256
    if N:
        with device_of(keys):
            triton_kernels.sort_keys[(triton.cdiv(N, T), calls)](
                call.keys,
                call.offsets,
                owners,
                call.keep,
                call.seeds,
                bag,
                keys if E else None,
                keys[in_E:] if P else None,
                N,
                bags,
                bags.bit_length(),
                call.num_embeddings,
                B,
                B + 1 if E else 0,
                in_E + in_P,
                span(call),
                k=k,
                INDEXING=call.indexing,
                MIX=call.mix,
                T=T,
            )
    return keys[: calls * (in_E + in_P)]


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


def sort(places: Places) -> tuple[Tensor, Tensor] | None:
    """The sorted keys, and which was where; None if more is known already."""
    if places.room is not None:
        return None
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
