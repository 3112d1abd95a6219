"""The two operations behind the layers; one place that picks an implementation by device.

Keys come from `hashembed.nn.ops.indexing.id_keys`, from the text pipeline, or are dictionary ranks
(`identity`). Bags are in CSR form: `offsets` has one entry more than there are bags.

Tensors on the CPU go to CPU kernels (`on_cpu.py`), those on a CUDA GPU to Triton kernels where
Triton is installed (`on_gpu.py`). Everything else goes to `reference.py`: other devices, the
transforms of `torch.func`, and exported programs, which should not need this package to run.
"""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame

from hashembed.hashing.spec import HashSpec
from hashembed.nn.cpu import launch as cpu
from hashembed.nn.ops import indexing, on_cpu, reference
from hashembed.nn.ops.lookup import Lookup
from hashembed.nn.owners import apply_pending_before_export

HAS_TRITON = torch.version.cuda is not None and find_spec("triton") is not None
if HAS_TRITON:
    from hashembed.nn.ops import on_gpu

if TYPE_CHECKING:
    from hashembed.nn.gpu.call import Call
    from hashembed.nn.gpu.places import Places

MAX_DIM = 1024  # columns of a table that the Triton kernels take


def id_keys(ids: Tensor, columns: Tensor | None = None, count: int = 1) -> Tensor:
    """Integer ids (...) -> keys (...).

    columns: the column of each id, in a shape that broadcasts to that of the ids. None (default):
    the ids stand in `count` columns in turn, so with several columns the last dimension, or all
    ids in row-major order, must be a multiple of `count`.
    """
    if _traced() or not (ids.device.type == "cpu" or (HAS_TRITON and ids.is_cuda)):
        if columns is None and count > 1:
            columns = torch.arange(ids.numel(), device=ids.device).view(ids.shape) % count
        return indexing.id_keys(ids, columns)
    if columns is not None:
        columns = columns.to(ids.device, torch.int64).expand_as(ids)
    if ids.is_cuda:
        return on_gpu.id_keys(ids, columns, count)
    return cpu.id_keys(ids, columns, count)


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
    mix: int = 0,
) -> Tensor:
    """keys (...) -> hash vectors (..., D); zeros where `keep` (...) is False.

    With `mix` keys are integer ids in this many columns in turn, still to be turned into keys by
    `id_keys`.
    """
    sparse = not _prepare_export() and sparse
    gpu = _triton_takes(keys, weight, importance, sparse)
    if mix and not gpu:
        keys, mix = id_keys(keys, count=mix), 0
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
    lookup = Lookup(
        weight,
        importance,
        keys.reshape(-1),
        seeds,
        spec,
        keep=None if keep is None else keep.reshape(-1),
        concat=aggregation == "concat",
        append=append_importance,
        sparse=sparse,
        mix=mix,
    )
    vectors = _by_kernels(lookup, gpu)
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
    mix: int = 0,
    places: "Places | None" = None,
) -> Tensor:
    """keys (N,), offsets (n + 1,) -> sums or means of hash vectors over each bag (n, D).

    Bag i holds keys[offsets[i] : offsets[i + 1]]; an empty bag is zeros. Tokens where `keep` (N,)
    is False do not count, not even in a mean. With `mix` keys are integer ids in this many columns
    in turn, still to be turned into keys. `places`: what `nn.gpu.places.prepare` found for this
    call in advance.
    """
    sparse = not _prepare_export() and sparse
    gpu = _triton_takes(keys, weight, importance, sparse)
    if mix and not gpu:
        keys, mix = id_keys(keys, count=mix), 0
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
    lookup = Lookup(
        weight,
        importance,
        keys,
        seeds,
        spec,
        offsets=offsets,
        keep=keep,
        weights=per_sample_weights,
        mean=mode == "mean",
        concat=aggregation == "concat",
        append=append_importance,
        sparse=sparse,
        mix=mix,
    )
    return _by_kernels(lookup, gpu, places)


def _by_kernels(lookup: Lookup, gpu: bool, places: "Places | None" = None) -> Tensor:
    lookup.check()
    if not (on_gpu if gpu else on_cpu).must_be_eager(lookup):
        return on_gpu.run(lookup) if gpu else on_cpu.run(lookup)
    if torch.compiler.is_compiling() or _compiler_watches():
        from hashembed.nn.ops import eager

        out: Tensor = eager.run_on_gpu(lookup, places) if gpu else eager.run_on_cpu(lookup)
        return out
    return on_gpu.run_eagerly(lookup, places) if gpu else on_cpu.run_eagerly(lookup)


def _compiler_watches() -> bool:
    """Whether TorchDynamo may look at the functions that are called now."""
    return "torch._dynamo" in sys.modules and eval_frame.get_eval_frame_callback() is not None


def gpu_call(
    keys: Tensor,
    offsets: Tensor,
    weight: Tensor,
    importance: Tensor | None,
    seeds: Tensor,
    spec: HashSpec,
    keep: Tensor | None = None,
) -> "Call":
    """What `nn.gpu.places.prepare` takes. Which rows tokens read depends on no other option."""
    return on_gpu.call_of(Lookup(weight, importance, keys, seeds, spec, offsets, keep))


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


def _prepare_export() -> bool:
    """Whether a program is being exported. It must not miss updates, and needs no gradients."""
    if not (torch.compiler._is_exporting_flag or torch._C._get_tracing_state() is not None):
        return False
    if not torch.compiler.is_dynamo_compiling():  # which cannot trace it: `export(strict=True)`
        apply_pending_before_export()
    return True


def _traced() -> bool:
    """Whether tensors are symbolic: they have no memory to read, or reading it is not traced."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
    )
