"""Training steps that run without the host: a CUDA graph, replayed.

docs/how-it-works/gpu-step.md follows a step from start to end. In short: everything that a step
reads has a fixed address on the GPU: the documents in their order, the learning rates, the step
number. `nn/engine/prepare.py` prefetches the next batches on a side stream, which overlaps with the
steps. A step finds its batch at the `cursor`, so one graph serves all steps. (A second graph serves
batches of larger capacity.) The kernel of the shallow model reads the batch in place
(`nn/engine/fused.py`). For other models, the batch is first copied to a fixed buffer, and then goes
through the layers (`nn/engine/head.py`).
"""

import gc
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import I64
from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine import fused
from hashembed.nn.engine.head import Targets, learn
from hashembed.nn.engine.member import Member
from hashembed.nn.engine.prepare import BUFFERS, Batch, PreparedBatches, group_size
from hashembed.nn.gpu.kernels import layout
from hashembed.nn.gpu.places import Places
from hashembed.nn.gpu.precompile import precompiling
from hashembed.nn.gpu.rows import update_terms
from hashembed.nn.gpu.tiles import INTERPRETED, device_of, on_stream
from hashembed.nn.optim.base import RowOptimizer

_TILE = 64 if INTERPRETED else 1024
STEP, PREPARE = -1, 0  # priorities of streams: steps come first
MAX_GROUP = 2 if INTERPRETED else 64  # batches that are prepared at a time

# Streams of one training are used again by the next: PyTorch keeps memory for the stream it was
# used on.
_streams: dict[tuple[torch.device, int], list[torch.cuda.Stream]] = defaultdict(list)


class _MemberStreams(NamedTuple):
    """The streams of one member. Updates that do not depend on each other overlap."""

    main: torch.cuda.Stream | None  # its steps, if several members train; else the current stream
    side: torch.cuda.Stream  # long rows of E; or, without the fused kernel, all rows of E
    P_rows: torch.cuda.Stream | None  # rows of P, with the fused kernel
    layers: torch.cuda.Stream  # all other layers


class Steps:
    """Steps of one or several models on the same batches.

    Args:
        members: the models, on one device.
        keys: of all documents, on that device.
        batch_size: documents in a batch.
        tokens: most tokens of each step.
        longest: most tokens of a document.
        streamed: whether `keys` is a buffer that keys pass through, instead of all keys.
    """

    def __init__(
        self,
        members: Sequence[Member],
        keys: Tensor,
        batch_size: int,
        tokens: I64,
        longest: int,
        streamed: bool = False,
    ) -> None:
        self._members = [weakref.ref(member) for member in members]  # a member holds its steps
        self.keys, self.batch_size, self.longest = keys, batch_size, longest
        self.max_steps, self.streamed, self.device = len(tokens), streamed, keys.device
        self.versions = [member.version for member in members]
        self.cuda = self.device.type == "cuda"
        self.shallow = (self.cuda or INTERPRETED) and fused.suits(members, batch_size)
        self.has_kernels = self.cuda or self.shallow
        self._allocate(members)
        self._make_batches(tokens)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by capacity
        self._seen: set[int] = set()
        self._pool = torch.cuda.graph_pool_handle() if self.cuda else None
        self._streams: list[_MemberStreams] = []
        self.copy_stream: torch.cuda.Stream | None = None  # copies keys, if they are streamed
        if self.cuda:
            self._make_streams(len(members))
            self._precompile()

    def _precompile(self) -> None:
        """Compile all kernels of a step at once."""
        capacity = self.capacities[0]
        with precompiling(self.device):
            self._begin()
            for buffer in range(BUFFERS):  # their alignment may differ
                self._batches.fill(buffer, 0, 1, capacity)
            self._batches.set_cursor(0, self.cursor)
            if self.shallow:
                for i, member in enumerate(self.members):
                    self._rehearse_fused(i, member, capacity)
            self._advance(capacity)

    @torch.no_grad()
    def _rehearse_fused(self, i: int, member: Member, capacity: int) -> None:
        """Launch the kernels of a member's step and of its scores."""
        found = self._learn_fused(i, capacity)
        rows, bag = member.optimizers[0], member.network.bag
        assert isinstance(rows, RowOptimizer)
        for table, terms in ((bag.importance, found.P_terms), (bag.weight, found.E_terms)):
            if table is not None and terms is not None:
                update_terms(terms, rows.rehearse(table, self.finite[i]))
        member.network.vectors(self.keys[:1], self._batches.offsets[0, 0, :2])

    def _allocate(self, members: Sequence[Member]) -> None:
        """Memory for all documents, in the order of training, and for the counters of a step."""
        documents, single = self.max_steps * self.batch_size, torch.float32

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        self.starts, self.lengths = empty(documents), empty(documents)
        self.weights = empty(documents, dtype=single)
        self.rates = empty(self.max_steps + 1, dtype=single)
        self.losses = empty(len(members), documents, dtype=single)
        self.labels: Tensor | None = None
        self.truth: Tensor | None = None
        if members[0].multilabel:
            self.truth = empty(documents, members[0].num_classes, dtype=torch.bool)
        else:
            self.labels = empty(documents)
        self.step, self.steps_before, self.cursor = empty(), empty(), empty(layout.CURSOR.value)
        self.finite = empty(len(members), dtype=torch.int32)
        self.rate = empty(len(members), dtype=single)

    def _make_batches(self, tokens: I64) -> None:
        """Choose the capacity that most groups of batches need, and the one that all need."""
        most = min(MAX_GROUP, self.max_steps)
        largest = rounded(int(tokens.max()))
        calls = most
        if self.has_kernels:
            calls = group_size(self.members, largest, most, self.device)
        groups = [group.max() for group in _split(tokens, calls)]
        self.capacities = rounded(int(np.quantile(groups, 0.9))), largest
        self._batches, self._buffer = PreparedBatches(self, calls), 0
        self._read: list[torch.cuda.Event | None] = [None] * BUFFERS  # a buffer may be filled again

    @property
    def members(self) -> list[Member]:
        """The models."""
        found = [member() for member in self._members]
        return [member for member in found if member is not None]

    def _make_streams(self, members: int) -> None:
        taken = {STEP: 0, PREPARE: 0}

        def take(priority: int = STEP) -> torch.cuda.Stream:
            made = _streams[self.device, priority]
            if len(made) == taken[priority]:
                made.append(torch.cuda.Stream(self.device, priority))  # type: ignore[no-untyped-call]
            taken[priority] += 1
            return made[taken[priority] - 1]

        self._capture_stream = take()
        for _ in range(members):
            main = take() if members > 1 else None
            side, P_rows = take(), take() if self.shallow else None
            self._streams.append(_MemberStreams(main, side, P_rows, layers=take()))
        self._prepare_stream = take(PREPARE)
        if self.streamed:
            self.copy_stream = take(PREPARE)

    def fits(
        self, members: Sequence[Member], keys: Tensor, batch_size: int, tokens: I64, longest: int
    ) -> bool:
        """Whether these steps can be run here too."""
        return (
            keys is self.keys
            and batch_size == self.batch_size
            and len(tokens) <= self.max_steps
            and int(tokens.max()) <= self.capacities[1]
            and longest <= self.longest
            and len(members) == len(self.members)
            and all(a is b for a, b in zip(members, self.members, strict=True))
            and self.versions == [member.version for member in members]
        )

    def begin(self, documents: int, steps_before: int) -> None:
        """Start a training. So many documents are in place, after `steps_before` earlier steps."""
        self.lengths[documents:].zero_()
        self.weights[documents:].zero_()
        if self.labels is not None:
            self.labels[documents:].zero_()
        self.steps_before.fill_(steps_before)
        self._begin()

    def _begin(self) -> None:
        with device_of(self.keys):
            triton_batches.begin[(1,)](*self._counters(), num_warps=1, MEMBERS=len(self._members))

    def _counters(self) -> tuple[Tensor, ...]:
        return self.rates, self.step, self.finite, self.rate

    def run(
        self, first: int, tokens: I64, documents: int, copied: torch.cuda.Event | None = None
    ) -> torch.cuda.Event | None:
        """Run steps first, first + 1, ... with so many tokens each, of `documents` in all.

        The host does not wait for them. copied: their keys are then on the GPU, if they do not come
        on the current stream. -> the event after which their keys are no longer needed.
        """
        calls, n = self._batches.calls, self.batch_size
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        if copied is not None:
            self._prepare_stream.wait_event(copied)
        elif here is not None:
            self._prepare_stream.wait_stream(here)
        groups = _split(tokens, calls, 1 if first == 0 else calls)
        small, large = self.capacities
        capacities = [large if int(group.max()) > small else small for group in groups]
        ready = self._prepare(first, len(groups[0]), capacities[0])
        for i, group in enumerate(groups):
            buffer, was_ready, following = self._buffer, ready, first + len(group)
            self._buffer = 1 - buffer
            if i + 1 < len(groups):
                ready = self._prepare(following, len(groups[i + 1]), capacities[i + 1])
            if here is not None and was_ready is not None:
                here.wait_event(was_ready)
            self._batches.set_cursor(buffer, self.cursor)
            for number in range(len(group)):
                left = documents - (first + number) * n
                self._run_one(min(n, left), capacities[i])
            if here is not None:
                self._read[buffer] = here.record_event()
            first = following
        return ready

    def _prepare(self, first: int, count: int, capacity: int) -> torch.cuda.Event | None:
        """Prepare batches in the buffer that is next -> an event, when they are ready."""
        buffer = self._buffer
        if not self.cuda:
            self._batches.fill(buffer, first, count, capacity)
            return None
        stream, read = self._prepare_stream, self._read[buffer]
        if read is not None:
            stream.wait_event(read)
        with torch.cuda.stream(stream):
            self._batches.fill(buffer, first, count, capacity)
            ready: torch.cuda.Event = stream.record_event()
            return ready

    def _run_one(self, documents: int, capacity: int) -> None:
        # In the fused kernel, documents that do not exist have weight 0.
        n = self.batch_size if self.shallow else documents
        if n != self.batch_size or not self.cuda:
            self._step(n, capacity)
        elif capacity in self._graphs:
            self._graphs[capacity].replay()
        elif capacity in self._seen:
            self._graphs[capacity] = self._capture(n, capacity)
            self._graphs[capacity].replay()
        else:  # the first step compiles kernels and makes the state of the optimizers
            self._seen.add(capacity)
            self._step(n, capacity)

    def _capture(self, n: int, capacity: int) -> torch.cuda.CUDAGraph:
        """A graph of a step.

        `torch.cuda.graph` would first return all cached memory to the driver. That, and allocating
        it again, takes longer than many steps.
        """
        graph, stream = torch.cuda.CUDAGraph(), self._capture_stream
        free, total = torch.cuda.mem_get_info(self.device)
        if free < total // 8:  # during a capture no memory can be returned
            torch.cuda.empty_cache()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with _no_garbage_collection(), torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool)
            try:
                self._step(n, capacity)
            finally:
                graph.capture_end()
        return graph

    def _step(self, n: int, capacity: int) -> None:
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        batch = None if self.shallow else self._batches.copy_batch(n, capacity, self.cursor)
        in_use = []  # until all streams have been waited for
        for i, member in enumerate(self.members):
            main = self._streams[i].main if self.cuda else None
            if here is not None and main is not None:
                main.wait_stream(here)
            with on_stream(main):
                member.set_rate(self.rate[i])
                if batch is None:
                    self._train_fused(i, capacity)
                else:
                    in_use.append(self._train(i, batch))
        if here is not None:
            for stream in (stream for streams in self._streams for stream in streams):
                if stream is not None:
                    here.wait_stream(stream)
        self._advance(capacity)

    def _advance(self, capacity: int) -> None:
        """Point to the next step and its batch."""
        with device_of(self.keys):
            triton_batches.advance[(1,)](
                *self._counters(),
                self.cursor,
                self._batches.stride(capacity),
                MEMBERS=len(self._members),
                num_warps=1,
            )

    def _learn_fused(self, i: int, capacity: int) -> fused.Gradients:
        """The gradients of one member's step by the fused kernel."""
        model, batches = self.members[i], self._batches
        rows = model.optimizers[0]
        assert isinstance(rows, RowOptimizer)
        documents = fused.Documents(
            batches.offsets, batches.labels, batches.weights, self.batch_size, self.longest
        )
        record = fused.LossRecord(self.step, self.losses[i], self.finite[i])
        call, places = batches.at_cursor(i, capacity, self.cursor)
        scale = model.scale(self.batch_size)
        return fused.learn(model.network, documents, record, call, places, rows.rule_of, scale)

    def _train_fused(self, i: int, capacity: int) -> None:
        """One member's step by the fused kernel."""
        model, finite = self.members[i], self.finite[i]
        rows, bag, output = model.optimizers[0], model.network.bag, model.network.output
        assert isinstance(rows, RowOptimizer)
        found = self._learn_fused(i, capacity)
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        side, P_stream, layer_stream = None, None, None
        if here is not None:
            _, side, P_stream, layer_stream = self._streams[i]
            for stream in (P_stream, layer_stream, side):
                assert stream is not None
                stream.wait_stream(here)
                for tensor in found.tensors:
                    tensor.record_stream(stream)
        if found.P_terms is not None and bag.importance is not None:
            with on_stream(P_stream), rows.stepping(bag.importance, finite) as rule:
                update_terms(found.P_terms, rule)
        with rows.stepping(bag.weight, finite) as rule:
            if here is not None and layer_stream is not None:
                layer_stream.wait_stream(here)  # the step may have set the rate to 0
            update_terms(found.E_terms, rule, side_stream=side)
        with on_stream(layer_stream):
            grads, size = found.layer_grads.sum(0), output.weight.numel()
            output.weight.grad = grads[:size].view_as(output.weight)
            output.bias.grad = grads[size:]
            model.update(finite)  # the layers; the tables have no gradients

    def _train(self, i: int, batch: Batch) -> tuple[Tensor | None, Places | None]:
        """One member's step through the layers -> memory that its streams still read."""
        model, finite = self.members[i], self.finite[i]
        keep, places = self._batches.copy_places(i, batch.keys, self.cursor)
        streams = self._streams[i] if self.cuda else None
        if streams is not None and places is not None:
            streams.layers.wait_stream(torch.cuda.current_stream(self.device))
            writable = torch.cuda.Event()  # type: ignore[no-untyped-call]
            places = places._replace(side_stream=streams.side, writable=writable)
        vectors = model.network.vectors(batch.keys, batch.offsets, keep, places)

        def record(losses: Tensor) -> None:
            self._record_losses(i, losses)
            if places is not None and places.writable is not None:
                places.writable.record(torch.cuda.current_stream(self.device))

        targets = Targets(batch.truth, batch.weights, model.scale(self.batch_size), finite)
        learn(model, vectors, targets, record, None if streams is None else streams.layers)
        return keep, places

    def _record_losses(self, i: int, losses: Tensor) -> None:
        """Keep the losses (n,) of a member; from then on its rate is final."""
        with device_of(losses):
            triton_batches.record_losses[(1,)](
                losses,
                self.step,
                self.finite[i],
                self.rate[i],
                self.losses[i],
                len(losses),
                self.batch_size,
                T=_TILE,
            )


def _split(tokens: I64, most: int, size: int = 1) -> list[I64]:
    """Groups of 1, 2, 4, ... and then of `most` steps: the first step starts early."""
    ends = [0]
    while ends[-1] < len(tokens):
        ends.append(ends[-1] + min(size, most))
        size *= 2
    return np.split(tokens, ends[1:-1])


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Garbage may contain older graphs; freeing one during a capture would spoil it."""
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
