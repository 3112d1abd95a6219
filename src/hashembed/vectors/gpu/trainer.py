"""Trains word vectors on a GPU: plans a chunk of batches while the steps of another run."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import F32
from hashembed.nn.gpu.tiles import on_stream
from hashembed.vectors.arrays import GROUP, Tables
from hashembed.vectors.gpu.arrays import Sizes, tables_on, vocabulary_on
from hashembed.vectors.gpu.pieces import Chunk, Pieces
from hashembed.vectors.gpu.planning import Limits, plan_chunk
from hashembed.vectors.gpu.steps import SHORT, SHORT_WEIGHTS, TOGETHER, Slot, Steps
from hashembed.vectors.training import (
    LossNotFiniteError,
    Trainer,
    VectorProgress,
)

Event = torch.cuda.Event | None


class _Running(NamedTuple):
    """A chunk whose steps are on their way."""

    chunk: Chunk
    losses: Tensor  # (batches, 2, groups), on the host when `done`
    done: Event


class GpuTrainer(Trainer):
    """`Trainer` on a GPU. Without one, under Triton's interpreter, the device is the CPU."""

    def __init__(self, *arguments: Any, device: str = "cuda", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())

    def train(self, on_progress: Callable[[VectorProgress], object] | None = None) -> list[float]:
        """All passes -> the mean loss of each. The tables are changed at the end."""
        if self.device.type != "cuda":
            return self._train(on_progress)
        with torch.cuda.device(self.device):
            try:
                return self._train(on_progress)
            finally:  # memory must not be used again before kernels have finished
                torch.cuda.synchronize(self.device)

    def _train(self, on_progress: Callable[[VectorProgress], object] | None) -> list[float]:
        report = _Report(self, on_progress)
        device, settings, k = self.device, self.settings, self.spec.num_hashes
        vocabulary, tables = vocabulary_on(self.vocabulary, device), tables_on(self.tables, device)
        cbow = settings.model == "cbow"
        around = 2 * settings.window if cbow else 0
        most_words = min(self.batch_size + around, len(self.vocabulary.limits))
        dim, width = settings.embedding_dim, self.tables.E.shape[1]
        sizes = Sizes(self.batch_size, most_words, dim, width, k, cbow)
        limits = Limits(
            self.spec.num_embeddings, self.spec.num_buckets, k, cbow, SHORT, SHORT_WEIGHTS, TOGETHER
        )
        steps = Steps(tables, vocabulary, sizes, self.recipe)
        streams = _Streams(device)
        pieces = Pieces(self.corpus.ids, self.keep, settings, self.batch_size)
        running: list[_Running] = []
        for number, chunk in enumerate(c for c in pieces.chunks() if len(c.rates)):
            with on_stream(streams.plan):
                plan = plan_chunk(chunk, vocabulary, limits, device)
                streams.wait_for_slot(number % 2)
                slot = steps.prepare(number % 2, plan)
                ready = streams.mark(streams.plan)
            with on_stream(streams.step):
                if streams.step is not None and ready is not None:
                    streams.step.wait_event(ready)
                steps.run(slot, len(chunk.rates))
                running.append(self._record(chunk, slot, streams))
                streams.used[number % 2] = running[-1].done
            if len(running) > 1:
                report.add(running.pop(0))
        for last in running:
            report.add(last)
        self._take_back(tables)
        return report.losses()

    @staticmethod
    def _record(chunk: Chunk, slot: Slot, streams: "_Streams") -> _Running:
        found = slot.results.losses[: len(chunk.rates)]
        if streams.step is None:
            return _Running(chunk, found.clone(), None)
        host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        host.copy_(found, non_blocking=True)
        return _Running(chunk, host, streams.mark(streams.step))

    def _take_back(self, tables: Any) -> None:
        """Copy the tables to where they came from."""
        assert isinstance(self.tables, Tables)
        for own, trained in zip(self.tables, tables, strict=True):
            np.copyto(own, trained.cpu().numpy())


class _Streams:
    """Steps have priority over the plan of the next chunk."""

    def __init__(self, device: torch.device) -> None:
        self.plan = self.step = None
        self.used: list[Event] = [None, None]  # the steps of a slot are done
        if device.type == "cuda":
            self.plan = torch.cuda.Stream(device, 0)  # type: ignore[no-untyped-call]
            self.step = torch.cuda.Stream(device, -1)  # type: ignore[no-untyped-call]
            for stream in (self.plan, self.step):
                stream.wait_stream(torch.cuda.current_stream(device))

    def wait_for_slot(self, number: int) -> None:
        """The plan stream waits until a slot can be filled again."""
        used = self.used[number]
        if self.plan is not None and used is not None:
            self.plan.wait_event(used)

    @staticmethod
    def mark(stream: torch.cuda.Stream | None) -> Event:
        """An event: all that the stream has now is done."""
        if stream is None:
            return None
        event: torch.cuda.Event = stream.record_event()
        return event


class _Report:
    """Losses and progress of chunks, in order."""

    def __init__(
        self, trainer: GpuTrainer, on_progress: Callable[[VectorProgress], object] | None
    ) -> None:
        self.settings, self.on_progress = trainer.settings, on_progress
        self.total = len(trainer.corpus.ids) * self.settings.passes
        self.start = time.monotonic()
        self.sums, self.steps = [0.0] * self.settings.passes, [0] * self.settings.passes

    def add(self, running: _Running) -> None:
        """Wait for a chunk."""
        if running.done is not None:
            running.done.synchronize()
        chunk, first = running.chunk, 0
        means = _means(running.losses.numpy(), np.diff(chunk.example_starts))
        if not np.isfinite(means).all():
            raise LossNotFiniteError(
                "the loss became infinite or not a number: choose a smaller learning_rate (found "
                f"{self.settings.rate_at(0):g})"
            )
        for piece in chunk.pieces:
            own = means[first : first + piece.batches]
            first += piece.batches
            self.sums[piece.epoch] += float(own.sum(dtype=np.float64))
            self.steps[piece.epoch] += len(own)
            if self.on_progress is not None and len(own):
                self._tell(piece.epoch, piece.done, float(own.mean()))

    def _tell(self, epoch: int, done: int, loss: float) -> None:
        assert self.on_progress is not None
        speed = done / max(time.monotonic() - self.start, 1e-9)
        left = (self.total - done) / speed
        passes = self.settings.passes
        self.on_progress(VectorProgress(epoch, passes, done, self.total, speed, left, loss))

    def losses(self) -> list[float]:
        """The mean loss of each pass."""
        return [s / max(n, 1) for s, n in zip(self.sums, self.steps, strict=True)]


def _means(losses: F32, examples: "np.ndarray[Any, np.dtype[np.int32]]") -> F32:
    """Losses (batches, 2, groups) of pairs and of negatives -> the mean of each batch."""
    groups = -(-examples // GROUP)
    means: F32 = losses.sum((1, 2)) / groups.astype(np.float32)
    return means
