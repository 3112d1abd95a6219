"""The two operations behind the layers; one place that picks an implementation by device.

Keys come from `hashembed.nn.ops.indexing.id_keys`, from the text pipeline, or are dictionary ranks
(`identity`). Bags are in CSR form: `offsets` has one entry more than there are bags.

Tensors on the CPU go to Numba kernels, those on a CUDA GPU to Triton kernels where Triton is
installed, all others to `nn/ops/reference.py`; so do exported programs, which should not need this
package to run, and the transforms of `torch.func`.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from hashembed.hashing.spec import HashSpec
from hashembed.nn.cpu import launch as cpu
from hashembed.nn.ops import cpu_autograd as cpu_ops
from hashembed.nn.ops import indexing, reference
from hashembed.nn.owners import Owner, may_have_owner, note_sparse, owner_of

HAS_TRITON = torch.version.cuda is not None and find_spec("triton") is not None
if HAS_TRITON:
    from hashembed.nn.gpu import launch as cuda
    from hashembed.nn.gpu import places as cuda_places
    from hashembed.nn.gpu.call import Call
    from hashembed.nn.ops import gpu_autograd as cuda_ops

MAX_DIM = 1024  # columns of a table that the Triton kernels take


def id_keys(ids: Tensor) -> Tensor:
    """Integer ids (...) -> keys (...)."""
    if _traced() or not (ids.device.type == "cpu" or (HAS_TRITON and ids.is_cuda)):
        return indexing.id_keys(ids)
    return cuda.id_keys(ids) if ids.is_cuda else cpu.id_keys(ids)


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
    mix: bool = False,
) -> Tensor:
    """keys (...) -> hash vectors (..., D); zeros where `keep` (...) is False.

    With `mix` keys are integer ids, still to be mixed by `id_keys`.
    """
    gpu = _triton_takes(keys, weight, importance, sparse)
    if mix and not gpu:
        keys, mix = id_keys(keys), False
    if not gpu and not _numba_takes(keys, weight, importance, sparse):
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
    vectors = _by_kernels(
        keys.reshape(-1), weight, importance, seeds, spec, options, sparse, gpu, mix
    )
    # Not a view: FSDP cannot see an in-place operation on the view that a module returns.
    out: Tensor = torch.ops.aten._unsafe_view(vectors, (*keys.shape, vectors.shape[-1]))
    return out


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
    mix: bool = False,
    places: "cuda_places.Places | None" = None,
) -> Tensor:
    """keys (N,), offsets (n + 1,) -> sums or means of hash vectors over each bag (n, D).

    Bag i holds keys[offsets[i] : offsets[i + 1]]; an empty bag is zeros. Tokens where `keep` (N,)
    is False do not count, not even in a mean. With `mix` keys are integer ids, still to be mixed.
    `places`: what `cuda_places.prepare` found for this call, ahead of it.
    """
    gpu = _triton_takes(keys, weight, importance, sparse)
    if mix and not gpu:
        keys, mix = id_keys(keys), False
    if not gpu and not _numba_takes(keys, weight, importance, sparse):
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
    return _by_kernels(keys, weight, importance, seeds, spec, options, sparse, gpu, mix, places)


def gpu_call(
    keys: Tensor,
    offsets: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    keep: Tensor | None = None,
) -> "Call":
    """What `cuda_places.prepare` takes: where tokens point does not depend on the other options."""
    number = cpu.indexing_number(spec)
    tensors = (weight, importance, keys, seeds, offsets, keep, None)
    return Call(*tensors, spec.num_embeddings, number, False, False, False, False)


def _numba_takes(keys: Tensor, weight: Tensor, importance: Tensor | None, sparse: bool) -> bool:
    if keys.device.type != "cpu" or weight.device.type != "cpu":
        return False
    return _kernels_take(weight, importance, sparse)


def _triton_takes(keys: Tensor, weight: Tensor, importance: Tensor | None, sparse: bool) -> bool:
    if not HAS_TRITON or not keys.is_cuda or keys.device != weight.device:
        return False
    return weight.shape[1] <= MAX_DIM and _kernels_take(weight, importance, sparse)


def _kernels_take(weight: Tensor, importance: Tensor | None, sparse: bool) -> bool:
    if weight.dtype not in cpu.ACCUMULATION:
        return False
    if importance is not None and importance.dtype != weight.dtype:
        return False
    if torch.compiler.is_compiling():  # sparse gradients can be traced in plain PyTorch only
        # `is_exporting()` is always true for the compiler of torch 2.11.
        return not torch.compiler._is_exporting_flag and not sparse
    return not _traced()


def _traced() -> bool:
    """Whether the tensors are stand-ins that have no memory to read, or what is read is lost."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
    )


def _by_kernels(
    keys: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    options: tuple[Any, ...],
    sparse: bool,
    gpu: bool,
    mix: bool,
    places: "cuda_places.Places | None" = None,
) -> Tensor:
    """options: the fields of `cpu.Bags` behind the buckets."""
    expected = (spec.num_embeddings, spec.num_hashes)
    if weight.shape[0] != spec.num_buckets:
        raise ValueError(f"weight must have {spec.num_buckets} rows, found {weight.shape[0]}")
    if importance is not None and importance.shape != expected:
        raise ValueError(f"importance must be {expected}, found {tuple(importance.shape)}")
    indexing_number = cpu.indexing_number(spec)
    if gpu:
        fields = (weight, importance, keys, seeds, *options[:3])
        rest = (spec.num_embeddings, indexing_number, mix, *options[3:])
        if torch.compiler.is_compiling() and not (
            may_have_owner(weight) or may_have_owner(importance)
        ):
            found: Tensor = cuda_ops.key_bag(*fields, *rest)
        else:
            found = _on_gpu(sparse, places, *fields, *rest)
        return found
    hashing = (spec.num_embeddings, spec.num_buckets, indexing_number)
    if sparse or may_have_owner(weight) or may_have_owner(importance):
        out: Tensor = _compact(keys, weight, importance, seeds, hashing, options, sparse)
    else:
        rows, buckets = cpu_ops.locate(keys, seeds, *hashing)
        out = cpu_ops.bag(weight, importance, rows, buckets, *options)
    return out


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
    owners = owner_of(weight), owner_of(importance)
    for table, owner, index in zip((weight, importance), owners, (buckets, rows), strict=True):
        if table is not None and owner is not None:
            owner.before_read(table, index.view(-1))
            note_sparse(table, not sparse)
    compact = tuple(sparse or owner is not None for owner in owners)
    fields = (weight, importance, rows, buckets, *options)
    out: Tensor = cpu_ops.CompactBag.apply(compact, *fields)  # type: ignore[no-untyped-call]
    return out


@torch.compiler.disable(  # type: ignore[no-untyped-call,untyped-decorator]
    reason="a row optimizer works outside of compiled graphs"
)
def _on_gpu(sparse: bool, places: "cuda_places.Places | None", *fields: Any) -> Tensor:
    """Any kind of gradient; fields: those of `cuda_call.Call`."""
    call = Call(*fields)
    tables = call.weight, call.importance
    owners = tuple(owner_of(table) for table in tables)
    if any(owners):
        if places is None:
            places = cuda_places.locate(call, E=True, P=call.importance is not None)
            if torch.is_grad_enabled() and _all_in_backward(tables, owners):
                places = cuda_places.start_sort(places)
        _announce(tables, owners, places)
    sinks = tuple(
        None if table is None else _sink(table, owner, sparse)
        for table, owner in zip(tables, owners, strict=True)
    )
    out: Tensor = cuda_ops.KeyBag.apply(sinks, places, *fields)  # type: ignore[no-untyped-call]
    return out


def _announce(
    tables: tuple[Tensor | None, ...],
    owners: tuple[Owner | None, ...],
    places: "cuda_places.Places",
) -> None:
    """Which rows are about to be read; E's first, the larger ones."""
    rows: list[tuple[Any, ...]] = [(places.of_E, 0), (places.of_P, places.base)]
    if places.buffers is not None:  # each row once
        rows = [(known.rows, 0, known.counts) for known in places.distinct if known is not None]
    for table, owner, read in zip(tables, owners, rows, strict=True):
        if table is not None and owner is not None:
            owner.before_read(table, *read)


def _all_in_backward(tables: tuple[Tensor | None, ...], owners: tuple[Owner | None, ...]) -> bool:
    return all(
        table is None
        or (table.requires_grad and owner is not None and owner.updates_in_backward(table))
        for table, owner in zip(tables, owners, strict=True)
    )


def _sink(table: Tensor, owner: Owner | None, sparse: bool) -> Any:
    """Where the gradient of a table goes."""
    if owner is None:
        return cuda.compact(table) if sparse else cuda.dense(table)
    if owner.updates_in_backward(table):
        use = owner.use_of(table) if torch.is_grad_enabled() and table.requires_grad else None
        return lambda terms: owner.update(table, terms, use)
    note_sparse(table, not sparse)
    return cuda.compact(table)
