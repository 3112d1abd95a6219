"""A look-up by the Triton kernels: which gradients its tables get, and how autograd sees it."""

from typing import Any

import torch
from torch import Tensor

from hashembed.nn.cpu.launch import Gradients, Wanted
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.places import Places
from hashembed.nn.ops import autograd, recorded
from hashembed.nn.ops.lookup import Lookup
from hashembed.nn.owners import Owner, may_have_owner, note_sparse, owner_of

id_keys = cuda.id_keys

Sinks = tuple[cuda.Sink | None, cuda.Sink | None]
Tables = tuple[Tensor, Tensor | None]
Owners = tuple[Owner | None, Owner | None]


class _DensePass:
    def forward(self, call: Call) -> Tensor:
        return cuda.forward(call)

    def backward(self, call: Call, grad: Tensor, wanted: Wanted) -> Gradients:
        P = call.importance
        sinks = (
            cuda.dense(call.weight) if wanted.weight else None,
            cuda.dense(P) if wanted.importance and P is not None else None,
        )
        return cuda.backward(call, grad, sinks, wanted.weights)


class _Pass:
    """Says where the gradients of E and P go, and what is known about the rows that are read."""

    def __init__(self, sinks: Sinks, places: Places | None) -> None:
        self.sinks, self.places = sinks, places
        self.factors: Tensor | None = None

    def forward(self, call: Call) -> Tensor:
        if self.places is not None and self.places.side_stream is not None:
            self.factors = cuda.make_factors(call)
        return cuda.forward(call, self.factors)

    def backward(self, call: Call, grad: Tensor, wanted: Wanted) -> Gradients:
        E_sink, P_sink = self.sinks
        sinks = (E_sink if wanted.weight else None, P_sink if wanted.importance else None)
        all_wanted = wanted.weight and (wanted.importance or call.importance is None)
        places = self.places if all_wanted else None
        return cuda.backward(call, grad, sinks, wanted.weights, places, self.factors)


_bag = autograd.make_operator("key_bag", Call, _DensePass(), "GPU")


def call_of(lookup: Lookup) -> Call:
    """What the kernels take."""
    return Call(
        weight=lookup.weight,
        importance=lookup.importance,
        keys=lookup.keys,
        seeds=lookup.seeds,
        offsets=lookup.offsets,
        keep=lookup.keep,
        weights=lookup.weights,
        num_embeddings=lookup.spec.num_embeddings,
        indexing=lookup.indexing,
        mix=lookup.mix,
        mean=lookup.mean,
        concat=lookup.concat,
        append=lookup.append,
    )


def must_be_eager(lookup: Lookup) -> bool:
    """Whether a compiled graph cannot contain the look-up; outside of graphs, eager is faster."""
    owned = may_have_owner(lookup.weight) or may_have_owner(lookup.importance)
    return owned or not torch.compiler.is_compiling()


def run(lookup: Lookup) -> Tensor:
    """Sums or means of hash vectors (n, D), by an operator that compiled graphs may contain."""
    return _bag(*call_of(lookup))


def run_eagerly(lookup: Lookup, places: Places | None = None) -> Tensor:
    """The same with gradients of any kind; `places`: what `prepare` found for this call."""
    call = call_of(lookup)
    tables, owners = (
        (call.weight, call.importance),
        (owner_of(call.weight), owner_of(call.importance)),
    )
    if any(owners):
        if places is None:
            in_backward = torch.is_grad_enabled() and _all_in_backward(tables, owners)
            found = _recorded(call, tables, owners) if in_backward else None
            if found is not None:
                return autograd.apply(found, call)
            places = cuda_places.locate(call, E=True, P=call.importance is not None)
            if in_backward:
                places = cuda_places.start_sort(places)
        _announce(tables, owners, places)
    E_sink, P_sink = (
        None if table is None else _sink(table, owner, lookup.sparse)
        for table, owner in zip(tables, owners, strict=True)
    )
    return autograd.apply(_Pass((E_sink, P_sink), places), call)


def _recorded(call: Call, tables: Tables, owners: Owners) -> recorded.RecordedPass | None:
    """The call as two CUDA graphs, if it has often been made."""
    found: Any = [pair for pair in zip(tables, owners, strict=True) if pair[0] is not None]
    recorder = recorded.recorder_of(call, found)
    graphs = None if recorder is None else recorder.find(call, found)
    if recorder is None or graphs is None:
        return None
    used = [recorded.Table(table, owner, owner.use_of(table)) for table, owner in found]
    return recorded.RecordedPass(graphs, used, recorder.give_up)


def _announce(tables: Tables, owners: Owners, places: Places) -> None:
    """Tell the owners which rows are about to be read; first E's, which are larger."""
    rows: list[tuple[Any, ...]] = [(places.of_E, 0), (places.of_P, places.base)]
    if places.buffers is not None:  # each row once
        rows = [(known.rows, 0, known.counts) for known in places.distinct if known is not None]
    for table, owner, read in zip(tables, owners, rows, strict=True):
        if table is not None and owner is not None:
            owner.before_read(table, *read)


def _all_in_backward(tables: Tables, owners: Owners) -> bool:
    return all(
        table is None
        or (table.requires_grad and owner is not None and owner.updates_in_backward(table))
        for table, owner in zip(tables, owners, strict=True)
    )


def _sink(table: Tensor, owner: Owner | None, sparse: bool) -> cuda.Sink:
    """Where the gradient of a table goes."""
    if owner is None:
        return cuda.compact(table) if sparse else cuda.dense(table)
    if owner.updates_in_backward(table):
        use = owner.use_of(table) if torch.is_grad_enabled() and table.requires_grad else None
        return lambda terms: owner.update(table, terms, use)
    note_sparse(table, not sparse)
    return cuda.compact(table)
