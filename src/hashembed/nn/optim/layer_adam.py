"""Adam for the layers above a hash embedding, and how optimizers avoid TorchDynamo.

Some methods of `torch.optim` import TorchDynamo when they are first called, to keep `torch.compile`
out. That takes as long as importing torch itself. Inside of these wrappers are the same methods
without it.
"""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch

add_param_group: Callable[..., None] = unwrap(torch.optim.Optimizer.add_param_group)
_adam_step: Callable[..., Any] = unwrap(torch.optim.Adam.step)


class LayerAdam(torch.optim.Adam):
    """`torch.optim.Adam` without TorchDynamo."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """More parameters."""
        add_param_group(self, param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step."""
        return _adam_step(self, closure)
