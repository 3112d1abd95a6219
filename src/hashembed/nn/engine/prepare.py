"""Batches made ahead of their steps: gathered on the GPU, and sorted, several at a time."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine.batches import free_memory
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.rows import INTERPRETED, device_of

MOST_DOCUMENTS = 64 if INTERPRETED else 4096  # that `assemble` takes at a time
KEYS = 8 if INTERPRETED else 128  # that `gather_keys` takes at a time
TAKEN = 64 if INTERPRETED else 1024  # numbers that `take` copies at a time
MOST_PAIRS = 1 << 24  # that are sorted at a time; more are not faster
BYTES = 60  # that a key takes here, with all that is found out about it


def how_many(members: Sequence[Any], room: int, most: int, device: torch.device) -> int:
    """Batches of `room` tokens, for these models, to make at a time."""
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    calls = [member.network.call(nothing, None, None) for member in members]
    pairs = [max(1, cuda_places.keys_of(call, room)) for call in calls]
    fitting = [most, MOST_PAIRS // max(pairs)]
    fitting += [cuda_places.INT32 // cuda_places.span(call) for call in calls]
    if device.type == "cuda":
        fitting.append(free_memory(device) // 8 // (2 * BYTES * sum(pairs)))
    return max(1, min(fitting))


class Ahead:
    """The batches of the next steps, in two halves: one is worked on while the other is filled.

    Args:
        steps: the `Steps` whose documents they are of.
        calls: batches in a half.
    """

    def __init__(self, steps: Any, calls: int) -> None:
        self.steps, self.calls = weakref.proxy(steps), calls
        n, device, most = steps.batch_size, steps.device, steps.rooms[1]

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(2, calls, *shape, dtype=dtype, device=device)

        self.offsets, self.shifts, self.labels = empty(n + 1), empty(n), empty(n)
        self.weights = empty(n, dtype=torch.float32)
        self.truth = self.labels
        if steps.truth is not None:
            self.truth = empty(n, steps.truth.shape[1], dtype=torch.bool)
        self._keys = empty(most).view(2, -1)
        self._owners = empty(most, dtype=torch.int32).view(2, -1)
        self._keep = [
            empty(most, dtype=torch.bool).view(2, -1) if member.network.dropout else None
            for member in steps.members
        ]
        self._rooms: list[cuda_places.Room | None] = [None for _ in steps.members]
        if steps.by_kernels:
            for i in range(len(self._rooms)):
                call = self._call(i, self._keys[0, :most], None)
                self._rooms[i] = cuda_places.make_room(call, calls, 2)

    def fill(self, half: int, first: int, count: int, room: int) -> None:
        """Make the batches of so many steps from `first` on, each in so much room."""
        steps, n = self.steps, self.steps.batch_size
        keys, owners = self._keys[half, : count * room], self._owners[half, : count * room]
        offsets, shifts = self.offsets[half], self.shifts[half]
        if not steps.cuda:  # there, keys of no document are looked at
            keys.zero_()
        tile = min(triton.next_power_of_2(n), MOST_DOCUMENTS)
        with device_of(keys):
            triton_batches.assemble[(count,)](
                steps.starts,
                steps.lengths,
                steps.labels,
                steps.weights,
                offsets,
                shifts,
                self.labels[half],
                self.weights[half],
                first,
                n,
                T=tile,
                num_warps=max(1, min(tile // 256, 16)),
            )
            parts = max(1, min(triton.cdiv(room, n * KEYS), 64))
            triton_batches.gather_keys[(n, parts, count)](
                steps.keys, offsets, shifts, keys, owners, room, n, parts, T=KEYS
            )
        if steps.truth is not None:
            documents = slice(first * n, (first + count) * n)
            self.truth[half, :count] = steps.truth[documents].view_as(self.truth[half, :count])
        for i, member in enumerate(steps.members):
            keep = self._keep[i]
            if keep is not None:
                for number in range(count):
                    drawn = member.kept(room, steps.before + first + number)
                    keep[half, number * room : (number + 1) * room] = drawn
                keep = keep[half, : count * room]
            if steps.by_kernels:
                call = self._call(i, keys, keep)._replace(offsets=offsets[:count].view(-1))
                cuda_places.prepare(call, self._half(i, half), owners, count)

    def take_batch(self, n: int, room: int, turn: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the batch whose turn it is, n documents: keys, offsets, labels or truth, weights."""
        size, one = self.steps.batch_size, self.truth[0, 0]
        offsets = self._take(self.offsets, size + 1, turn)
        truth = self._take(self.truth, one.numel(), turn).view_as(one)
        weights = self._take(self.weights, size, turn)
        return self._take(self._keys, room, turn), offsets[: n + 1], truth[:n], weights[:n]

    def take_places(
        self, i: int, keys: Tensor, turn: Tensor
    ) -> tuple[Tensor | None, cuda_places.Places | None]:
        """Of a member and these keys: what the dropout keeps, and places."""
        keep, room = self._keep[i], self._rooms[i]
        if keep is not None:
            keep = self._take(keep, len(keys), turn)
        if room is None:
            return keep, None
        call = self._call(i, keys, keep)
        size = cuda_places.keys_of(call, len(keys))
        taken = [self._take(tensor, size, turn) for tensor in room[:-1]]
        taken.append(self._take(room.found, cuda_places.NUMBERS, turn))
        return keep, cuda_places.prepared(call, cuda_places.Room(*taken))

    def _take(self, source: Tensor, count: int, turn: Tensor) -> Tensor:
        """A copy of so many numbers, those of the batch whose turn it is."""
        out = torch.empty(count, dtype=source.dtype, device=source.device)
        given = [t.view(torch.uint8) if t.dtype == torch.bool else t for t in (source, out)]
        half = source.numel() // 2
        with device_of(out):
            triton_batches.take[(triton.cdiv(count, TAKEN),)](
                turn, *given, self.calls, half, count, count, T=TAKEN
            )
        return out

    def on_turn(self, i: int, room: int, turn: Tensor) -> tuple[Call, cuda_places.Places]:
        """Of a member and the batch whose turn it will be: a call with as many keys, and places."""
        call, places = self._call(i, self._keys[0, :room], None), self._rooms[i]
        assert places is not None
        return call, cuda_places.prepared(call, places)._replace(turn=turn)

    def take_turns(self, half: int, turn: Tensor) -> None:
        """From here on it is the turn of the batches in this half."""
        places = self._rooms[0]
        shift = 0 if places is None else half * (len(places.keys) // 2)
        with device_of(turn):
            triton_batches.take_turns[(1,)](turn, half * self.calls, shift, num_warps=1)

    def stride(self, room: int) -> int:
        """How far the results of two batches lie apart."""
        return (
            cuda_places.keys_of(self._call(0, self._keys[0], None), room) if self._rooms[0] else 0
        )

    def _call(self, i: int, keys: Tensor, keep: Tensor | None) -> Call:
        network = self.steps.members[i].network
        call: Call = network.call(keys, self.offsets[0, 0], keep)
        return call

    def _half(self, i: int, half: int) -> cuda_places.Room:
        """Those results of a member."""
        room = self._rooms[i]
        assert room is not None
        parts = (tensor.view(2, -1)[half] for tensor in room)
        return cuda_places.Room(*parts)
