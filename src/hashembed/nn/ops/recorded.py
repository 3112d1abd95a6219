"""Calls that repeat, recorded in CUDA graphs: the host starts two graphs instead of 40 kernels.

Where row optimizers update all tables of a layer in the backward pass, a call launches the same
kernels as the call before, if the sizes are the same. After a few such calls in a row the forward
pass and the backward pass are recorded, each in a graph. From then on a call copies its ids to
where the graph reads them, and the graph runs on the stream of the call.

A graph has memory of its own for what the backward pass needs. So one recorded call can be under
way at a time: from its forward pass to its backward pass, or until nobody can call that any more.
Meanwhile other calls go the ordinary way. Every call checks whether all that the graph was recorded
with is still the same: tables, state, numbers, stream. Otherwise it goes the ordinary way.
"""

import gc
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hashembed.nn.cpu.launch import Gradients, Wanted
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu.call import TENSORS, Call
from hashembed.nn.gpu.tiles import device_of
from hashembed.nn.ops.recording_owner import RecordingOwner, Settings
from hashembed.nn.owners import Use

REPEATS = 3  # equal calls before one is recorded; twice as many before each further record
MOST_TERMS = 2**22  # the kernels of larger calls take longer than the host needs to launch them
WORTH_BRANCHES = 2**18  # terms; a graph without branches starts sooner

_INPUTS = ("keys", "offsets", "keep", "weights")


class Table(NamedTuple):
    """A table, its optimizer, and the mark of its use in the present autograd graph."""

    table: Tensor
    owner: RecordingOwner
    use: Use

    def sink(self) -> cuda.Sink:
        """Where its gradient goes without a graph."""
        return lambda terms: self.owner.update(self.table, terms, self.use)


Owned = Sequence[tuple[Tensor, RecordingOwner]]  # E and, if there is one, P


class Recorder:
    """Notices the calls of a table that repeat, and records them."""

    def __init__(self) -> None:
        self.graphs: Graphs | None = None
        self.last: tuple[object, ...] = ()
        self.last_offsets: Tensor | None = None
        self.repeats = 0
        self.needed: float = REPEATS

    def find(self, call: Call, owned: Owned) -> "Graphs | None":
        """The graphs for a call, if there are any and they are free."""
        # Offsets that are the same tensor in every call are read where they are.
        fixed_offsets = call.offsets is not None and call.offsets is self.last_offsets
        self.last_offsets = call.offsets
        key = _key(call, fixed_offsets)
        if self.graphs is not None and self.graphs.key == key:
            if not self.graphs.are_free():
                return None
            if self.graphs.fit(owned):
                return self.graphs
            self.graphs = None
        self.repeats = self.repeats + 1 if key == self.last else 0
        self.last = key
        if self.repeats < self.needed or any(owner.settings_of(t) is None for t, owner in owned):
            return None
        self.needed *= 2
        self.graphs = None  # frees its memory before the next one takes some
        try:
            self.graphs = Graphs(call, owned, key, fixed_offsets)
        except RuntimeError:  # too little memory, or something in this process forbids graphs
            self.give_up()
        return self.graphs

    def give_up(self) -> None:
        """From now on all calls go the ordinary way."""
        self.graphs, self.needed = None, math.inf


def recorder_of(call: Call, owned: Owned) -> Recorder | None:
    """What records the calls of these tables; None if this call cannot be recorded."""
    terms = len(call.keys) * (call.num_hashes + len(owned) - 1)
    if not call.weight.is_cuda or not 0 < terms <= MOST_TERMS or call.num_bags == 0:
        return None
    if call.weights is not None and call.weights.requires_grad:
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    table, owner = owned[0]
    found: Recorder = owner.recorder_of(table, Recorder)
    return found


def _stream(call: Call) -> int:
    stream: int = torch._C._cuda_getCurrentRawStream(call.keys.device.index)
    return stream


def _key(call: Call, fixed_offsets: bool) -> tuple[object, ...]:
    """What graphs depend on, apart from the optimizers.

    They keep the tensors whose addresses these are, so an address stands for its tensor.
    """
    kinds = (None if t is None else (t.dtype, t.shape, t.stride()) for t in call.tensors)
    fixed = (call.weight, call.importance, call.seeds, call.offsets if fixed_offsets else None)
    addresses = (None if t is None else t.data_ptr() for t in fixed)
    return (_stream(call), *kinds, *addresses, *call[TENSORS:])


class Graphs:
    """The two CUDA graphs of a call, and the memory that they read and write."""

    def __init__(
        self, call: Call, owned: Owned, key: tuple[object, ...], fixed_offsets: bool
    ) -> None:
        self.key, self.stream = key, _stream(call)
        self.user: weakref.ref[RecordedPass] | None = None
        found = [owner.settings_of(table) for table, owner in owned]
        self.settings = [settings for settings in found if settings is not None]
        self.rates = [_Rate(settings) for settings in self.settings]
        self.inputs: dict[str, Any] = {}
        for name in _INPUTS:
            given = getattr(call, name)
            if given is not None and not (name == "offsets" and fixed_offsets):
                self.inputs[name] = torch.empty_like(given)
        self.call = call._replace(**self.inputs)
        self.grad = call.weight.new_empty((call.num_bags, call.width))
        with device_of(call.weight):
            self._record(owned)

    def _record(self, owned: Owned) -> None:
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        pool, device = torch.cuda.graph_pool_handle(), self.call.keys.device
        with _capturing(self.forward, pool, device):
            self._record_forward(owned)
        with _capturing(self.backward, pool, device):
            self._record_backward(owned)

    def _record_forward(self, owned: Owned) -> None:
        places = cuda_places.locate(self.call, E=True, P=len(owned) > 1)
        if len(places.keys) >= WORTH_BRANCHES:
            places = cuda_places.start_sort(places)
        rows = ((places.of_E, 0), (places.of_P, places.base))
        for (table, owner), read in zip(owned, rows, strict=False):
            owner.before_read(table, *read)
        self.out = cuda.forward(self.call)
        in_order = cuda_places.sort(places)
        assert in_order is not None
        self.places = places._replace(pending_sort=cuda_places.PendingSort(*in_order, None))

    def _record_backward(self, owned: Owned) -> None:
        def sink(table: Tensor, owner: RecordingOwner, rate: _Rate) -> cuda.Sink:
            return lambda terms: owner.update_by(table, terms, rate.on_gpu)

        sinks = [sink(*pair, rate) for pair, rate in zip(owned, self.rates, strict=True)]
        cuda.backward(self.call, self.grad, _pair(sinks), places=self.places)

    def are_free(self) -> bool:
        """Whether no call is under way."""
        user = None if self.user is None else self.user()
        return user is None or user.is_done

    def fit(self, owned: Owned) -> bool:
        """Whether the optimizers would still launch what was recorded."""
        for (table, owner), settings, rate in zip(owned, self.settings, self.rates, strict=True):
            if not owner.still_has(table, settings) or not rate.fits():
                return False
        return True


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any, device: torch.device) -> Iterator[None]:
    """Record the kernels that are launched in this context.

    The garbage collector waits: what it frees might need the GPU.
    """
    here = torch.cuda.current_stream(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(here)
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool, "thread_local")  # other threads may use the GPU
            try:
                yield
            finally:
                graph.capture_end()
    finally:
        if collects:
            gc.enable()
    here.wait_stream(stream)


class _Rate:
    """A learning rate where a graph reads it."""

    def __init__(self, settings: Settings) -> None:
        self.group, self.device = settings.group, settings.rule.table.device
        self.value = math.nan
        rate = self._now()
        self.is_given = isinstance(rate, Tensor)
        self.on_gpu = torch.zeros((), dtype=torch.float64, device=self.device)
        if isinstance(rate, Tensor):
            self.on_gpu = rate

    def _now(self) -> float | Tensor:
        rate = self.group["lr"]
        if isinstance(rate, Tensor) and rate.device == self.device:
            return rate
        return float(rate)

    def fits(self) -> bool:
        """Whether the rate is still where the graph reads it, or can be written there."""
        rate = self._now()
        return (rate is self.on_gpu) if isinstance(rate, Tensor) else not self.is_given

    def write(self) -> None:
        """Write a number that has changed."""
        rate = self._now()
        if not isinstance(rate, Tensor) and rate != self.value:
            self.on_gpu.fill_(rate)
            self.value = rate


class RecordedPass:
    """A call whose kernels come from graphs. `give_up`: called if the graphs are of no use."""

    def __init__(
        self, graphs: Graphs, tables: Sequence[Table], give_up: Callable[[], None]
    ) -> None:
        self.graphs, self.tables, self.give_up = graphs, tables, give_up
        self.is_done = False
        graphs.user = weakref.ref(self)

    def forward(self, call: Call) -> Tensor:
        """Sums or means of hash vectors (n, D)."""
        for name, memory in self.graphs.inputs.items():
            memory.copy_(getattr(call, name))
        with device_of(call.weight):
            self.graphs.forward.replay()
        return self.graphs.out.clone()

    def backward(self, call: Call, grad: Tensor, wanted: Wanted) -> Gradients:
        """Updates all tables, or lets their owners do it; so there are no gradients."""
        graphs, owned = self.graphs, [(t.table, t.owner) for t in self.tables]
        all_wanted = wanted.weight and (wanted.importance or len(owned) == 1)
        at_once = [t.owner.may_update_now(t.table, t.use) for t in self.tables]
        if (
            not (all_wanted and all(at_once) and not self.is_done)
            or torch.cuda.is_current_stream_capturing()
            or graphs.stream != _stream(call)
            or not graphs.fit(owned)
        ):
            return self._go_the_ordinary_way(call, grad, wanted, all_wanted)
        for (table, owner), settings in zip(owned, graphs.settings, strict=True):
            owner.begin_recorded(table, settings)
        for rate in graphs.rates:
            rate.write()
        graphs.grad.copy_(grad)
        with device_of(call.weight):
            graphs.backward.replay()
        for table, owner in owned:
            owner.end_recorded(table)
        self.is_done = True
        return None, None, None

    def _go_the_ordinary_way(
        self, call: Call, grad: Tensor, wanted: Wanted, all_wanted: bool
    ) -> Gradients:
        self.give_up()  # an update may wait, and then needs the memory of the graphs meanwhile
        E_sink, P_sink = _pair([table.sink() for table in self.tables])
        sinks = E_sink if wanted.weight else None, P_sink if wanted.importance else None
        places = self.graphs.places._replace(side_by_side=False) if all_wanted else None
        return cuda.backward(call, grad, sinks, places=places)


def _pair(sinks: list[cuda.Sink]) -> tuple[cuda.Sink, cuda.Sink | None]:
    return sinks[0], sinks[1] if len(sinks) > 1 else None
