"""Prefetches batches: gathers and sorts several at a time on the GPU, before their steps."""

import weakref
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine.batches import free_memory
from hashembed.nn.engine.member import Member
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.tiles import INTERPRETED, device_of

MAX_DOCUMENTS = 64 if INTERPRETED else 4096  # that `assemble` takes at a time
KEYS = 8 if INTERPRETED else 128  # that `gather_keys` takes at a time
COPIED = 64 if INTERPRETED else 1024  # numbers that a program of `copy_batch` copies
MAX_PAIRS = 1 << 24  # that are sorted at a time; more are not faster
BYTES = 60  # that a prepared key takes, with all that is known about it
BUFFERS = 2  # one is read while the other is filled


class TrainingSet(Protocol):
    """What batches are made from: documents in the order of training, on one device."""

    batch_size: int
    device: torch.device
    cuda: bool
    has_kernels: bool  # whether batches are prepared by kernels; else they are only gathered
    capacities: tuple[int, int]  # tokens of a batch: enough for most groups, enough for all
    keys: Tensor
    starts: Tensor
    lengths: Tensor
    labels: Tensor | None
    truth: Tensor | None
    weights: Tensor
    steps_before: Tensor  # (): steps in the life of the models before this training

    @property
    def members(self) -> list[Member]:
        """The models."""


class Batch(NamedTuple):
    """A batch that was copied out of the prepared ones."""

    keys: Tensor
    offsets: Tensor
    truth: Tensor
    weights: Tensor


def group_size(members: Sequence[Member], capacity: int, most: int, device: torch.device) -> int:
    """How many batches of `capacity` tokens to prepare at a time."""
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    calls = [member.network.call(nothing, nothing, None) for member in members]
    pairs = [max(1, cuda_places.terms_of(call, capacity)) for call in calls]
    fitting = [most, MAX_PAIRS // max(pairs)]
    fitting += [cuda_places.INT32 // cuda_places.span(call) for call in calls]
    if device.type == "cuda":
        fitting.append(free_memory(device) // 8 // (BUFFERS * BYTES * sum(pairs)))
    return max(1, min(fitting))


class PreparedBatches:
    """The batches of the next steps, in a double buffer.

    Args:
        training: the documents that batches are made of.
        calls: batches in each buffer.
    """

    def __init__(self, training: TrainingSet, calls: int) -> None:
        self.training: TrainingSet = weakref.proxy(training)
        self.calls = calls
        n, device, most = training.batch_size, training.device, training.capacities[1]

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(BUFFERS, calls, *shape, dtype=dtype, device=device)

        self.offsets, self.shifts, self.labels = empty(n + 1), empty(n), empty(n)
        self.weights = empty(n, dtype=torch.float32)
        self.truth = self.labels
        if training.truth is not None:
            self.truth = empty(n, training.truth.shape[1], dtype=torch.bool)
        self._keys = empty(most).view(BUFFERS, -1)
        self._token_bags = empty(most, dtype=torch.int32).view(BUFFERS, -1)
        self._keep = [
            empty(most, dtype=torch.bool).view(BUFFERS, -1) if member.network.dropout else None
            for member in training.members
        ]
        self._terms: list[cuda_places.TermBuffers | None] = [None for _ in training.members]
        if training.has_kernels:
            for i in range(len(self._terms)):
                call = self._call(i, self._keys[0, :most], None)
                self._terms[i] = cuda_places.make_term_buffers(call, calls, BUFFERS)

    def fill(self, buffer: int, first: int, count: int, capacity: int) -> None:
        """Prepare the batches of steps first, ..., first + count - 1, of `capacity` tokens each."""
        self._gather(buffer, first, count, capacity)
        training = self.training
        keys = self._keys[buffer, : count * capacity]
        token_bags = self._token_bags[buffer, : count * capacity]
        offsets = self.offsets[buffer, :count].view(-1)
        for i, member in enumerate(training.members):
            keep = self._keep[i]
            if keep is not None:
                for number in range(count):
                    step = training.steps_before + first + number
                    kept = member.dropout_mask(capacity, step)
                    assert kept is not None
                    keep[buffer, number * capacity : (number + 1) * capacity] = kept
                keep = keep[buffer, : count * capacity]
            if training.has_kernels:
                call = self._call(i, keys, keep)._replace(offsets=offsets)
                cuda_places.prepare(call, self._terms_in(i, buffer), token_bags, count)

    def _gather(self, buffer: int, first: int, count: int, capacity: int) -> None:
        """Collect documents, keys and labels."""
        training, n = self.training, self.training.batch_size
        keys = self._keys[buffer, : count * capacity]
        token_bags = self._token_bags[buffer, : count * capacity]
        offsets, shifts = self.offsets[buffer], self.shifts[buffer]
        if not training.cuda:  # there, keys of no document are read too
            keys.zero_()
        tile = min(triton.next_power_of_2(n), MAX_DOCUMENTS)
        with device_of(keys):
            triton_batches.assemble[(count,)](
                *(training.starts, training.lengths, training.labels, training.weights),
                *(offsets, shifts, self.labels[buffer], self.weights[buffer]),
                *(first, n),
                T=tile,
                num_warps=max(1, min(tile // 256, 16)),
            )
            parts = max(1, min(triton.cdiv(capacity, n * KEYS), 64))
            triton_batches.gather_keys[(n, parts, count)](
                training.keys, offsets, shifts, keys, token_bags, capacity, n, parts, T=KEYS
            )
        if training.truth is not None:
            truth = self.truth[buffer, :count]
            truth[:] = training.truth[first * n : (first + count) * n].view_as(truth)

    def copy_batch(self, n: int, capacity: int, cursor: Tensor) -> Batch:
        """Copy n documents of the batch at the cursor."""
        size, one = self.training.batch_size, self.truth[0, 0]
        offsets = self._copy(self.offsets, size + 1, cursor)
        truth = self._copy(self.truth, one.numel(), cursor).view_as(one)
        weights = self._copy(self.weights, size, cursor)
        keys = self._copy(self._keys, capacity, cursor)
        return Batch(keys, offsets[: n + 1], truth[:n], weights[:n])

    def copy_places(
        self, i: int, keys: Tensor, cursor: Tensor
    ) -> tuple[Tensor | None, cuda_places.Places | None]:
        """Copy what member i needs of the batch with these keys: dropout mask and places."""
        keep, terms = self._keep[i], self._terms[i]
        if keep is not None:
            keep = self._copy(keep, len(keys), cursor)
        if terms is None:
            return keep, None
        call = self._call(i, keys, keep)
        size = cuda_places.terms_of(call, len(keys))
        copied = {
            name: self._copy(getattr(terms, name), size, cursor) for name in terms._fields[:-1]
        }
        counts = self._copy(terms.counts, cuda_places.CALL_COUNTS, cursor)
        return keep, cuda_places.prepared(call, cuda_places.TermBuffers(**copied, counts=counts))

    def _copy(self, source: Tensor, count: int, cursor: Tensor) -> Tensor:
        """A copy of the `count` numbers that the batch at the cursor has in `source`."""
        out = torch.empty(count, dtype=source.dtype, device=source.device)
        given = [t.view(torch.uint8) if t.dtype == torch.bool else t for t in (source, out)]
        buffer_size = source.numel() // BUFFERS
        with device_of(out):
            triton_batches.copy_batch[(triton.cdiv(count, COPIED),)](
                cursor, *given, self.calls, buffer_size, count, count, T=COPIED
            )
        return out

    def at_cursor(self, i: int, capacity: int, cursor: Tensor) -> tuple[Call, cuda_places.Places]:
        """For member i: a call with `capacity` keys, and places that kernels read at the cursor."""
        call, terms = self._call(i, self._keys[0, :capacity], None), self._terms[i]
        assert terms is not None
        return call, cuda_places.prepared(call, terms)._replace(cursor=cursor)

    def set_cursor(self, buffer: int, cursor: Tensor) -> None:
        """Point the cursor at the first batch of a buffer."""
        terms = self._terms[0]
        shift = 0 if terms is None else buffer * (len(terms.keys) // BUFFERS)
        with device_of(cursor):
            triton_batches.set_cursor[(1,)](cursor, buffer * self.calls, shift, num_warps=1)

    def stride(self, capacity: int) -> int:
        """How far apart the terms of two batches lie."""
        if self._terms[0] is None:
            return 0
        return cuda_places.terms_of(self._call(0, self._keys[0], None), capacity)

    def _call(self, i: int, keys: Tensor, keep: Tensor | None) -> Call:
        return self.training.members[i].network.call(keys, self.offsets[0, 0], keep)

    def _terms_in(self, i: int, buffer: int) -> cuda_places.TermBuffers:
        """Those of a member in one buffer."""
        terms = self._terms[i]
        assert terms is not None
        return cuda_places.TermBuffers(*(tensor.view(BUFFERS, -1)[buffer] for tensor in terms))
