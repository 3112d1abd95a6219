"""Pending updates: a row that missed steps catches up when it is needed.

Under a *lazy* rule (Adam, momentum) a row moves in every step, with or without a gradient. Here it
moves only when it is read or updated next; until then its updates are pending. The state of such a
table has `records` and a `history`: see `nn/cpu/row_kernels.py` and `history.py`.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hashembed.core.arrays import F64
from hashembed.nn.cpu import row_kernels
from hashembed.nn.cpu.launch import as_array, run_kernel
from hashembed.nn.cpu.row_kernels import LazyTable
from hashembed.nn.optim import history
from hashembed.nn.optim.tables import Group, State, memory, stamps_of, zero_records
from hashembed.nn.owners import Use

_PIECE = 2**20  # rows that `flush` takes at a time
UNKNOWN = -1  # number of a step that the host does not know


class Tracked:
    """What is known about a table between steps. None of it is saved."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.version = table._version  # a larger one means that somebody else wrote to the table
        self.factors: tuple[int, F64 | None] = (UNKNOWN, None)  # the step, `recent_factors` of it
        self.complete_at = UNKNOWN  # the step at which no row had pending updates
        # With `in_backward`:
        self.uses: weakref.WeakSet[Use] = weakref.WeakSet()  # graphs that will update the table
        self.deferred: list[Any] = []  # terms of a graph that uses the table several times
        self.graph_task = -1  # the backward pass that they are of
        self.passes = 0  # backward passes that updated the table since the last `step()`
        self.updated_in_backward = False  # whether any pass has
        self.gpu_steps = 0  # steps on a GPU that the host knows of
        self.recorder: Any = None  # of E: the calls that repeat; see `nn/ops/recorded.py`


class PendingUpdates(Optimizer):
    """The part of a row optimizer that lets rows catch up, on the CPU."""

    _tracked: dict[int, Tracked]
    _in_finalizer = False
    _moment_names: tuple[str, ...] = ()  # under which the state has what a record has, if dense

    @property
    def _moments(self) -> int:
        return len(self._moment_names)

    def _dense_step(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update moments and weights of all rows, in step number state["step"]."""
        raise NotImplementedError

    def _history_step(self, state: State, group: Group) -> history.Step:
        """What step number state["step"] does to the rows that miss it."""
        raise NotImplementedError

    def group_of(self, p: Tensor) -> Group:
        """The parameter group of a parameter."""
        return next(g for g in self.param_groups if any(q is p for q in g["params"]))

    def owns(self, table: Tensor) -> bool:
        """Whether the table is one of its parameters."""
        tracked = self._tracked.get(id(table))
        return tracked is not None and tracked.table is table

    @torch.no_grad()
    def before_read(
        self, table: Tensor, rows: Tensor, base: int = 0, count: Tensor | None = None
    ) -> None:
        """A hash layer is about to read these rows: let them catch up."""
        self._notice_writes(table)
        self._catch_up(table, rows, range(len(table)), base, count)

    @torch.no_grad()
    def flush(self) -> None:
        """Apply all pending updates; takes as long as a step of the dense rule.

        Saving and copying do it by themselves. Call it before you read tables without their
        layers, and before you write some rows of a table by hand.
        """
        for tracked in self._tracked.values():
            self.apply_pending(tracked.table)

    @torch.no_grad()
    def apply_pending(self, table: Tensor) -> None:
        """Let all rows of a table catch up."""
        self._notice_writes(table)
        self._catch_up_all(table)

    @torch.no_grad()
    def discard_pending(self, table: Tensor) -> None:
        """Drop the pending updates of a table that others may have written to."""
        self._catch_up_all(table, move=False)
        self.adopt(table)

    def adopt(self, table: Tensor) -> None:
        """Take the table as it is now for the one that the state belongs to."""
        tracked = self._tracked.get(id(table))
        if tracked is not None:
            tracked.version = table._version
            tracked.factors, tracked.complete_at = (UNKNOWN, None), UNKNOWN

    def _notice_writes(self, p: Tensor) -> None:
        tracked = self._tracked.get(id(p))
        if tracked is not None and p._version != tracked.version:
            self.discard_pending(p)

    def _make_records(self, p: Tensor, state: State, epsilon: float) -> None:
        """State for sparse gradients, after none or some steps with dense ones.

        epsilon: what is added to the root of the second moment in the next step.
        """
        width, t = p.shape[1], int(state["step"])
        records = zero_records((len(p), row_kernels.record_width(width, self._moments)), p)
        if self._moment_names[0] in state:
            for i, name in enumerate(self._moment_names):
                records[:, i * width : (i + 1) * width] = state.pop(name)
            stamps_of(records)[:, self._moments * width] = t
        state["records"] = records
        state["history"] = history.make_history(t, epsilon, p.device)

    def _convert_tails(self, state: State, group: Group) -> None:
        """Convert a state that was saved before there were histories."""
        tails = state.pop("tails", None)
        if tails is not None:
            state["history"] = history.from_tails(tails, int(state["step"]), group["betas"])

    def _lazy_table(self, p: Tensor, state: State, group: Group) -> LazyTable:
        """What kernels need for rows to catch up to the present step."""
        self._convert_tails(state, group)
        records, past = state["records"], state["history"].numpy()
        tracked, now = self._tracked[id(p)], int(state["step"])
        known_at, factors = tracked.factors
        if factors is None or known_at != now:
            factors = history.recent_factors(past, now)
            tracked.factors = now, factors
        return LazyTable(memory(p), records.numpy(), stamps_of(records).numpy(), past, factors)

    def _catch_up(
        self,
        p: Tensor,
        rows: Tensor,
        span: range,
        base: int = 0,
        count: Tensor | None = None,
        move: bool = True,
    ) -> None:
        """Bring rows of a table, all within `span`, to the present step.

        Without `move` they stay as they are, and only their moments decay. `base` and `count` are
        for GPUs; see `Owner.before_read`.
        """
        state = self.state.get(p)
        if not state or "records" not in state:
            return
        numbers = (span.start, span.stop, int(state["step"]), self._moments, move)
        # The garbage collector may run at any time, even while threads are made.
        work = 0 if self._in_finalizer else rows.numel() * p.shape[1]
        table = self._lazy_table(p, state, self.group_of(p))
        run_kernel(row_kernels.catch_up_rows, work, table, as_array(rows), *numbers)

    def _catch_up_all(self, p: Tensor, move: bool = True) -> None:
        state, tracked = self.state.get(p), self._tracked.get(id(p))
        if not state or "records" not in state or tracked is None:
            return
        now = self._known_step(p, state)
        if now != UNKNOWN and tracked.complete_at == now:
            return
        for begin in range(0, len(p), _PIECE):
            span = range(begin, min(begin + _PIECE, len(p)))
            rows = torch.arange(span.start, span.stop, device=p.device)
            self._catch_up(p, rows, span, move=move)
        tracked.complete_at = now

    def _known_step(self, p: Tensor, state: State) -> int:
        return int(state["step"])

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
        self._make_dense_step(p, state, group, lambda: self._dense_step(p, grad, state, group))
        stamps_of(state["records"])[:, self._moments * p.shape[1]] = int(state["step"])

    def _make_dense_step(
        self, p: Tensor, state: State, group: Group, step: Callable[[], None]
    ) -> None:
        """Count a step of a lazy table, make it, and add it to the history."""
        self._begin_lazy_step(p, state, group)
        step()
        self._end_lazy_step(state, group)

    def _begin_lazy_step(self, p: Tensor, state: State, group: Group) -> tuple[int, LazyTable]:
        """Count a step -> its number, and what rows need to catch up before it.

        The history must have space for it: it grows at first; then, before a step would overwrite
        one that a row may still need, all rows catch up.
        """
        self._convert_tails(state, group)
        t, size = int(state["step"]) + 1, state["history"].shape[1]
        if t % (size // 2) == 0:
            if size < history.LONGEST:
                state["history"] = history.resized(state["history"], t - 1, 2 * size)
            else:
                self._catch_up_all(p)
        table = self._lazy_table(p, state, group)
        state["step"] = t
        return t, table

    def _end_lazy_step(self, state: State, group: Group) -> None:
        """Add the step to the history."""
        past = state["history"].numpy()
        history.add_step(past, int(state["step"]), self._history_step(state, group))
