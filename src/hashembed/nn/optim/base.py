"""What the row optimizers have in common: parameters, steps, saving and loading.

Every rule implements `_start`, `_update_rows` (sparse gradients on the CPU), `_gpu_rule` (on a GPU)
and `_update_all` (dense gradients). A lazy rule also implements `_dense_step` and `_history_step`.
"""

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, overload

import torch
from torch import Tensor

from hashembed.nn import data_parallel, owners
from hashembed.nn.cpu.launch import ACCUMULATION
from hashembed.nn.optim.layer_adam import add_param_group
from hashembed.nn.optim.pending import Tracked
from hashembed.nn.optim.recorded_steps import RecordedSteps
from hashembed.nn.optim.tables import Group, State, is_capturing, rows_and_values, state_dtype


class RowOptimizer(RecordedSteps):
    """An optimizer that updates tables row by row, and other parameters as `torch.optim` does."""

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        for name, value in defaults.items():
            if isinstance(value, float | int) and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 on, found {value}")
        self._tracked, self._stepped = {}, False
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """More parameters, with options of their own."""
        add_param_group(self, param_group)
        self._take_tables(self.param_groups[-1])

    def _take_tables(self, group: Group) -> None:
        for p in group["params"]:
            if p.dim() == 2 and p.dtype in ACCUMULATION:
                self._tracked[id(p)] = Tracked(p)
                owners.give_to(self, p)
                data_parallel.announce(p)
        self._add_missing_gradients()

    def _add_missing_gradients(self) -> None:
        data_parallel.add_missing_gradients([tracked.table for tracked in self._tracked.values()])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients."""
        super().zero_grad(set_to_none)
        self._add_missing_gradients()

    def __getstate__(self) -> Group:
        """For a copy, or to be pickled."""
        self.flush()
        return super().__getstate__()

    def __setstate__(self, state: Group) -> None:
        """A copy, or a pickled optimizer, owns the tables of its own parameters."""
        super().__setstate__(state)
        self._tracked, self._stepped = {}, False
        for group in self.param_groups:
            self._take_tables(group)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Apply the pending updates of its tables, which may live on in a model."""
        if not is_finalizing():  # a default argument, because at exit modules are gone
            self._in_finalizer = True
            with suppress(Exception):
                for tracked in self._tracked.values():
                    if not is_capturing(tracked.table):
                        self.apply_pending(tracked.table)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._count_passes()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: Group) -> None:
        if self.owns(p):
            owners.give_to(self, p)
            self._notice_writes(p)
        state = self.state[p]
        if not state:
            self._start(p, grad.is_sparse, state, group)
        if grad.is_sparse:
            self._update_sparse(p, *rows_and_values(grad), state, group)
        else:
            grad = grad.to(state_dtype(p))
            if group["weight_decay"] and not self._decouples_decay:
                grad = grad.add(p, alpha=group["weight_decay"])
            self._update_all(p, grad, state, group)
        self.adopt(p)

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update a parameter by its dense gradient."""
        raise NotImplementedError

    def state_dict(self) -> Group:
        """The state, after all pending updates: it fits the tables, whichever is saved first."""
        self.flush()
        return super().state_dict()

    def load_state_dict(self, state_dict: Group) -> None:
        """Load a saved state, in the precision that it was saved in.

        It belongs to the tables as they are now, or as they are loaded next.
        """
        self.flush()
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, own, strict=True):
            for key, value in state_dict["state"].get(i, {}).items():
                if isinstance(value, Tensor):
                    self.state[p][key] = value.to(p.device, copy=True)
