"""The steps of a chunk: launches of the kernels, recorded in a CUDA graph and replayed.

    one stream                                      the other
    embed_words, and mean_inputs with CBOW
    learn_negatives                                 learn_pairs
    sum_gradients, update_buckets, update_weights   update_outputs

The streams wait for each other after each line.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from hashembed.nn.gpu.precompile import precompiling
from hashembed.nn.gpu.tiles import INTERPRETED, cdiv, device_of, next_power_of_2, on_stream
from hashembed.vectors.arrays import GROUP, NEGATIVES
from hashembed.vectors.gpu import step_kernels as triton_steps
from hashembed.vectors.gpu.arrays import (
    TILE,
    TILES,
    ChunkPlan,
    DeviceTables,
    DeviceVocabulary,
    Results,
    Scratch,
    Sizes,
    make_scratch,
)
from hashembed.vectors.settings import Recipe

TOGETHER = 2 if INTERPRETED else 8  # batches in a graph
SHORT, SHORT_WEIGHTS = (2, 2) if INTERPRETED else (8, 8)  # most items of a short run
# tf32x3: three products on tensor cores, which have about the precision of float32.
PRECISION = "ieee" if INTERPRETED else "tf32x3"
_ROOM = 1.25  # memory for chunks that need more than the first


class _Shape(NamedTuple):
    """The form of a kernel's tiles and of its grid."""

    rows: int
    items: int
    programs: int
    long: int
    warps: int


def _row_shape(D: int, rows: int) -> _Shape:
    """For the update of rows of D numbers, of which a batch changes at most `rows`."""
    if INTERPRETED:
        return _Shape(16, 4, 3, 1, 1)
    R = max(1, min(1024 // D, 16))
    T = max(1, min(2048 // D, 32))
    return _Shape(R, T, 128 + min(cdiv(rows, R), 4096), 128, 4)


class Slot:
    """Memory with fixed addresses for the plan and the results of a chunk."""

    def __init__(self, plan: ChunkPlan, sizes: Sizes, room: float) -> None:
        self.plan = ChunkPlan(*(_like(part, room) for part in plan))
        batches = len(self.plan.rates)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=plan.rates.device)

        self.results = Results(
            weights=floats(len(self.plan.E_words)),
            dots=floats(len(self.plan.E_words)),
            errors=floats(len(self.plan.C_sources)),
            losses=floats(batches, 2, sizes.groups),
        )
        self.graph: torch.cuda.CUDAGraph | None = None

    def fits(self, plan: ChunkPlan) -> bool:
        """Whether the memory is enough for a plan."""
        return all(len(a) <= len(b) for a, b in zip(plan, self.plan, strict=True))

    def take(self, plan: ChunkPlan) -> None:
        """Copy a plan into the memory."""
        for source, target in zip(plan, self.plan, strict=True):
            target[: len(source)].copy_(source)
        self.results.losses.zero_()


def _like(part: Tensor, room: float) -> Tensor:
    return torch.zeros(int(len(part) * room) + 1, dtype=part.dtype, device=part.device)


class Steps:
    """Runs the steps of chunks on the tables."""

    def __init__(
        self, tables: DeviceTables, vocabulary: DeviceVocabulary, sizes: Sizes, recipe: Recipe
    ) -> None:
        self.tables, self.vocabulary, self.sizes, self.recipe = tables, vocabulary, sizes, recipe
        self.device = tables.E.device
        self.cuda = self.device.type == "cuda"
        self.scratch: Scratch = make_scratch(sizes, self.device)
        self.cursor = torch.zeros(1, dtype=torch.int32, device=self.device)
        self.slots: list[Slot | None] = [None, None]
        self._compiled = False
        self._side = self._new_stream()
        self._capturing = self._new_stream()

    def _new_stream(self) -> torch.cuda.Stream | None:
        if not self.cuda:
            return None
        return torch.cuda.Stream(self.device, -1)  # type: ignore[no-untyped-call]

    def prepare(self, number: int, plan: ChunkPlan) -> Slot:
        """Put a plan into a slot, whose earlier steps are done."""
        slot = self.slots[number]
        if slot is None or not slot.fits(plan):
            self.slots[number] = None  # its memory may be used again
            slot = Slot(plan, self.sizes, _ROOM if self.cuda else 1.0)
            self.slots[number] = slot
        slot.take(plan)
        return slot

    def run(self, slot: Slot, batches: int) -> None:
        """All steps of the plan in a slot, on the current stream. The host does not wait."""
        if self.cuda and slot.graph is None:
            slot.graph = self._capture(slot)
        self.cursor.zero_()
        for _ in range(cdiv(batches, TOGETHER)):
            if slot.graph is not None:
                slot.graph.replay()
            else:
                self._launch(slot)

    def _capture(self, slot: Slot) -> torch.cuda.CUDAGraph:
        """A graph of `TOGETHER` steps.

        `torch.cuda.graph` would first return all cached memory to the driver, which takes longer.
        """
        if not self._compiled:
            with precompiling(self.device):
                self._launch(slot)
            self._compiled = True
        graph, stream = torch.cuda.CUDAGraph(), self._capturing
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with _no_garbage_collection(), torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                self._launch(slot)
            finally:
                graph.capture_end()
        return graph

    def _launch(self, slot: Slot) -> None:
        with device_of(self.cursor):
            for step in range(TOGETHER):
                self._step(slot, step)
            triton_steps.advance[(1,)](self.cursor, COUNT=TOGETHER, num_warps=1)

    def _step(self, slot: Slot, step: int) -> None:
        """The kernels of one step."""
        here = torch.cuda.current_stream(self.device) if self.cuda else None
        self._embed(slot, step)
        if here is not None and self._side is not None:
            self._side.wait_stream(here)
        self._learn_negatives(slot, step)
        with on_stream(self._side):
            self._learn_pairs(slot, step)
        if here is not None and self._side is not None:
            here.wait_stream(self._side)
            self._side.wait_stream(here)
        with on_stream(self._side):
            self._update_outputs(slot, step)
        self._update_inputs(slot, step)
        if here is not None and self._side is not None:
            here.wait_stream(self._side)

    @property
    def _D(self) -> int:
        return next_power_of_2(self.sizes.width)

    def _hidden(self) -> Tensor:
        """The vectors that predict: of examples, or with skip-gram of words."""
        return self.scratch.hidden if self.sizes.cbow else self.scratch.vectors

    def _embed(self, slot: Slot, step: int) -> None:
        plan, scratch, sizes = slot.plan, self.scratch, self.sizes
        T = 8 if INTERPRETED else max(1, min(4096 // self._D, 32))
        programs = 3 if INTERPRETED else sizes.words
        triton_steps.embed_words[(programs,)](
            self.cursor, plan.word_starts, plan.word_firsts, plan.entry_begins, plan.E_slots,
            self.vocabulary.rows, self.vocabulary.buckets, self.tables.E, self.tables.P,
            slot.results.weights, scratch.scales, scratch.vectors, step, k=sizes.hashes,
            W=sizes.width, T=T, D=self._D, num_warps=4,
        )  # fmt: skip
        if sizes.cbow:
            triton_steps.mean_inputs[(sizes.batch,)](
                self.cursor, plan.example_starts, plan.input_begins, plan.input_words,
                scratch.vectors, scratch.hidden, step, W=sizes.width, T=self._items(),
                D=self._D, num_warps=self._warps(),
            )  # fmt: skip

    def _items(self) -> int:
        """Rows of a tile where a program has one example or word."""
        return 8 if INTERPRETED else max(1, min(2048 // self._D, 16))

    def _warps(self) -> int:
        """Of a program that has such a tile."""
        return 1 if self._D <= 64 else 2 if self._D == 128 else 4

    def _learn_pairs(self, slot: Slot, step: int) -> None:
        plan, sizes = slot.plan, self.sizes
        triton_steps.learn_pairs[(sizes.batch,)](
            self.cursor, plan.example_starts, plan.pair_begins, plan.pair_words, plan.pair_slots,
            plan.hidden_rows, self._hidden(), self.tables.C, slot.results.errors,
            self.scratch.gradients, slot.results.losses, step, GROUP=GROUP, GROUPS=sizes.groups,
            W=sizes.width, T=self._items(), D=self._D, num_warps=self._warps(),
        )  # fmt: skip

    def _learn_negatives(self, slot: Slot, step: int) -> None:
        plan, sizes = slot.plan, self.sizes
        triton_steps.learn_negatives[(cdiv(sizes.batch, TILE),)](
            self.cursor, plan.example_starts, plan.group_starts, plan.pair_begins,
            plan.hidden_rows, plan.hits, plan.negatives, self._hidden(), self.tables.C,
            self.scratch.gradients[1], self.scratch.negative_gradients, slot.results.losses, step,
            WEIGHT=self.recipe.negative_weight / NEGATIVES, GROUP=GROUP, GROUPS=sizes.groups,
            NEGATIVES=NEGATIVES, Q=TILE, W=sizes.width, D=min(self._D, 128), PRECISION=PRECISION,
            num_warps=4 if self._D < 128 else 8,
        )  # fmt: skip

    def _update_outputs(self, slot: Slot, step: int) -> None:
        plan, results, sizes = slot.plan, slot.results, self.sizes
        items = sizes.batch * 6 + sizes.groups * NEGATIVES
        shape = _row_shape(self._D, min(items, len(self.tables.C)))
        triton_steps.update_outputs[(shape.programs,)](
            self.cursor, plan.rates, *plan.of_C, plan.example_starts, plan.C_sources,
            results.errors, self._hidden(), self.scratch.negative_gradients, self.tables.C,
            self.tables.C_square, step, PART=1 / sizes.dim, DECAY=self.recipe.decay,
            NEGATIVES=NEGATIVES, TILES=TILES, Q=TILE, LONG=shape.long, W=sizes.width,
            R=shape.rows, T=shape.items, D=self._D, num_warps=shape.warps,
        )  # fmt: skip

    def _update_inputs(self, slot: Slot, step: int) -> None:
        plan, results, scratch, sizes = slot.plan, slot.results, self.scratch, self.sizes
        programs = 3 if INTERPRETED else sizes.words
        triton_steps.sum_gradients[(programs,)](
            self.cursor, plan.word_starts, plan.use_begins, plan.use_examples,
            plan.example_starts, plan.input_begins, scratch.gradients, scratch.word_gradients,
            step, BATCH=sizes.batch, W=sizes.width, T=self._items(), D=self._D,
            num_warps=self._warps(),
        )  # fmt: skip
        shape = _row_shape(self._D, len(self.tables.E))
        triton_steps.update_buckets[(shape.programs,)](
            self.cursor, plan.rates, *plan.of_E, plan.E_words, plan.P_slots, results.weights,
            scratch.scales, scratch.word_gradients, results.dots, self.tables.E,
            self.tables.E_square, step, PART=1 / sizes.dim, DECAY=self.recipe.decay,
            LONG=shape.long, W=sizes.width, R=shape.rows, T=shape.items, D=self._D,
            num_warps=shape.warps,
        )  # fmt: skip
        KP = next_power_of_2(sizes.hashes)
        weights = _weight_shape(KP)
        triton_steps.update_weights[(weights.programs,)](
            self.cursor, *plan.of_P, results.dots, self.tables.P, self.tables.P_square, step,
            RATE=self.recipe.importance_rate, LONG=weights.long, k=sizes.hashes, R=weights.rows,
            T=weights.items, KP=KP, num_warps=weights.warps,
        )  # fmt: skip


def _weight_shape(KP: int) -> _Shape:
    """For the update of P."""
    if INTERPRETED:
        return _Shape(16, 4, 3, 1, 1)
    return _Shape(64, max(1, 128 // KP), 64 + 512, 64, 2)


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
