"""The two operations behind the layers; one place that picks an implementation by device.

Keys come from `hashembed.nn.indexing.id_keys`, from the text pipeline, or are dictionary ranks
(`identity`). Bags are in CSR form: `offsets` has one entry more than there are bags.

Tensors on the CPU go to Numba kernels, all others to `reference.py`; so do exported programs, which
should not need this package to run, and the transforms of `torch.func`.
"""

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from hashembed.hashing import HashSpec
from hashembed.nn import cpu, cpu_ops, indexing, reference


class RowReader(Protocol):
    """An optimizer that updates touched rows only."""

    def before_read(self, table: Tensor, rows: Tensor) -> None:
        """Rows (N,) of a table, repeats included, are about to be read."""


_readers: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def give_rows_to(optimizer: RowReader, table: Tensor) -> None:
    """From now on the table's gradients are sparse, and `optimizer` hears which rows are read.

    For as long as the optimizer lives.
    """
    _readers[table] = weakref.ref(optimizer)
    table._has_row_optimizer = True  # type: ignore[attr-defined]


def _reader(table: Tensor | None) -> RowReader | None:
    if table is None or table not in _readers:
        return None
    reader: RowReader | None = _readers[table]()
    return reader


def id_keys(ids: Tensor) -> Tensor:
    """Integer ids (...) -> keys (...)."""
    if ids.device.type != "cpu" or _traced():
        return indexing.id_keys(ids)
    return cpu.id_keys(ids)


def hash_embedding(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    *,
    keep: Tensor | None = None,
    aggregation: str = "sum",
    append_importance: bool = False,
    sparse: bool = False,
) -> Tensor:
    """keys (...) -> hash vectors (..., D); zeros where `keep` (...) is False."""
    if not _kernels_take(keys, weight, importance, sparse):
        return reference.hash_embedding(
            keys,
            weight,
            importance,
            seeds,
            spec,
            keep=keep,
            aggregation=aggregation,
            append_importance=append_importance,
            sparse=sparse,
        )
    options = (
        None,
        None if keep is None else keep.reshape(-1),
        None,
        False,
        aggregation == "concat",
        append_importance,
    )
    vectors = _on_cpu(keys.reshape(-1), weight, importance, seeds, spec, options, sparse)
    return vectors.view(*keys.shape, vectors.shape[-1])


def hash_embedding_bag(
    keys: Tensor,
    offsets: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    *,
    per_sample_weights: Tensor | None = None,
    keep: Tensor | None = None,
    mode: str = "sum",
    aggregation: str = "sum",
    append_importance: bool = False,
    sparse: bool = False,
) -> Tensor:
    """keys (N,), offsets (n + 1,) -> sums or means of hash vectors over each bag (n, D).

    Bag i holds keys[offsets[i] : offsets[i + 1]]; an empty bag is zeros. Tokens where `keep` (N,)
    is False do not count, not even in a mean.
    """
    if not _kernels_take(keys, weight, importance, sparse):
        return reference.hash_embedding_bag(
            keys,
            offsets,
            weight,
            importance,
            seeds,
            spec,
            per_sample_weights=per_sample_weights,
            keep=keep,
            mode=mode,
            aggregation=aggregation,
            append_importance=append_importance,
            sparse=sparse,
        )
    if per_sample_weights is not None:
        per_sample_weights = per_sample_weights.to(cpu.ACCUMULATION[weight.dtype])
    options = (
        offsets,
        keep,
        per_sample_weights,
        mode == "mean",
        aggregation == "concat",
        append_importance,
    )
    return _on_cpu(keys, weight, importance, seeds, spec, options, sparse)


def _kernels_take(keys: Tensor, weight: Tensor, importance: Tensor | None, sparse: bool) -> bool:
    if keys.device.type != "cpu" or weight.device.type != "cpu":
        return False
    if weight.dtype not in cpu.ACCUMULATION:
        return False
    if importance is not None and importance.dtype != weight.dtype:
        return False
    if torch.compiler.is_compiling():  # sparse gradients can be traced in plain PyTorch only
        return not torch.compiler.is_exporting() and not sparse
    return not _traced()


def _traced() -> bool:
    """Whether the tensors are stand-ins that have no memory to read."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _on_cpu(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    options: tuple[Any, ...],
    sparse: bool,
) -> Tensor:
    """options: the fields of `cpu.Bags` behind the buckets."""
    expected = (spec.num_embeddings, spec.num_hashes)
    if weight.shape[0] != spec.num_buckets:
        raise ValueError(f"weight must have {spec.num_buckets} rows, found {weight.shape[0]}")
    if importance is not None and importance.shape != expected:
        raise ValueError(f"importance must be {expected}, found {tuple(importance.shape)}")
    hashing = (spec.num_embeddings, spec.num_buckets, cpu.indexing_number(spec))
    if sparse or _may_have_reader(weight) or _may_have_reader(importance):
        out: Tensor = _compact(keys, weight, importance, seeds, hashing, options, sparse)
    else:
        rows, buckets = cpu_ops.locate(keys, seeds, *hashing)
        out = cpu_ops.bag(weight, importance, rows, buckets, *options)
    return out


def _may_have_reader(table: Tensor | None) -> bool:
    """A plain attribute, because the compiler understands it."""
    return bool(getattr(table, "_has_row_optimizer", False))


@torch.compiler.disable(  # type: ignore[no-untyped-call,untyped-decorator]
    reason="a row optimizer works outside of compiled graphs"
)
def _compact(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    hashing: tuple[int, int, int],
    options: tuple[Any, ...],
    sparse: bool,
) -> Tensor:
    """With sparse gradients for all tables, or for those that have a row optimizer."""
    rows, buckets = cpu.locate(keys, seeds, *hashing)
    readers = _reader(weight), _reader(importance)
    for table, reader, index in zip((weight, importance), readers, (buckets, rows), strict=True):
        if table is not None and reader is not None:
            reader.before_read(table, index.view(-1))
    compact = tuple(sparse or reader is not None for reader in readers)
    fields = (weight, importance, rows, buckets, *options)
    out: Tensor = cpu_ops.CompactBag.apply(compact, *fields)  # type: ignore[no-untyped-call]
    return out
