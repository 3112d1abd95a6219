"""Layers on the CPU that go to the Triton kernels, which are interpreted."""

import pytest

from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu import rows as cuda_rows
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops import on_gpu
from hashembed.nn.optim import gpu_steps
from hashembed.nn.optim import optimizers as optim


def use_triton_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, layers and row optimizers take the CPU for a GPU."""
    for module in (gpu_steps, optim):
        monkeypatch.setattr(module, "cuda_rows", cuda_rows, raising=False)
    monkeypatch.setattr(ops, "on_gpu", on_gpu, raising=False)
    monkeypatch.setattr(gpu_steps, "on_gpu", lambda table: True)
    monkeypatch.setattr(ops, "_triton_takes", lambda *_: True)
    monkeypatch.setattr(cuda_places, "start_sort", lambda places: places)
