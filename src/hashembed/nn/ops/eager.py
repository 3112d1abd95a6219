"""What a compiled graph of `torch.compile` leaves out: calls with row optimizers.

`torch.compiler.disable` imports TorchDynamo, which takes as long as importing torch itself. So this
module is imported only if TorchDynamo is there already.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hashembed.nn.ops import on_cpu

_REASON = "a row optimizer works outside of compiled graphs"


def _outside_graphs(function: Callable[..., Tensor]) -> Any:
    return torch.compiler.disable(function, reason=_REASON)  # type: ignore[no-untyped-call]


run_on_cpu = _outside_graphs(on_cpu.run_eagerly)
if "hashembed.nn.ops.on_gpu" in sys.modules:  # it needs Triton
    from hashembed.nn.ops import on_gpu

    run_on_gpu = _outside_graphs(on_gpu.run_eagerly)
