"""Training steps that need nothing from the host: a CUDA graph, replayed.

All that a step reads has a fixed place on the GPU: documents in the order they come, rates, the
number of the step. The batches of some steps are made from it, and sorted, at once, on a stream of
their own, while those before them are under way (`nn/engine/prepare.py`).

A step finds its batch by its `turn`, so that one graph will do (and another for batches that need
more room): the kernels of the shallow model look where it lies (`nn/engine/fused.py`), for others
it is copied to one place first, and goes through the layers (`nn/engine/head.py`).
"""

import gc
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import I64
from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine import fused as cuda_shallow
from hashembed.nn.engine.head import Model, learn
from hashembed.nn.engine.prepare import Ahead, how_many
from hashembed.nn.gpu.rows import INTERPRETED, device_of, update_terms

_TILE = 64 if INTERPRETED else 1024
# Priorities of streams: the next batches are made where a step leaves room.
STEP, MAKING = -1, 0
AHEAD = 2 if INTERPRETED else 64  # batches that are made at a time, at most

# Those of one training serve the next: memory that was used on a stream is kept for that stream.
_streams: dict[tuple[torch.device, int], list[torch.cuda.Stream]] = defaultdict(list)


class Steps:
    """Steps of one or several models on the same batches.

    Args:
        members: the models, on one device.
        keys: of all documents, on that device.
        batch_size: documents in a batch.
        tokens: that each step may have.
        longest: tokens that a document may have.
        streamed: whether `keys` are a place that keys pass through, instead of all there are.
    """

    def __init__(
        self,
        members: Sequence[Model],
        keys: Tensor,
        batch_size: int,
        tokens: I64,
        longest: int,
        streamed: bool = False,
    ) -> None:
        self._members = [weakref.ref(member) for member in members]  # they hold these steps
        self.keys, self.batch_size, self.longest = keys, batch_size, longest
        self.max_steps, self.streamed, self.device = len(tokens), streamed, keys.device
        self.versions = [member.version for member in members]
        self.cuda = self.device.type == "cuda"
        by_kernel = cuda_shallow.suits(members, batch_size)
        self.shallow = (self.cuda or INTERPRETED) and by_kernel
        self.by_kernels = self.cuda or self.shallow
        documents = self.max_steps * batch_size

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        single = torch.float32
        # Of all documents, in order.
        self.starts, self.lengths = empty(documents), empty(documents)
        self.weights = empty(documents, dtype=single)
        self.rates = empty(self.max_steps + 1, dtype=single)
        self.losses = empty(len(members), documents, dtype=single)
        self.labels = self.truth = None
        if members[0].multilabel:
            self.truth = empty(documents, members[0].num_classes, dtype=torch.bool)
        else:
            self.labels = empty(documents)
        # Of one step.
        self.step, self.before, self.turn = empty(), empty(), empty(3)
        self.fine = empty(len(members), dtype=torch.int32)
        self.rate = empty(len(members), dtype=single)
        self._make_batches(tokens)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._seen: set[int] = set()
        self._pool = torch.cuda.graph_pool_handle() if self.cuda else None
        self._streams_taken = {STEP: 0, MAKING: 0}
        of_each = len(members)
        self._capturing = self._make_streams(1)
        self._streams = self._make_streams(of_each if of_each > 1 else 0)
        self._beside = self._make_streams(of_each)  # long rows of E; or all of E
        self._of_P = self._make_streams(of_each if self.shallow else 0)
        self._small = self._make_streams(of_each)  # updates of other layers
        self._aside = self._make_streams(1, MAKING)  # what makes the next batches
        self.copying = self._make_streams(int(streamed), MAKING)  # keys to the GPU

    def _make_batches(self, tokens: I64) -> None:
        """Room for most groups of batches, and room for all."""
        most = min(AHEAD, self.max_steps)
        largest = rounded(int(tokens.max()))
        calls = how_many(self.members, largest, most, self.device) if self.by_kernels else most
        groups = [group.max() for group in _split(tokens, calls)]
        self.rooms = rounded(int(np.quantile(groups, 0.9))), largest
        self._batches, self._half = Ahead(self, calls), 0
        self._used: list[Any] = [None, None]  # events: a half may be filled again

    @property
    def members(self) -> list[Model]:
        """The models."""
        return [member() for member in self._members]

    def _make_streams(self, count: int, priority: int = STEP) -> list[torch.cuda.Stream]:
        if not self.cuda:
            return []
        made, streams = _streams[self.device, priority], self._streams_taken
        first = streams[priority]
        while len(made) < first + count:
            made.append(torch.cuda.Stream(self.device, priority))  # type: ignore[no-untyped-call]
        streams[priority] += count
        return made[first : first + count]

    def fits(
        self, members: Sequence[Model], keys: Tensor, batch_size: int, tokens: I64, longest: int
    ) -> bool:
        """Whether these steps can be run here too."""
        return (
            keys is self.keys
            and batch_size == self.batch_size
            and len(tokens) <= self.max_steps
            and int(tokens.max()) <= self.rooms[1]
            and longest <= self.longest
            and len(members) == len(self.members)
            and all(a is b for a, b in zip(members, self.members, strict=True))
            and self.versions == [member.version for member in members]
        )

    def begin(self, documents: int, before: int) -> None:
        """So many documents are in place, after `before` steps in the life of the models."""
        self.lengths[documents:].zero_()
        self.weights[documents:].zero_()
        if self.labels is not None:
            self.labels[documents:].zero_()
        self.before.fill_(before)
        with device_of(self.keys):
            triton_batches.begin[(1,)](*self._counters(), num_warps=1, MEMBERS=len(self._members))

    def _counters(self) -> tuple[Tensor, ...]:
        return self.rates, self.step, self.fine, self.rate

    def run(self, first: int, tokens: I64, documents: int, there: Any = None) -> Any:
        """Steps from `first` on, with so many keys each, of so many documents in all.

        The host does not wait for them. `there`: an event, when their keys are on the GPU; if they
        do not come on the present stream. -> an event, when they are no longer needed.
        """
        calls, n = self._batches.calls, self.batch_size
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        if there is not None:
            self._aside[0].wait_event(there)
        elif here is not None:
            self._aside[0].wait_stream(here)
        groups = _split(tokens, calls, 1 if first == 0 else calls)
        rooms = [self.rooms[int(group.max()) > self.rooms[0]] for group in groups]
        ready = self._fill(first, len(groups[0]), rooms[0])
        for i, group in enumerate(groups):
            half, was_ready, following = self._half, ready, first + len(group)
            self._half = 1 - half
            if i + 1 < len(groups):
                ready = self._fill(following, len(groups[i + 1]), rooms[i + 1])
            if here is not None:
                here.wait_event(was_ready)
            self._batches.take_turns(half, self.turn)
            for number in range(len(group)):
                left = documents - (first + number) * n
                self._run_one(min(n, left), rooms[i])
            if here is not None:
                self._used[half] = here.record_event()
            first = following
        return ready

    def _fill(self, first: int, count: int, room: int) -> Any:
        """Make batches in the half whose turn it is -> an event, when they are ready."""
        half = self._half
        if not self.cuda:
            self._batches.fill(half, first, count, room)
            return None
        aside = self._aside[0]
        if self._used[half] is not None:
            aside.wait_event(self._used[half])
        with torch.cuda.stream(aside):
            self._batches.fill(half, first, count, room)
            return aside.record_event()

    def _run_one(self, documents: int, room: int) -> None:
        # Of a shallow model, documents that are not there weigh nothing.
        n = self.batch_size if self.shallow else documents
        if n != self.batch_size or not self.cuda:
            self._step(n, room)
        elif room in self._graphs:
            self._graphs[room].replay()
        elif room in self._seen:
            self._graphs[room] = self._capture(n, room)
            self._graphs[room].replay()
        else:  # the first one compiles kernels and makes the optimizers' state
            self._seen.add(room)
            self._step(n, room)

    def _capture(self, *step: int) -> torch.cuda.CUDAGraph:
        """A graph of a step. `torch.cuda.graph` would always give all spare memory back first: that
        takes longer than many steps, and to ask for it again as long.
        """
        graph, stream = torch.cuda.CUDAGraph(), self._capturing[0]
        free, total = torch.cuda.mem_get_info(self.device)
        if free < total // 8:  # in a capture no memory is given back
            torch.cuda.empty_cache()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with _undisturbed(), torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool)
            try:
                self._step(*step)
            finally:
                graph.capture_end()
        return graph

    def _step(self, n: int, room: int) -> None:
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        batch = None if self.shallow else self._batches.take_batch(n, room, self.turn)
        in_use = []  # until all streams have been waited for
        for i in range(len(self._members)):
            if here is not None and self._streams:
                self._streams[i].wait_stream(here)
            with torch.cuda.stream(self._streams[i]) if self._streams else nullcontext():
                self.members[i].set_rate(self.rate[i])
                if batch is None:
                    self._train_shallow(i, room)
                else:
                    in_use.append(self._train(i, batch))
        if here is not None:
            for stream in (*self._streams, *self._beside, *self._of_P, *self._small):
                here.wait_stream(stream)
        with device_of(self.keys):
            triton_batches.advance[(1,)](
                *self._counters(),
                self.turn,
                self._batches.stride(room),
                MEMBERS=len(self._members),
                num_warps=1,
            )

    def _note(self, i: int, losses: Tensor) -> None:
        """Keep the losses (n,) of a member; from then on its rate is final."""
        with device_of(losses):
            triton_batches.note[(1,)](
                losses,
                self.step,
                self.fine[i],
                self.rate[i],
                self.losses[i],
                len(losses),
                self.batch_size,
                T=_TILE,
            )

    def _train_shallow(self, i: int, room: int) -> None:
        model, batches, fine = self.members[i], self._batches, self.fine[i]
        rows, bag, output = model.optimizers[0], model.network.bag, model.network.output
        of_batches = (batches.offsets, batches.labels, batches.weights)
        documents = cuda_shallow.Documents(*of_batches, self.batch_size, self.longest)
        record = cuda_shallow.Record(self.step, self.losses[i], fine)
        call, places = batches.on_turn(i, room, self.turn)
        scale = model.scale(self.batch_size)
        found = cuda_shallow.learn(model, documents, record, call, places, rows.rule_of, scale)
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        of_P: Any = nullcontext()
        small: Any = nullcontext()
        beside = None
        if here is not None:
            beside = self._beside[i]
            of_P, small = (torch.cuda.stream(s) for s in (self._of_P[i], self._small[i]))
            for stream in (self._of_P[i], self._small[i], beside):
                stream.wait_stream(here)
                for tensor in found.tensors:
                    tensor.record_stream(stream)
        if found.of_P is not None:
            with of_P, rows.stepping(bag.importance, fine) as rule:
                update_terms(found.of_P, rule)
        with rows.stepping(bag.weight, fine) as rule:
            if here is not None:
                self._small[i].wait_stream(here)  # for the rate
            update_terms(found.of_E, rule, beside=beside)
        with small:
            slopes, size = found.sums.sum(0), output.weight.numel()
            output.weight.grad = slopes[:size].view_as(output.weight)
            output.bias.grad = slopes[size:]
            model.update(fine)  # but for the tables

    def _train(self, i: int, batch: tuple[Tensor, ...]) -> Any:
        model, fine, (keys, offsets, truth, weights) = self.members[i], self.fine[i], batch
        keep, places = self._batches.take_places(i, keys, self.turn)
        small = self._small[i] if self.cuda else None
        if small is not None and places is not None:
            small.wait_stream(torch.cuda.current_stream(self.device))
            free = torch.cuda.Event()  # type: ignore[no-untyped-call]
            places = places._replace(beside=self._beside[i], free=free)
        vectors = model.network.vectors(keys, offsets, keep, places)

        def note(losses: Tensor) -> None:
            self._note(i, losses)
            if places is not None and places.free is not None:
                places.free.record(torch.cuda.current_stream(self.device))

        learn(model, vectors, truth, weights, fine, model.scale(self.batch_size), note, small)
        return keep, places


def _split(tokens: I64, most: int, size: int = 1) -> list[I64]:
    """Groups of 1, 2, 4, ... and then of `most` steps: the first ones have to be waited for."""
    ends = [0]
    while ends[-1] < len(tokens):
        ends.append(ends[-1] + min(size, most))
        size *= 2
    return np.split(tokens, ends[1:-1])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage is collected: older graphs may be in it, and to free them would spoil this one."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def rounded(tokens: int) -> int:
    """The next larger of 8, 9, ... 15 times a power of 2."""
    unit = 1 << max((tokens - 1).bit_length() - 4, 0)
    return -(-tokens // unit) * unit
