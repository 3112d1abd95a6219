"""Finds the rows that the tokens of a call read, and sorts them in advance where possible.

Training knows its batches long before their steps. `prepare` sorts the rows of several batches at
once, which is much faster than one sort for each batch.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from hashembed.nn.gpu import tiles
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.kernels import bags as triton_kernels
from hashembed.nn.gpu.kernels import layout
from hashembed.nn.gpu.rows import Distinct
from hashembed.nn.gpu.tiles import INTERPRETED, cdiv, device_of, most_short_terms

INT32 = 2**31 - 1
CALL_COUNTS: int = layout.CALL_COUNTS.value
TABLE_COUNTS: int = layout.TABLE_COUNTS.value
_KEYS = 8 if INTERPRETED else 1024  # keys that a program looks at
_TOKENS = 32 if INTERPRETED else 256  # tokens that a program locates
_WORTH_A_STREAM = 2**22  # keys; fewer are sorted where they are needed


class PendingSort(NamedTuple):
    """A sort that runs on a side stream, or, without an event, one that was made before."""

    keys: Tensor
    order: Tensor
    done: torch.cuda.Event | None


class Places(NamedTuple):
    """The bag of each token of a call, and the rows of E and P that it reads, first those of E."""

    token_bags: Tensor  # (N,)
    keys: Tensor  # (k N + N,): the rows of E, then those of P, of the tables that are wanted
    base: int  # subtracted from the keys of P
    in_E: int  # how many keys are of E
    pending_sort: PendingSort | None = None  # started by `start_sort`
    buffers: "TermBuffers | None" = None  # filled by `prepare`
    cursor: Tensor | None = None  # which of the batches in the buffers is read, a number on the GPU
    side_stream: torch.cuda.Stream | None = None  # adds up E's gradient; the caller waits for it
    writable: torch.cuda.Event | None = None  # from then on tables may be changed
    side_by_side: bool = False  # E and P are updated at the same time, each on its own stream

    @property
    def of_E(self) -> Tensor:
        """Rows of E (k N,); B where a token does not count."""
        return self.keys[: self.in_E]

    @property
    def of_P(self) -> Tensor:
        """Rows of P (N,), plus `base`; base + K where a token does not count."""
        return self.keys[self.in_E :]

    @property
    def distinct(self) -> tuple[Distinct, Distinct] | tuple[None, None]:
        """The distinct rows of E and of P, if the call was prepared."""
        if self.buffers is None:
            return None, None
        E, P = slice(None, self.in_E), slice(self.in_E, None)
        counts = self.buffers.counts
        return (
            self.buffers.distinct(E, counts[:TABLE_COUNTS]),
            self.buffers.distinct(P, counts[TABLE_COUNTS:]),
        )


class TermBuffers(NamedTuple):
    """What `prepare` finds out about one or several calls, one call after the other.

    From `keys` on a call has one entry for each term: those of E, then, from k N on, those of P.
    `Distinct` explains the arrays that have its names.
    """

    token_bags: Tensor  # (N,), but calls are as far apart as in the other arrays
    keys: Tensor  # (k N + N,); those of call c lie c * `span` above those of the first
    term_ids: Tensor
    term_bags: Tensor
    slots: Tensor
    rows: Tensor
    starts: Tensor
    short_rows: Tensor
    short_extents: Tensor
    counts: Tensor  # (CALL_COUNTS,)

    def part(self, call: int, size: int, N: int) -> "TermBuffers":
        """Those of one call with N tokens and `size` terms."""
        at = slice(call * size, (call + 1) * size)
        counts = self.counts[CALL_COUNTS * call : CALL_COUNTS * (call + 1)]
        parts = TermBuffers(*(tensor[at] for tensor in self))
        return parts._replace(token_bags=parts.token_bags[:N], counts=counts)

    def distinct(self, terms: slice, counts: Tensor) -> Distinct:
        """What is known about the rows of one table."""
        arrays = {name: getattr(self, name)[terms] for name in Distinct._fields[:-1]}
        return Distinct(**arrays, counts=counts)


def make_term_buffers(call: Call, calls: int = 1, buffers: int = 1) -> TermBuffers:
    """Buffers for `calls` calls with the tokens of this one, each `buffers` times."""
    keys = _key_type(call, True, True, calls)
    terms, tokens = terms_of(call, len(call.keys)), len(call.keys)
    if terms > INT32:
        raise ValueError(
            f"a batch may read {INT32:,} rows, found {terms:,} of {tokens:,} tokens: make batches "
            "smaller"
        )

    def empty(dtype: torch.dtype, size: int = terms) -> Tensor:
        return torch.empty(buffers * calls * size, dtype=dtype, device=call.keys.device)

    return TermBuffers(
        token_bags=empty(torch.int32),
        keys=empty(keys),
        term_ids=empty(torch.int32),
        term_bags=empty(torch.int32),
        slots=empty(torch.int32),
        rows=empty(torch.int64),
        starts=empty(torch.int32),
        short_rows=empty(torch.int64),
        short_extents=empty(torch.int64),
        counts=empty(torch.int32, CALL_COUNTS),
    )


def terms_of(call: Call, N: int) -> int:
    """Gradient terms of N tokens, the same number as the rows that they read."""
    return N * (call.num_hashes + (call.importance is not None))


def span(call: Call) -> int:
    """How far the keys of one call lie above those of the call before."""
    B = call.weight.shape[0]
    return B + 1 + (0 if call.importance is None else call.num_embeddings + 1)


def prepare(
    call: Call, buffers: TermBuffers, token_bags: Tensor | None = None, calls: int = 1
) -> None:
    """Find the rows that tokens read, sort them, list the distinct ones: all that needs no table.

    So it can run for later steps while earlier ones train. `call` holds the keys and offsets of
    `calls` calls, one after the other, all of the same size; token_bags: the bags of their tokens,
    if they are known.
    """
    keys = _locate(call, buffers.token_bags, buffers.keys, token_bags, calls)
    counts = buffers.counts[: CALL_COUNTS * calls].zero_()
    if not len(keys):
        return
    in_order, order = torch.sort(keys, stable=True)
    N, k, (B, d) = len(call.keys) // calls, call.num_hashes, call.weight.shape
    size, in_E = len(keys) // calls, k * N
    blocks_E = cdiv(in_E, _KEYS)
    blocks = blocks_E + cdiv(size - in_E, _KEYS)
    new_counts = torch.empty(calls, blocks, dtype=torch.int32, device=keys.device)
    parts, grid = (size, in_E, blocks_E), (blocks, calls)
    with device_of(keys):
        triton_kernels.count_new[grid](in_order, new_counts, *parts, blocks, S=_KEYS)
        triton_kernels.distinct_rows[grid](
            in_order,
            order,
            new_counts,
            buffers.token_bags,
            buffers.term_ids,
            buffers.term_bags,
            buffers.slots,
            buffers.rows,
            buffers.starts,
            counts,
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
        triton_kernels.list_short_rows[grid](
            buffers.rows,
            buffers.starts,
            buffers.short_rows,
            buffers.short_extents,
            counts,
            *parts,
            call.num_embeddings,
            B,
            most_short_terms(d),
            most_short_terms(k),
            FEW=tiles.FEW,
            S=_KEYS,
            num_warps=8,
        )


def prepared(call: Call, buffers: TermBuffers, number: int = 0) -> Places:
    """What `prepare` has found for call `number`."""
    N, k = len(call.keys), call.num_hashes
    part, base = buffers.part(number, terms_of(call, N), N), call.weight.shape[0] + 1
    return Places(part.token_bags, part.keys, base, k * N, buffers=part)


def _key_type(call: Call, E: bool, P: bool, calls: int = 1) -> torch.dtype:
    """The type of keys that number the rows of both tables."""
    B = call.weight.shape[0]
    P = P and call.importance is not None
    largest = (B + 1 if E else 0) + call.num_embeddings if P else B
    return torch.int32 if largest + (calls - 1) * span(call) <= INT32 else torch.int64


def locate(call: Call, E: bool, P: bool) -> Places:
    """The rows that tokens read, of the tables that are wanted."""
    N, k, device = len(call.keys), call.num_hashes, call.keys.device
    in_E = k * N if E else 0
    token_bags = torch.empty(N, dtype=torch.int32, device=device)
    keys = torch.empty(in_E + (N if P else 0), dtype=_key_type(call, E, P), device=device)
    _locate(call, token_bags, keys, E=E, P=P)
    return Places(token_bags, keys, call.weight.shape[0] + 1 if E else 0, in_E)


def _locate(
    call: Call,
    token_bags: Tensor,
    keys: Tensor,
    known_bags: Tensor | None = None,
    calls: int = 1,
    E: bool = True,
    P: bool = True,
) -> Tensor:
    """Fill `token_bags` and `keys` -> the part of `keys` that is filled."""
    call = call.contiguous()
    N, k, B = len(call.keys) // calls, call.num_hashes, call.weight.shape[0]
    P = P and call.importance is not None
    in_E, in_P = k * N if E else 0, N if P else 0
    bags = N if call.offsets is None else len(call.offsets) // calls - 1
    if N:
        with device_of(keys):
            triton_kernels.locate_tokens[(cdiv(N, _TOKENS), calls)](
                call.keys,
                call.offsets,
                known_bags,
                call.keep,
                call.seeds,
                token_bags,
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
                T=_TOKENS,
            )
    return keys[: calls * (in_E + in_P)]


def start_sort(places: Places) -> Places:
    """Start to sort on a side stream, while the forward pass runs.

    Short sorts are left to the backward pass: the host would need longer for the streams than the
    GPU for the sort. In a CUDA graph streams cost nothing.
    """
    captured = torch.cuda.is_current_stream_capturing()
    if not captured and len(places.keys) < _WORTH_A_STREAM:
        return places
    here = torch.cuda.current_stream(places.keys.device)
    side = side_stream(here)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        keys, order = torch.sort(places.keys, stable=True)
        done = side.record_event()
    places.keys.record_stream(side)
    return places._replace(pending_sort=PendingSort(keys, order, done), side_by_side=captured)


def sort(places: Places) -> tuple[Tensor, Tensor] | None:
    """The sorted keys and their order; None if the call was prepared."""
    if places.buffers is not None:
        return None
    if places.pending_sort is None:
        return torch.sort(places.keys, stable=True)
    keys, order, done = places.pending_sort
    if done is None:
        return keys, order
    here = torch.cuda.current_stream(keys.device)
    here.wait_event(done)
    keys.record_stream(here)
    order.record_stream(here)
    return keys, order


@cache
def side_stream(here: torch.cuda.Stream) -> torch.cuda.Stream:
    """One for each stream."""
    return torch.cuda.Stream(here.device)  # type: ignore[no-untyped-call]
