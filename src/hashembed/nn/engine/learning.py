"""How a `DeepModel` learns: its options, its optimizers, its loss for several labels."""

import warnings
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.core.checks import one_of, whole_number
from hashembed.engine.shallow.model import EPSILON as ADAGRAD_EPSILON
from hashembed.nn.engine.network import Network
from hashembed.nn.ops.dispatch import HAS_TRITON
from hashembed.nn.optim.layer_adam import LayerAdam
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam

Optimizer = Literal["adam", "adagrad"]


def check_options(
    hidden_layers: Sequence[int], optimizer: str, dropout: float, device: torch.device | str
) -> None:
    """Refuse options that make no sense; warn if training will be slow."""
    for width in hidden_layers:
        whole_number("hidden_layers", width, 1, 2**31 - 1)
    one_of("optimizer", optimizer, ("adam", "adagrad"))
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be from 0 to below 1, found {dropout}")
    if torch.device(device).type == "cuda" and not HAS_TRITON:
        warnings.warn(
            "Triton is not installed: the GPU trains in plain PyTorch, which takes many times "
            "as long. pip install triton",
            RuntimeWarning,
            stacklevel=3,
        )


def make_optimizers(
    network: Network, name: Optimizer, in_backward: bool
) -> list[torch.optim.Optimizer]:
    """One for the rows of the tables, one for all other layers. Each batch sets their rates."""
    bag, device = network.bag, network.bag.weight.device
    tables = [p for p in (bag.weight, bag.importance) if p is not None]
    rest = [p for n, p in network.named_parameters() if not n.startswith("bag.")]
    if name == "adam":
        return [
            RowAdam(tables, in_backward=in_backward),
            LayerAdam(rest, fused=True, capturable=device.type == "cuda"),
        ]
    rows = RowAdagrad(tables, eps=ADAGRAD_EPSILON, rowwise=True, in_backward=in_backward)
    for p in tables:  # row-wise even where gradients are dense: on a GPU without Triton
        rows.state[p]["sum"] = torch.zeros(len(p), 1, device=p.device)
    return [rows, RowAdagrad(rest, eps=ADAGRAD_EPSILON)]


def multilabel_losses(logits: Tensor, truth: Tensor, class_weights: Tensor | None) -> Tensor:
    """The cross entropy of each document, summed over all classes; class_weights: see `Labels`."""
    weight = None
    if class_weights is not None:
        weight = torch.where(truth != 0, class_weights[0], class_weights[1])
    losses = F.binary_cross_entropy_with_logits(
        logits, truth.to(logits.dtype), weight, reduction="none"
    )
    return losses.sum(1)
