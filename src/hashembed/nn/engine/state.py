"""Copies everything that training changes out of a model, and back into it.

`saved_state.py` checks what comes from a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from hashembed.engine.protocol import State, check_arrays
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.network import Network
from hashembed.nn.optim.base import RowOptimizer

# The names that tensors have in files; those of the shallow model are the same there.
_NAMES = {"bag.weight": "E", "bag.importance": "P", "output.weight": "W", "output.bias": "bias"}

OptimizerState = dict[Tensor, dict[str, Any]]  # tensors and numbers of each parameter, by name


class Kept(NamedTuple):
    """A copy of what training changes, on the device."""

    steps: int
    weights: dict[str, Tensor]
    optimizers: list[OptimizerState]


@torch.no_grad()
def keep(steps: int, network: Network, optimizers: Sequence[Optimizer]) -> Kept:
    """Copy weights and the state of the optimizers."""
    weights = {name: tensor.clone() for name, tensor in named_tensors(network).items()}
    states = [
        {
            p: {key: _copy(value) for key, value in entries.items()}
            for p, entries in optimizer.state.items()
        }
        for optimizer in optimizers
    ]
    return Kept(steps, weights, states)


@torch.no_grad()
def go_back(kept: Kept, network: Network, optimizers: Sequence[Optimizer]) -> int:
    """Copy it back, into the same memory where possible -> how many tensors had to be replaced."""
    replaced = 0
    for name, tensor in named_tensors(network).items():
        tensor.copy_(kept.weights[name])
    for optimizer, state in zip(optimizers, kept.optimizers, strict=True):
        for p in list(optimizer.state):
            if isinstance(optimizer, RowOptimizer):
                optimizer.adopt(p)
            own, entries = optimizer.state[p], state.get(p, {})
            if own.keys() != entries.keys():  # it was made since
                own.clear()
                replaced += 1
            for key, value in entries.items():
                here = own.get(key)
                if isinstance(here, Tensor) and here.shape == value.shape:
                    here.copy_(value)
                else:
                    own[key] = _copy(value)
                    replaced += 1
    return replaced


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def named_tensors(network: Network) -> dict[str, Tensor]:
    """Parameters and statistics by name; the hash functions follow from the spec."""
    # Not `state_dict()`: it would let rows catch up, which changes the bits of later steps.
    found = {
        f"{prefix}.{name}": tensor.detach()
        for prefix, module in network.named_modules()
        for of_module in (module.named_parameters, module.named_buffers)
        for name, tensor in of_module(recurse=False)
    }
    return {
        _NAMES.get(name, name): tensor
        for name, tensor in found.items()
        if not name.startswith("bag.hash_")
    }


def optimizer_state(optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """The state of optimizers by name: optimizer, kind, parameter, key."""
    out = {}
    for number, optimizer in enumerate(optimizers):
        for i, entries in Optimizer.state_dict(optimizer)["state"].items():
            for key, value in entries.items():
                kind = "tensor" if isinstance(value, Tensor) else "number"
                out[f"optimizer{number}/{kind}/{i}/{key}"] = value
    return out


def load_optimizers(optimizers: Sequence[Optimizer], state: State) -> None:
    """Load what `optimizer_state` gave."""
    for number, optimizer in enumerate(optimizers):
        saved: dict[int, dict[str, Any]] = {}
        for name, array in state.items():
            kind, _, rest = name.partition("/")
            if kind == f"optimizer{number}":
                which, parameter, key = rest.split("/")
                value = torch.from_numpy(array.copy()) if which == "tensor" else array.item()
                saved.setdefault(int(parameter), {})[key] = value
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": saved, "param_groups": groups})


def to_arrays(values: Mapping[str, Any]) -> State:
    """Copies of tensors and numbers."""
    return {
        name: value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else np.array(value)
        for name, value in values.items()
    }


def weights_of(state: State) -> State:
    """The weights of a whole state."""
    return {name: array for name, array in state.items() if name != "steps" and "/" not in name}


@torch.no_grad()
def copy_arrays(tensors: dict[str, Tensor], arrays: State) -> None:
    """Copy arrays into tensors of the same names."""
    for name, tensor in tensors.items():
        tensor.copy_(torch.from_numpy(np.require(arrays[name], requirements=["C", "W"])))


def layers_of(tensors: State) -> list[int]:
    """The widths of the hidden layers."""
    if tensors["E"].ndim != 2 or tensors["bias"].ndim != 1:
        raise ValueError("E must have two dimensions and bias one")
    hidden: list[int] = []
    while f"hidden.{len(hidden)}.bias" in tensors:
        hidden.append(len(tensors[f"hidden.{len(hidden)}.bias"]))
    return hidden


def check_shapes(
    spec: HashSpec, tensors: State, hidden: Sequence[int], options: dict[str, Any]
) -> None:
    """Refuse tensors that do not fit each other, before memory of their sizes is allocated."""
    layout = ("batch_norm", "importance", "mode", "aggregation", "append_importance")
    network = Network(
        spec,
        tensors["E"].shape[1],
        len(tensors["bias"]),
        hidden,
        **{name: options[name] for name in layout if name in options},
        device="meta",
    )
    check_arrays(named_tensors(network), tensors)
