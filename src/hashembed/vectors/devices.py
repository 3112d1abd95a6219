"""Where word vectors are trained: on the CPU, or on a GPU."""

import re
from collections.abc import Callable
from functools import partial

from hashembed.core.wording import given, named
from hashembed.vectors.training import Trainer


def trainer_on(device: str) -> Callable[..., Trainer]:
    """What trains on a device: "cpu", "cuda", "cuda:N", or "auto" for a GPU if there is one."""
    found = choose_device(device)
    if found == "cpu":
        return Trainer
    from hashembed.vectors.gpu.trainer import GpuTrainer

    return partial(GpuTrainer, device=found)


def check_device(device: str) -> str:
    """Refuse what is no device."""
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(
            f"{named('device')} must be 'auto', 'cpu', 'cuda' or 'cuda:N', found {device!r}"
        )
    return device


def choose_device(device: str) -> str:
    """The device to use; "auto" is a GPU if torch finds one and Triton is there, or the CPU."""
    if check_device(device) == "cpu":
        return device
    problem = _missing(device)
    if problem is None:
        return "cuda" if device == "auto" else device
    if device == "auto":
        return "cpu"
    raise ValueError(
        f"{given('device', device)} needs a CUDA GPU, a build of torch for it and Triton, but "
        f"{problem}; use 'cpu', or 'auto' for a GPU only if there is one"
    )


def _missing(device: str) -> str | None:
    """What a GPU lacks, in words."""
    try:
        import torch
    except ImportError:
        return 'torch is not installed (pip install "hashembed[torch]")'
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return f"torch {torch.__version__} finds none"
    number = int(device.partition(":")[2] or 0)
    if number >= count:
        return f"torch {torch.__version__} finds only cuda:0 to cuda:{count - 1}"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed (pip install triton)"
    return None
