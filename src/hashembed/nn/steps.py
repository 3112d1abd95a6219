"""Training steps that need nothing from the host: one CUDA graph, replayed.

All that a step reads has a fixed place on the GPU: documents in the order they come, rates, the
number of the step. While a step is under way the batch of the next is made from it, and sorted, on
a stream of its own (`Batch`): so there are two batches, in turn.
"""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from hashembed.nn import cuda, triton_batches
from hashembed.nn.cuda_rows import INTERPRETED, device_of

Model = Any  # a `DeepModel`; it is made of these steps

WIDEST = 255  # vectors that `softmax_head` takes
MOST_SLOPES = 1 << 14  # of an output layer, that each program of it adds up by itself
MOST_SUMS = 1 << 26  # of all programs
MOST_DOCUMENTS = 64 if INTERPRETED else 4096  # that `assemble` takes at a time
KEYS = 8 if INTERPRETED else 128  # that `gather_keys` takes at a time
_TILE = 64 if INTERPRETED else 1024


class Steps:
    """Steps of one or several models on the same batches.

    Args:
        members: the models, on one device.
        keys: of all documents, on that device.
        batch_size: documents in a batch.
        steps: at most so many in one call of `run`.
        tokens: (usually, at most) so many keys in a batch. Batches have room for the one or the
            other; what is left counts for nothing.
        streamed: whether `keys` are a place that keys pass through, instead of all there are.
    """

    def __init__(
        self,
        members: Sequence[Model],
        keys: Tensor,
        batch_size: int,
        steps: int,
        tokens: tuple[int, int],
        streamed: bool = False,
    ) -> None:
        self._members = [weakref.ref(member) for member in members]  # they hold these steps
        self.keys, self.batch_size = keys, batch_size
        self.max_steps, self.rooms = steps, (rounded(tokens[0]), rounded(tokens[1]))
        self.streamed, self.device = streamed, members[0].device
        self.versions = [member.version for member in members]
        self.cuda = self.device.type == "cuda"
        documents = (steps + 1) * batch_size  # behind the last step a batch of empty ones

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        single = torch.float32
        # Of all documents, in order.
        self.starts, self.lengths = empty(documents), empty(documents)
        self.weights = empty(documents, dtype=single)
        self.rates = empty(steps, dtype=single)
        self.losses = empty(len(members), documents, dtype=single)
        self.labels = self.truth = None
        if members[0].multilabel:
            self.truth = empty(documents, members[0].num_classes, dtype=torch.bool)
        else:
            self.labels = empty(documents)
        # Of one step.
        self.step, self.before = empty(), empty()
        self.fine = empty(len(members), dtype=torch.int32)
        self.rate = empty(len(members), dtype=single)
        self._batches = Batch(self), Batch(self)
        self._turn, self._ready = 0, False
        self._graphs: dict[tuple[int, int, int], torch.cuda.CUDAGraph] = {}
        self._seen: set[tuple[int, int, int]] = set()
        self._pool = torch.cuda.graph_pool_handle() if self.cuda else None
        self._capturing = self._make_streams(1)
        several = len(members) if len(members) > 1 else 0
        self._streams = self._make_streams(several)  # of members
        self._beside = self._make_streams(len(members))  # where E's gradients are added up
        # Small kernels come first: behind large ones they would wait for a place on the GPU.
        self._small = self._make_streams(len(members), priority=-1)  # updates of other layers
        self._aside = self._make_streams(1 + several, priority=-1)  # what makes the next batch

    @property
    def members(self) -> list[Model]:
        """The models."""
        return [member() for member in self._members]

    def _make_streams(self, count: int, priority: int = 0) -> list[torch.cuda.Stream]:
        if not self.cuda:
            return []
        return [torch.cuda.Stream(self.device, priority) for _ in range(count)]  # type: ignore[no-untyped-call]

    def fits(
        self, members: Sequence[Model], keys: Tensor, batch_size: int, steps: int, tokens: int
    ) -> bool:
        """Whether these steps can be run here too."""
        return (
            keys is self.keys
            and batch_size == self.batch_size
            and steps <= self.max_steps
            and tokens <= self.rooms[1]
            and len(members) == len(self.members)
            and all(a is b for a, b in zip(members, self.members, strict=True))
            and self.versions == [member.version for member in members]
        )

    def begin(self, documents: int, before: int) -> None:
        """So many documents are in place, after `before` steps in the life of the models."""
        self.lengths[documents:].zero_()
        self.step.zero_()
        self.before.fill_(before)
        self.fine.fill_(1)
        self._turn = 0

    def refill(self) -> None:
        """Other keys are in place: what was made ahead is void."""
        self._ready = False

    def run(self, documents: int, tokens: int, next_tokens: int) -> None:
        """The next step, on so many documents that have so many keys; the host does not wait."""
        room, next_room = self._room(tokens), self._room(next_tokens)
        if not self._ready:
            self._batches[self._turn].make(0, room)
            self._ready = True
        case = room, next_room, self._turn
        if documents != self.batch_size or not self.cuda:
            self._step(documents, *case)
        elif case in self._graphs:
            self._graphs[case].replay()
        elif case in self._seen:
            graph = torch.cuda.CUDAGraph()
            stream = self._capturing[0]  # torch's own may be on another device
            with _undisturbed(), torch.cuda.graph(graph, pool=self._pool, stream=stream):
                self._step(documents, *case)
            self._graphs[case] = graph
            graph.replay()
        else:  # the first one compiles kernels and makes the optimizers' state
            self._seen.add(case)
            self._step(documents, *case)
        self._turn = 1 - self._turn

    def _room(self, tokens: int) -> int:
        return self.rooms[0] if tokens <= self.rooms[0] else self.rooms[1]

    def _step(self, n: int, room: int, next_room: int, turn: int) -> None:
        batch, following = self._batches[turn], self._batches[1 - turn]
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        with device_of(self.keys):
            triton_batches.begin[(1,)](
                self.rates, self.step, self.fine, self.rate, MEMBERS=len(self._members), num_warps=1
            )
        if here is not None:
            self._aside[0].wait_stream(here)
        with torch.cuda.stream(self._aside[0]) if self.cuda else nullcontext():
            following.make(1, next_room)
        for i in range(len(self._members)):
            if here is not None and self._streams:
                self._streams[i].wait_stream(here)
            with torch.cuda.stream(self._streams[i]) if self._streams else nullcontext():
                self._train(i, n, room, batch)
        if here is not None:
            for stream in (*self._streams, *self._beside, *self._small, self._aside[0]):
                here.wait_stream(stream)
        with device_of(self.keys):
            triton_batches.advance[(1,)](self.step, num_warps=1)

    def _train(self, i: int, n: int, room: int, batch: "Batch") -> None:
        model, fine, rate = self.members[i], self.fine[i], self.rate[i]
        model.set_rate(rate)
        keys, offsets, keep, places = batch.inputs(i, n, room)
        small = self._small[i] if self.cuda else None
        if small is not None and places is not None:
            small.wait_stream(torch.cuda.current_stream(self.device))
            free = torch.cuda.Event()  # type: ignore[no-untyped-call]
            places = places._replace(beside=self._beside[i], free=free)
        vectors = model.network.vectors(keys, offsets, keep, places)

        def note(losses: Tensor) -> None:
            with device_of(losses):
                triton_batches.note[(1,)](
                    losses, self.step, fine, rate, self.losses[i], n, self.batch_size, T=_TILE
                )
            if places is not None and places.free is not None:
                places.free.record(torch.cuda.current_stream(self.device))

        truth, weights = batch.truth[:n], batch.weights[:n]
        learn(model, vectors, truth, weights, fine, model.scale(self.batch_size), note, small)


class Batch:
    """The documents of one step, and where they point."""

    def __init__(self, steps: Steps) -> None:
        self.steps = weakref.proxy(steps)
        size, device = steps.batch_size, steps.device
        kinds = (torch.int64, torch.int64, torch.int64, torch.float32)
        self.offsets, self.shifts, self.labels, self.weights = (
            torch.empty(size + 1, dtype=kind, device=device) for kind in kinds
        )
        self.keys = torch.empty(steps.rooms[1], dtype=torch.int64, device=device)
        self.owners = torch.empty(steps.rooms[1], dtype=torch.int32, device=device)
        self.truth = self.labels
        if steps.truth is not None:
            shape = size, steps.truth.shape[1]
            self.truth = torch.empty(shape, dtype=torch.bool, device=device)
        self.keep: list[Tensor | None] = [None for _ in steps.members]
        self.room: list[cuda.Room | None] = [None for _ in steps.members]

    def make(self, ahead: int, room: int) -> None:
        """The batch of the present step, or of the next, in so much room."""
        steps, n = self.steps, self.steps.batch_size
        keys, owners = self.keys[:room], self.owners[:room]
        if not steps.cuda:  # there, keys of no document are looked at
            keys.zero_()
        tile = min(triton.next_power_of_2(n), MOST_DOCUMENTS)
        with device_of(keys):
            triton_batches.assemble[(1,)](
                steps.starts,
                steps.lengths,
                steps.labels,
                steps.weights,
                steps.step,
                self.offsets,
                self.shifts,
                self.labels,
                self.weights,
                n,
                AHEAD=ahead,
                T=tile,
                num_warps=max(1, min(tile // 256, 16)),
            )
            parts = max(1, min(triton.cdiv(room, n * KEYS), 64))
            triton_batches.gather_keys[(n, parts)](
                steps.keys, self.offsets, self.shifts, keys, owners, room, parts, T=KEYS
            )
        if steps.truth is not None:
            step = (steps.step + ahead).view(1)
            chosen = steps.truth.view(steps.max_steps + 1, -1).index_select(0, step)
            self.truth.copy_(chosen.view_as(self.truth))
        aside = steps._aside[1:]
        here = torch.cuda.current_stream(steps.device) if aside else None
        for i in range(len(steps.members)):
            if here is not None:
                aside[i].wait_stream(here)
            with torch.cuda.stream(aside[i]) if aside else nullcontext():
                self._prepare(i, keys, owners, ahead)
        if here is not None:
            for stream in aside:
                here.wait_stream(stream)

    def _prepare(self, i: int, keys: Tensor, owners: Tensor, ahead: int) -> None:
        """What one member draws and sorts."""
        model, keep = self.steps.members[i], None
        if model.network.dropout:
            keep = model.kept(len(keys), self.steps.before + self.steps.step + ahead)
            if self.keep[i] is None:
                self.keep[i] = torch.empty(len(self.keys), dtype=torch.bool, device=keep.device)
            self.keep[i][: len(keep)].copy_(keep)  # type: ignore[index]
        if not self.steps.cuda:
            return
        call = model.network.call(keys, self.offsets, keep)
        if self.room[i] is None:
            self.room[i] = cuda.make_room(call._replace(keys=self.keys))
        cuda.prepare(call, self.room[i], owners)  # type: ignore[arg-type]

    def inputs(
        self, i: int, n: int, room: int
    ) -> tuple[Tensor, Tensor, Tensor | None, "cuda.Places | None"]:
        """Of one member: keys, offsets of n documents, what the dropout keeps, places."""
        keep, places = self.keep[i], None
        if keep is not None:
            keep = keep[:room]
        if self.steps.cuda:
            call = self.steps.members[i].network.call(self.keys[:room], self.offsets, keep)
            places = cuda.prepared(call, self.room[i])  # type: ignore[arg-type]
        return self.keys[:room], self.offsets[: n + 1], keep, places


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage is collected: older graphs may be in it, and to free them would spoil this one."""
    gc.collect()
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


def learn(
    model: Model,
    vectors: Tensor,
    truth: Tensor,
    weights: Tensor,
    fine: Tensor,
    scale: float,
    note: Callable[[Tensor], None],
    small: "torch.cuda.Stream | None" = None,
) -> None:
    """A batch's vectors (n, D) -> the backward pass and all updates.

    `note` is told the losses (n,) before anything is changed. `small`: a stream, for the caller to
    wait for, that may be used for what lies above the vectors.
    """
    network = model.network
    if model.multilabel or network.hidden or vectors.shape[1] > WIDEST:
        logits = network.layers(vectors)
        logits.register_hook(lambda slopes: torch.where(fine != 0, slopes, 0))
        losses = model.losses(logits, truth) * weights
        note(losses.detach())
        vectors.register_hook(lambda slopes: torch.where(fine != 0, slopes, 0))  # type: ignore[no-untyped-call]
        (losses.sum() * scale).backward()
        for name, p in network.named_parameters():
            if not name.startswith("bag.") and p.grad is not None:  # 0 times infinity is not 0
                p.grad = torch.where(fine != 0, p.grad, 0)
        model.update(fine)
        return
    W, bias, x = network.output.weight, network.output.bias, vectors.detach()
    losses, of_x, finish = softmax_head(x, W.detach(), bias.detach(), truth, weights, scale)
    if small is None:
        note(losses)
        W.grad, bias.grad = finish()
        vectors.backward(of_x)  # type: ignore[no-untyped-call]
        model.update(fine)
        return
    small.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(small):
        note(losses)
        W.grad, bias.grad = finish(small)
        model.update(fine)  # but for the tables
    vectors.backward(of_x)  # type: ignore[no-untyped-call]


def softmax_head(
    x: Tensor, W: Tensor, bias: Tensor, labels: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Callable[..., tuple[Tensor, Tensor]]]:
    """Cross entropy of x W' + bias for each document, its slopes for x, and a function.

    That gives the slopes for W and bias, on the present stream, which may be another one.
    """
    (n, d), C = x.shape, len(W)
    losses, of_x = x.new_empty(n), torch.empty_like(x)
    D = max(16, triton.next_power_of_2(d + 1))
    A = max(16, min(triton.next_power_of_2(C), 4096 // D))
    T = 16
    programs = triton.cdiv(n, T)
    wide = W.numel() > MOST_SLOPES or programs * W.numel() > MOST_SUMS
    slopes = x.new_empty(n, C) if wide else None
    sums = None if wide else x.new_empty(programs, W.numel() + C)
    with device_of(x):
        triton_batches.softmax_head[(programs,)](
            x, W, bias, labels, weights, losses, slopes, sums, of_x, n, C, scale, d=d, T=T, D=D, A=A
        )

    def finish(stream: "torch.cuda.Stream | None" = None) -> tuple[Tensor, Tensor]:
        for tensor in (x, losses, slopes, sums):
            if stream is not None and tensor is not None:
                tensor.record_stream(stream)
        if slopes is not None:
            sound = torch.where(losses.isfinite()[:, None], x, 0)
            return slopes.t() @ sound, slopes.sum(0)
        of_W, of_bias = sums.sum(0).split([W.numel(), C])  # type: ignore[union-attr]
        return of_W.view_as(W), of_bias

    return losses, of_x, finish
