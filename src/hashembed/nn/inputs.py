"""The inputs that `nn.Embedding` and `nn.EmbeddingBag` accept, checked and in one form."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

ID_DTYPES = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
)


def given_ids(ids: Tensor | None, input: Tensor | None) -> Tensor:
    """The first argument, given as `ids` or by the name that `nn.Embedding` has for it."""
    found = ids if input is None else input
    if found is None:
        raise TypeError("ids are missing: call the layer with a tensor of integers")
    if ids is not None and input is not None:
        raise TypeError("ids and input are two names for one argument, found both")
    return found


def check_ids(name: str, ids: Tensor) -> Tensor:
    """Integer ids as int64 (the bits of uint64); refuses anything else."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, found {type(ids).__name__}")
    if ids.dtype not in ID_DTYPES:
        raise TypeError(f"{name} must be a tensor of integers such as int64, found {ids.dtype}")
    return ids.to(torch.int64)


def check_values(ok: Tensor, message: Callable[[], str]) -> None:
    """Refuse values that are not `ok` (a 0-d bool), where the check costs no synchronisation.

    On a GPU it is a device-side assertion, as in `nn.Embedding`. While compiling or exporting, in
    `torch.func`, and on the meta device, there are no values to check.
    """
    if torch.compiler.is_compiling() or ok.device.type == "meta":
        return
    if torch._C._are_functorch_transforms_active():
        return
    if ok.device.type == "cuda":
        torch._assert_async(ok, message())
    elif not bool(ok):
        raise ValueError(message())


def check_ranks(ids: Tensor, num_embeddings: int) -> None:
    """`identity` takes dictionary ranks only."""

    def message() -> str:
        found = "" if ids.is_cuda else f", found ids from {int(ids.min())} to {int(ids.max())}"
        return (
            f'indexing="identity" takes ids from 0 to {num_embeddings - 1}{found}; '
            'use indexing="independent" for arbitrary ids'
        )

    if ids.numel():
        check_values(((ids >= 0) & (ids < num_embeddings)).all(), message)


def to_bags(
    ids: Tensor,
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
    *,
    include_last_offset: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """-> ids (N,), offsets (bags + 1,), per_sample_weights (N,) or None."""
    ids = check_ids("ids", ids)
    if per_sample_weights is not None:
        if per_sample_weights.shape != ids.shape:
            raise ValueError(
                f"per_sample_weights must have the shape of ids, {tuple(ids.shape)}, "
                f"found {tuple(per_sample_weights.shape)}"
            )
        if not per_sample_weights.is_floating_point():
            raise TypeError(
                f"per_sample_weights must be floating point, found {per_sample_weights.dtype}"
            )
        per_sample_weights = per_sample_weights.reshape(-1)
    if ids.dim() == 2:
        if offsets is not None:
            raise ValueError("offsets must be None when ids are 2-D: each row is a bag already")
        bags, length = ids.shape
        offsets = _even_offsets(bags, length, ids.device)
    elif ids.dim() == 1:
        offsets = _closed_offsets(offsets, ids, include_last_offset)
    else:
        raise ValueError(f"ids must be 1-D with offsets or 2-D, found {ids.dim()}-D")
    return ids.reshape(-1), offsets, per_sample_weights


def _even_offsets(bags: int, length: int, device: torch.device) -> Tensor:
    if torch.compiler.is_compiling() or length == 0:  # the compiler sees that there are bags + 1
        return torch.arange(bags + 1, device=device) * length
    if device.type == "cuda" and _may_keep():
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        return _kept_offsets(bags, length, device, stream, torch.is_inference_mode_enabled())
    return torch.arange(0, bags * length + 1, length, device=device)  # one kernel instead of two


@lru_cache(maxsize=16)
def _kept_offsets(
    bags: int, length: int, device: torch.device, stream: int, inference: bool
) -> Tensor:
    """Offsets that batches of one size share. Another stream would have to wait for them."""
    return torch.arange(0, bags * length + 1, length, device=device)


def _may_keep() -> bool:
    """Whether a tensor that is made now may be used again: not inside a CUDA graph or a tracer."""
    return not (
        torch.cuda.is_current_stream_capturing()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
    )


def _closed_offsets(offsets: Tensor | None, ids: Tensor, include_last_offset: bool) -> Tensor:
    """Offsets with the end of the last bag; checked."""
    if offsets is None:
        raise ValueError("offsets are needed when ids are 1-D: where does each bag begin?")
    offsets = check_ids("offsets", offsets)
    if offsets.dim() != 1:
        raise ValueError(f"offsets must be 1-D, found {offsets.dim()}-D")
    count = ids.numel()
    if include_last_offset:
        if offsets.numel() == 0:
            raise ValueError("offsets must not be empty with include_last_offset: begin with 0")
    else:
        if offsets.numel() == 0 and count > 0:
            raise ValueError(f"offsets are empty, but there are {count} ids: begin with 0")
        offsets = torch.cat([offsets, offsets.new_full((1,), count)])

    def message() -> str:
        found = "" if offsets.is_cuda else f", found {_shortened(offsets)}"
        return f"offsets must begin with 0, never fall, and end at most at {count} (ids){found}"

    rising = (offsets[1:] >= offsets[:-1]).all()
    check_values(rising & (offsets[0] == 0) & (offsets[-1] <= count), message)
    return offsets


def _shortened(values: Tensor) -> str:
    head = ", ".join(str(v) for v in values[:8].tolist())
    return f"[{head}, ... {values.numel()} values]" if values.numel() > 8 else f"[{head}]"
