"""What the optimizers of `optim.py` have in common: parameters, gradients of two kinds, state."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from hashembed.nn.cpu import ACCUMULATION, as_array
from hashembed.nn.ops import HAS_TRITON, give_rows_to

if HAS_TRITON:
    from hashembed.nn import cuda_rows

Group = dict[str, Any]
State = dict[str, Any]


class RowOptimizer(Optimizer):
    """Dense and sparse gradients; a rule is `_start`, `_update_rows` and `_update_all`.

    And on a GPU `_gpu_rule` in the place of `_update_rows`.
    """

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        for name, value in defaults.items():
            if isinstance(value, float | int) and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 on, found {value}")
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """More parameters, with options of their own."""
        super().add_param_group(param_group)
        self._take_rows(self.param_groups[-1])

    def __setstate__(self, state: Group) -> None:
        """A copy, or one that was pickled, has the rows of its own parameters."""
        super().__setstate__(state)
        for group in self.param_groups:
            self._take_rows(group)

    def _take_rows(self, group: Group) -> None:
        for p in group["params"]:
            if p.dim() == 2 and p.dtype in ACCUMULATION:
                give_rows_to(self, p)

    def before_read(
        self, table: Tensor, rows: Tensor, base: int = 0, count: Tensor | None = None
    ) -> None:
        """A hash layer is about to read these rows."""

    def updates_in_backward(self, table: Tensor) -> bool:
        """Whether this table has no gradient, but is updated by the backward pass itself."""
        return bool(self._group_of(table)["in_backward"])

    @torch.no_grad()
    def update(self, table: Tensor, terms: Any) -> None:
        """On a GPU, with `in_backward`: add up the terms of the gradient, and update the rows."""
        for event in terms.free:
            torch.cuda.current_stream(table.device).wait_event(event)
        with self.stepping(table) as rule:  # all rows have caught up
            if terms.distinct is None:
                cuda_rows.sum_rows(terms, rule, behind=False)
            else:
                cuda_rows.update_terms(terms, rule, behind=False)
        # A graph that still needs the table as it was must fail, not go on with wrong numbers.
        torch.autograd.graph.increment_version(table)

    @contextmanager
    def stepping(self, table: Tensor, fine: Tensor | None = None) -> "Iterator[cuda_rows.Rule]":
        """One step of a table, on a GPU: the rule that its rows are to be updated by.

        If `fine` is 0 they and their state stay as they are, and the rate, on the GPU, becomes 0.
        """
        group = self._group_of(table)
        self._check_decay(group)
        with self._gpu_step(table, self._started(table), group, fine) as rule:
            yield rule

    def rule_of(self, table: Tensor) -> "cuda_rows.Rule":
        """The rule of a table on a GPU, as it is between steps."""
        return self._ready_gpu_rule(table, self._started(table), self._group_of(table))

    def _started(self, table: Tensor) -> State:
        state: State = self.state[table]
        if not state:
            self._start(table, True, state, self._group_of(table))
        return state

    def flush(self) -> None:
        """Make the tables what they would be if every step had updated every row."""

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
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    self._start(p, p.grad.is_sparse, state, group)
                if p.grad.is_sparse:
                    self._check_decay(group)
                    rows, values = rows_and_values(p.grad)
                    if p.is_cuda and HAS_TRITON:
                        with self._gpu_step(p, state, group) as rule:
                            cuda_rows.update_rows(rule, rows, values)
                    else:
                        self._update_rows(p, rows, values, state, group)
                else:
                    grad = p.grad.to(state_dtype(p))
                    if group["weight_decay"]:
                        grad = grad.add(p, alpha=group["weight_decay"])
                    self._update_all(p, grad, state, group)
        return loss

    def load_state_dict(self, state_dict: Group) -> None:
        """Takes over a saved state, in the precision that it was saved in."""
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, own, strict=True):
            for key, value in state_dict["state"].get(i, {}).items():
                if isinstance(value, Tensor):
                    self.state[p][key] = value.to(p.device, copy=True)

    def _start(self, p: Tensor, sparse: bool, state: State, group: Group) -> None:
        """Fill the state of a parameter before its first update."""

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        raise NotImplementedError

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        raise NotImplementedError

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        raise NotImplementedError

    def _ready_gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        if not p.is_contiguous():
            raise ValueError("row optimizers update contiguous tables")
        if not isinstance(state.get("step"), Tensor):
            state["step"] = torch.tensor(state.get("step", 0), device=p.device)
        if len(state.get("numbers", ())) != cuda_rows.LENGTH:
            state["numbers"] = cuda_rows.make_numbers(group.get("betas"), p.device)
        return self._gpu_rule(p, state, group)

    @contextmanager
    def _gpu_step(
        self, p: Tensor, state: State, group: Group, fine: Tensor | None = None
    ) -> "Iterator[cuda_rows.Rule]":
        """One step of the rule on a GPU, counted there: nothing waits for it."""
        rule = self._ready_gpu_rule(p, state, group)
        cuda_rows.begin_step(rule, group["lr"], group.get("eps", 0.0), group.get("betas"), fine)
        yield rule
        if rule.tails is not None:
            cuda_rows.end_step(rule)

    def _group_of(self, p: Tensor) -> Group:
        return next(g for g in self.param_groups if any(q is p for q in g["params"]))

    def _check_decay(self, group: Group) -> None:
        if group["weight_decay"]:
            raise ValueError(
                "weight_decay does not work with row gradients; put the tables of hash "
                "layers into a parameter group with weight_decay=0"
            )


def coalesced(grad: Tensor) -> Tensor:
    """Each row once, in order. Our kernels' gradients are, but autograd forgets that they are."""
    if grad.sparse_dim() == 1 and grad.device.type == "cpu":
        rows = grad._indices()[0].numpy()
        if (rows[1:] > rows[:-1]).all():
            return grad
    return grad.coalesce()


def rows_and_values(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows (m,) and their gradients (m, width)."""
    grad = coalesced(grad)
    return grad._indices()[0].contiguous(), grad._values()


def memory(p: Tensor) -> Any:
    """A parameter as an array that kernels may write to."""
    if not p.is_contiguous() or p.device.type != "cpu":
        raise ValueError("row optimizers update contiguous tables on the CPU")
    return as_array(p)


def state_dtype(p: Tensor) -> torch.dtype:
    """What state is kept, and updates are computed, in."""
    return ACCUMULATION.get(p.dtype, p.dtype)


def subtract(p: Tensor, change: Tensor) -> None:
    """p -= change, rounded once."""
    p.copy_(p.to(change.dtype) - change)
