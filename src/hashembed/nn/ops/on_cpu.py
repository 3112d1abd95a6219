"""A look-up by the CPU kernels: which gradients its tables get, and how autograd sees it."""

from typing import NamedTuple

import torch
from torch import Tensor

from hashembed.nn.cpu import launch as cpu
from hashembed.nn.cpu.launch import Bags, Gradients, Wanted
from hashembed.nn.ops import autograd
from hashembed.nn.ops.lookup import Lookup
from hashembed.nn.owners import may_have_owner, note_sparse, owner_of


@torch.library.custom_op("hashembed::locate", mutates_args=())
def _locate(
    keys: Tensor, seeds: Tensor, num_embeddings: int, num_buckets: int, indexing: int
) -> tuple[Tensor, Tensor]:
    """keys (N,) -> rows (N,), buckets (N, k)."""
    return cpu.locate(keys, seeds, num_embeddings, num_buckets, indexing)


@_locate.register_fake
def _locate_shapes(keys: Tensor, seeds: Tensor, *_: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(keys), keys.new_empty((keys.shape[0], seeds.shape[0] - 1))


class _Pass(NamedTuple):
    """Says which of E and P have compact gradients."""

    compact: tuple[bool, bool] = (False, False)

    def forward(self, call: Bags) -> Tensor:
        return cpu.forward(call)

    def backward(self, call: Bags, grad: Tensor, wanted: Wanted) -> Gradients:
        return cpu.backward(call, grad, wanted, self.compact)


_bag = autograd.make_operator("bag", Bags, _Pass(), "CPU")


def must_be_eager(lookup: Lookup) -> bool:
    """Whether a compiled graph cannot contain the look-up."""
    return lookup.sparse or may_have_owner(lookup.weight) or may_have_owner(lookup.importance)


def run(lookup: Lookup) -> Tensor:
    """Sums or means of hash vectors (n, D), by an operator that compiled graphs may contain."""
    return _bag(*_bags(lookup, *_locate(*_hash_arguments(lookup))))


def run_eagerly(lookup: Lookup) -> Tensor:
    """With sparse gradients for all tables, or for those that have a row optimizer."""
    rows, buckets = cpu.locate(*_hash_arguments(lookup))
    tables = lookup.weight, lookup.importance
    owners = owner_of(lookup.weight), owner_of(lookup.importance)
    for table, owner, index in zip(tables, owners, (buckets, rows), strict=True):
        if table is not None and owner is not None:
            owner.before_read(table, index.view(-1))
            note_sparse(table, not lookup.sparse)
    E_owner, P_owner = owners
    compact = (lookup.sparse or E_owner is not None, lookup.sparse or P_owner is not None)
    return autograd.apply(_Pass(compact), _bags(lookup, rows, buckets))


def _hash_arguments(lookup: Lookup) -> tuple[Tensor, Tensor, int, int, int]:
    spec = lookup.spec
    return lookup.keys, lookup.seeds, spec.num_embeddings, spec.num_buckets, lookup.indexing


def _bags(lookup: Lookup, rows: Tensor, buckets: Tensor) -> Bags:
    return Bags(
        weight=lookup.weight,
        importance=lookup.importance,
        rows=rows,
        buckets=buckets,
        offsets=lookup.offsets,
        keep=lookup.keep,
        weights=lookup.weights,
        mean=lookup.mean,
        concat=lookup.concat,
        append=lookup.append,
    )
