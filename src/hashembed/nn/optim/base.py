"""What the row optimizers have in common: parameters, gradients of two kinds, state.

A rule under which rows move without a gradient, too, is *lazy*: the state of a table has `records`
and a `history` (see `nn/cpu/row_kernels.py`), and rows catch up when they are needed.
"""

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from hashembed.nn import owners
from hashembed.nn.cpu import row_kernels
from hashembed.nn.cpu.launch import ACCUMULATION, as_array, run_kernel
from hashembed.nn.ops.dispatch import HAS_TRITON

if HAS_TRITON:
    from hashembed.nn.gpu import rows as cuda_rows

Group = dict[str, Any]
State = dict[str, Any]

_NEGLIGIBLE = math.log2(1e-10)  # where the momentum of a skipped row is cut off
_PIECE = 2**20  # rows that `flush` takes at a time
_RECENT = 256  # steps whose factors are computed once for all rows, and looked back on at a time
_SHORTEST, _LONGEST = 2**10, 2**16  # steps that a history holds on the CPU


class _Use:
    """A place in a graph from which a table will be updated."""


class _Watch:
    """What is known of a table between steps. None of it is saved."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.version = table._version  # a larger one: somebody else has written
        self.powers: tuple[int, Any] = (-1, None)  # of `catch_up`, and at which step
        self.settled = -1  # the step that all rows have caught up to, where that is known
        self.uses: weakref.WeakSet[_Use] = weakref.WeakSet()  # graphs that will update the table
        self.waiting: list[Any] = []  # terms of a graph that uses it several times
        self.task = -1  # the backward pass that they are of
        self.passes = 0  # backward passes that updated it since the last `step()`
        self.in_backward = False  # whether any has
        self.gpu_steps = 0  # that the host knows of


class RowOptimizer(Optimizer):
    """Dense and sparse gradients; a rule is `_start`, `_update_rows` and `_update_all`.

    And on a GPU `_gpu_rule` in the place of `_update_rows`.
    """

    _watched: dict[int, _Watch]
    _dying = False

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        for name, value in defaults.items():
            if isinstance(value, float | int) and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 on, found {value}")
        self._watched, self._stepped = {}, False
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """More parameters, with options of their own."""
        super().add_param_group(param_group)
        self._take_rows(self.param_groups[-1])

    def __getstate__(self) -> Group:
        """For a copy, or to be pickled."""
        self.flush()
        return super().__getstate__()

    def __setstate__(self, state: Group) -> None:
        """A copy, or one that was pickled, has the rows of its own parameters."""
        super().__setstate__(state)
        self._watched, self._stepped = {}, False
        for group in self.param_groups:
            self._take_rows(group)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """What it owes its tables, they get. They may live on, in a model."""
        if not is_finalizing():  # an argument: at the end, modules are gone
            self._dying = True
            with suppress(Exception):
                for watch in self._watched.values():
                    if not _is_capturing(watch.table):
                        self.settle(watch.table)

    def _take_rows(self, group: Group) -> None:
        for p in group["params"]:
            if p.dim() == 2 and p.dtype in ACCUMULATION:
                self._watched[id(p)] = _Watch(p)
                owners.give_to(self, p)

    def owns(self, table: Tensor) -> bool:
        """Whether the table is one of its parameters."""
        watch = self._watched.get(id(table))
        return watch is not None and watch.table is table

    @torch.no_grad()
    def before_read(
        self, table: Tensor, rows: Tensor, base: int = 0, count: Tensor | None = None
    ) -> None:
        """A hash layer is about to read these rows: let them catch up."""
        self._notice_writes(table)
        self._catch_up(table, rows, 0, len(table), base, count)

    @torch.no_grad()
    def flush(self) -> None:
        """Let all rows catch up; takes as long as a step of the dense rule.

        Saving and copying do it by themselves. It is needed before tables are read past their
        layers, and before some rows of a table are written by hand.
        """
        for watch in self._watched.values():
            self.settle(watch.table)

    @torch.no_grad()
    def settle(self, table: Tensor) -> None:
        """Let all rows of a table catch up."""
        self._notice_writes(table)
        self._catch_up_all(table)

    @torch.no_grad()
    def written(self, table: Tensor) -> None:
        """The table may have been written by others: what it was owed is void."""
        self._catch_up_all(table, move=False)
        self.adopt(table)

    def adopt(self, table: Tensor) -> None:
        """The table as it is now belongs to the state as it is now."""
        watch = self._watched.get(id(table))
        if watch is not None:
            watch.version = table._version
            watch.powers, watch.settled = (-1, None), -1

    def _notice_writes(self, p: Tensor) -> None:
        watch = self._watched.get(id(p))
        if watch is not None and p._version != watch.version:
            self.written(p)

    def updates_in_backward(self, table: Tensor) -> bool:
        """Whether this table has no gradient, but is updated by the backward pass itself."""
        return bool(self._group_of(table)["in_backward"])

    def has_updated_in_backward(self, table: Tensor) -> bool:
        """Whether a backward pass has updated the table."""
        return self._watched[id(table)].in_backward

    def use_of(self, table: Tensor) -> object:
        """To be kept, and given to `update`, by a graph that will update the table."""
        use = _Use()
        self._watched[id(table)].uses.add(use)
        return use

    @torch.no_grad()
    def update(self, table: Tensor, terms: Any, use: object = None) -> None:
        """On a GPU, with `in_backward`: add up the terms of the gradient, and update the rows.

        Where another graph, or another place in this one, still needs the table as it is, when this
        backward pass is over.
        """
        watch = self._watched[id(table)]
        if isinstance(use, _Use):
            watch.uses.discard(use)
        task = torch._C._current_graph_task_id()
        if watch.task != task:
            watch.task, watch.waiting = task, []  # a pass that failed may have left some
        if not watch.uses and not watch.waiting:
            self._update_in_backward(table, terms)
            return
        if not watch.waiting:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._update_at_the_end(table))
        done = torch.cuda.current_stream(table.device).record_event() if table.is_cuda else None
        watch.waiting.append((terms, done))

    @torch.no_grad()
    def _update_at_the_end(self, table: Tensor) -> None:
        waiting, self._watched[id(table)].waiting = self._watched[id(table)].waiting, []
        for terms, done in waiting:
            if done is not None:
                here = torch.cuda.current_stream(table.device)
                here.wait_event(done)
                for tensor in terms:
                    if isinstance(tensor, Tensor):
                        tensor.record_stream(here)
        found = [terms for terms, _ in waiting]
        self._update_in_backward(
            table, found[0] if len(found) == 1 else cuda_rows.join_terms(found, table)
        )

    def _update_in_backward(self, table: Tensor, terms: Any) -> None:
        watch = self._watched[id(table)]
        if self._stepped:
            self._check_passes(watch.passes + 1)
        watch.passes += 1
        watch.in_backward = True
        for event in terms.wait_for:
            torch.cuda.current_stream(table.device).wait_event(event)
        with self.stepping(table) as rule:  # all rows have caught up
            if terms.distinct is None:
                cuda_rows.sum_rows(terms, rule, behind=False)
            else:
                cuda_rows.update_terms(terms, rule, behind=False)
        # A graph that still needs the table as it was must fail, not go on with wrong numbers.
        torch.autograd.graph.increment_version(table)
        self.adopt(table)

    def _check_passes(self, passes: int) -> None:
        if passes > 1:
            raise RuntimeError(
                f"in_backward=True updates tables in every backward pass, found {passes} "
                "passes before one step(): gradients that add up over several passes need "
                "in_backward=False; otherwise call step() after each"
            )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """`GradScaler` asks before a step whether it has to take its scale out."""
        if any(watch.in_backward for watch in self._watched.values()):
            raise RuntimeError(
                "in_backward=True has updated tables by gradients that GradScaler had scaled: "
                "use in_backward=False, or train in bfloat16, which needs no GradScaler"
            )
        return False

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
        self._notice_writes(table)
        state: State = self.state[table]
        if not state:
            self._start(table, True, state, self._group_of(table))
        return state

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
        for watch in self._watched.values():
            passes, watch.passes = watch.passes, 0
            self._check_passes(passes)
        self._stepped = True
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)
        return loss

    def _update(self, p: Tensor, group: Group) -> None:
        if self.owns(p):
            owners.give_to(self, p)
            self._notice_writes(p)
        state, grad = self.state[p], p.grad
        assert grad is not None
        if not state:
            self._start(p, grad.is_sparse, state, group)
        if grad.is_sparse:
            self._check_decay(group)
            rows, values = rows_and_values(grad)
            if on_gpu(p):
                with self._gpu_step(p, state, group) as rule:
                    cuda_rows.update_rows(rule, rows, values)
            else:
                self._update_rows(p, rows, values, state, group)
        else:
            grad = grad.to(state_dtype(p))
            if group["weight_decay"] and not self._decouples_decay:
                grad = grad.add(p, alpha=group["weight_decay"])
            self._update_all(p, grad, state, group)
        self.adopt(p)

    def state_dict(self) -> Group:
        """The state, of tables that have all updates: whichever is saved first, they fit."""
        self.flush()
        return super().state_dict()

    def load_state_dict(self, state_dict: Group) -> None:
        """Takes over a saved state, in the precision that it was saved in.

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

    def _gpu_numbers(self, group: Group) -> "cuda_rows.Numbers":
        """What a step on a GPU is made with, beside the rate."""
        return cuda_rows.Numbers(eps=float(group.get("eps", 0.0)))

    def _ready_gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        if not p.is_contiguous():
            raise ValueError("row optimizers update contiguous tables")
        if not isinstance(state.get("step"), Tensor):
            state["step"] = torch.tensor(state.get("step", 0), device=p.device)
        if len(state.get("numbers", ())) != cuda_rows.NUMBERS:
            state["numbers"] = cuda_rows.make_numbers(p.device)
        return self._gpu_rule(p, state, group)

    @contextmanager
    def _gpu_step(
        self, p: Tensor, state: State, group: Group, fine: Tensor | None = None
    ) -> "Iterator[cuda_rows.Rule]":
        """One step of the rule on a GPU, counted there: nothing waits for it."""
        rule = self._ready_gpu_rule(p, state, group)
        if rule.history is not None and not _is_capturing(p):
            watch = self._watched[id(p)]
            watch.gpu_steps += 1
            if watch.gpu_steps % (cuda_rows.RING // 2) == 0:  # no row may miss more steps than RING
                self._catch_up_all(p)
        cuda_rows.begin_step(rule, group["lr"], self._gpu_numbers(group), fine)
        yield rule
        if rule.history is not None:
            cuda_rows.end_step(rule)

    def _group_of(self, p: Tensor) -> Group:
        return next(g for g in self.param_groups if any(q is p for q in g["params"]))

    _decouples_decay = False  # whether weight decay works on tables, step by step or lazily

    def _check_decay(self, group: Group) -> None:
        if group["weight_decay"] and not self._decouples_decay:
            raise ValueError(
                "weight_decay does not work with row gradients; use RowAdamW, or put the tables "
                "of hash layers into a parameter group with weight_decay=0"
            )

    # Lazy rules.

    _moment_names: tuple[str, ...] = ()  # of what a record has, where gradients are dense

    @property
    def _moments(self) -> int:
        return len(self._moment_names)

    def _make_records(self, p: Tensor, state: State, epsilon: float) -> None:
        """State for sparse gradients, after none or some steps with dense ones.

        epsilon: what is added to the root of the second moment in the next step.
        """
        width, t = p.shape[1], int(state["step"])
        shape = (len(p), row_kernels.record_width(width, self._moments))
        if p.device.type == "cpu":
            records = _large_zeros(shape, state_dtype(p))
        else:
            records = torch.zeros(shape, dtype=state_dtype(p), device=p.device)
        if self._moment_names[0] in state:
            for i, name in enumerate(self._moment_names):
                records[:, i * width : (i + 1) * width] = state.pop(name)
            stamps_of(records)[:, self._moments * width] = t
        state["records"] = records
        size = _SHORTEST
        while size <= 2 * t and size < _LONGEST:
            size *= 2
        history = torch.zeros(5, size, dtype=torch.float64)
        history[row_kernels.EPS, t % size] = epsilon
        state["history"] = history.to(p.device)

    def _history_on_gpu(self, p: Tensor, state: State, group: Group) -> Tensor:
        """As long as the kernels want it."""
        self._convert_tails(state, group)
        history: Tensor = state["history"]
        if history.shape[1] != cuda_rows.RING:
            history = state["history"] = _resized(history, int(state["step"]), cuda_rows.RING)
        return history

    def _arrays(self, p: Tensor, state: State, group: Group) -> tuple[Any, ...]:
        """What kernels need of a lazy table, for rows to catch up to the present step."""
        self._convert_tails(state, group)
        records, history = state["records"], state["history"].numpy()
        watch, now = self._watched[id(p)], int(state["step"])
        if watch.powers[0] != now:
            size = history.shape[1]
            steps = np.arange(now, max(now - min(_RECENT, size), -1), -1) % size
            logs = history[row_kernels.LOG_M :]
            watch.powers = now, np.exp2(logs[:, now % size, None] - logs[:, steps])
        return memory(p), records.numpy(), stamps_of(records).numpy(), history, watch.powers[1]

    def _catch_up(
        self,
        p: Tensor,
        rows: Tensor,
        begin: int,
        end: int,
        base: int = 0,
        count: Tensor | None = None,
        move: bool = True,
    ) -> None:
        state = self.state.get(p)
        if not state or "records" not in state:
            return
        group = self._group_of(p)
        if on_gpu(p):
            rule = self._ready_gpu_rule(p, state, group)
            cuda_rows.catch_up(rule, rows, base, count, move=move)
            return
        numbers = (begin, end, int(state["step"]), self._moments, move)
        # The garbage collector may interrupt anything, even what makes threads.
        work = 0 if self._dying else rows.numel() * p.shape[1]
        arrays = self._arrays(p, state, group)
        run_kernel(row_kernels.catch_up_rows, work, *arrays, as_array(rows), *numbers)

    def _catch_up_all(self, p: Tensor, move: bool = True) -> None:
        state, watch = self.state.get(p), self._watched.get(id(p))
        if not state or "records" not in state or watch is None:
            return
        now = -1 if on_gpu(p) else int(state["step"])  # there, steps of a CUDA graph are not seen
        if now >= 0 and watch.settled == now:
            return
        for begin in range(0, len(p), _PIECE):
            end = min(begin + _PIECE, len(p))
            rows = torch.arange(begin, end, device=p.device)
            self._catch_up(p, rows, begin, end, move=move)
        watch.settled = now

    def _moments_of(self, p: Tensor, state: State) -> list[Tensor]:
        """The moments, of a dense or of a lazy table."""
        if "records" not in state:
            return [state[name] for name in self._moment_names]
        width = p.shape[1]
        return [state["records"][:, i * width : (i + 1) * width] for i in range(self._moments)]

    def _step_densely(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """A step with a dense gradient, of a table that may have had sparse ones before."""
        if "records" not in state:
            state["step"] = int(state["step"]) + 1
            self._dense_step(p, grad, state, group)
            return
        self._catch_up_all(p)
        if on_gpu(p):
            with self._gpu_step(p, state, group):
                self._dense_step(p, grad, state, group)
        else:
            self._begin_lazy_step(p, state, group)
            self._dense_step(p, grad, state, group)
            self._remember(state, group)
        stamps_of(state["records"])[:, self._moments * p.shape[1]] = int(state["step"])

    def _dense_step(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Moments and weights of all rows, in step number state["step"]."""
        raise NotImplementedError

    def _remember(self, state: State, group: Group) -> None:
        """Add the step to the history, on the CPU."""
        raise NotImplementedError

    def _begin_lazy_step(self, p: Tensor, state: State, group: Group) -> tuple[int, Any]:
        """Count a step, on the CPU -> its number, and `_arrays` for rows to catch up before it.

        The history must have room for it: it grows at first; then, before a step would take the
        place of one that a row may still need, all rows catch up.
        """
        self._convert_tails(state, group)
        t, size = int(state["step"]) + 1, state["history"].shape[1]
        if t % (size // 2) == 0:
            if size < _LONGEST:
                state["history"] = _resized(state["history"], t - 1, 2 * size)
            else:
                self._catch_up_all(p)
        arrays = self._arrays(p, state, group)
        state["step"] = t
        return t, arrays

    def _add_to_history(
        self, state: State, logs: tuple[float, float, float], term: float, epsilon: float = 0.0
    ) -> None:
        """This step, for the rows that miss it.

        logs: to the base 2, of the factors by which m, v and the weights shrink. A row with unit
        moments from just before this step would have moved by `term`.
        """
        history, t = state["history"].numpy(), int(state["step"])
        size = history.shape[1]
        here, last = t % size, (t - 1) % size
        of_logs = slice(row_kernels.LOG_M, None)
        history[of_logs, here] = history[of_logs, last] + logs
        history[row_kernels.TAIL, here] = 0.0
        history[row_kernels.EPS, here] = epsilon
        weights = np.array([1.0, -0.5, -1.0])
        level = weights @ history[of_logs, here]
        end, first = t, max(1, t - size + 1)
        while end > first:  # from now on back, until momentum from then is spent
            begin = max(first, end - _RECENT)
            steps = np.arange(begin, end) % size
            power = level - weights @ history[of_logs][:, steps]
            history[row_kernels.TAIL, steps] += term * np.exp2(power)
            end = begin if power[0] > _NEGLIGIBLE else first

    def _convert_tails(self, state: State, group: Group) -> None:
        """States saved before there were histories have tails: betas were constants then."""
        tails = state.pop("tails", None)
        if tails is None:
            return
        size, t = tails.shape[1], int(state["step"])
        steps = torch.arange(max(0, t - size + 1), t + 1, device=tails.device)
        history = torch.zeros(5, size, dtype=torch.float64, device=tails.device)
        history[: len(tails)] = tails
        for row, beta in zip((row_kernels.LOG_M, row_kernels.LOG_V), group["betas"], strict=True):
            history[row, steps % size] = steps.double() * math.log2(beta)
        state["history"] = history


def on_gpu(table: Tensor) -> bool:
    """Whether the Triton kernels update the table."""
    return HAS_TRITON and table.is_cuda


def _is_capturing(table: Tensor) -> bool:
    return table.is_cuda and torch.cuda.is_current_stream_capturing()


def _resized(history: Tensor, step: int, size: int) -> Tensor:
    """A history of so many steps."""
    kept = min(size, history.shape[1], step + 1)
    steps = torch.arange(step + 1 - kept, step + 1, device=history.device)
    out = history.new_zeros(len(history), size)
    out[:, steps % size] = history[:, steps % history.shape[1]]
    return out


def log2(factor: float) -> float:
    """To the base 2; of nothing a number that makes nothing of all."""
    return math.log2(factor) if factor > 0 else -2000.0


def stamps_of(records: Tensor) -> Tensor:
    """The memory of records as integers."""
    return records.view(torch.int32 if records.dtype == torch.float32 else torch.int64)


def _large_zeros(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """From NumPy, which asks Linux for huge pages: rows are found faster."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype == torch.float64 else np.float32))


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
