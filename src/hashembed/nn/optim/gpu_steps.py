"""When the row optimizers step on a GPU: after the backward pass, or inside it.

`nn/gpu/kernels/optimizer_rules.py` has the formulas.

With `in_backward` a backward pass updates the tables itself, from the terms of their gradients.
Where a graph uses a table several times, all terms have to be there before the first update.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hashembed.nn.ops.dispatch import HAS_TRITON
from hashembed.nn.optim import history
from hashembed.nn.optim.pending import UNKNOWN, PendingUpdates
from hashembed.nn.optim.tables import Group, State, is_capturing
from hashembed.nn.owners import Use

if HAS_TRITON or TYPE_CHECKING:
    from hashembed.nn.gpu import rows as cuda_rows


def on_gpu(table: Tensor) -> bool:
    """Whether the Triton kernels update the table."""
    return HAS_TRITON and table.is_cuda


class GpuSteps(PendingUpdates):
    """The part of a row optimizer that updates tables on a GPU."""

    _stepped: bool  # whether `step()` was ever called
    _decouples_decay = False  # whether weight decay works on tables, in steps or pending

    def _start(self, p: Tensor, sparse: bool, state: State, group: Group) -> None:
        """Fill the state of a parameter before its first update."""

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        """Update distinct rows (m,) by their gradients (m, width), on the CPU."""
        raise NotImplementedError

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        """The rule by which the kernels update the table."""
        raise NotImplementedError

    def _gpu_numbers(self, group: Group) -> "cuda_rows.Numbers":
        """The hyperparameters of a step on a GPU, without the learning rate."""
        return cuda_rows.Numbers(eps=float(group.get("eps", 0.0)))

    def updates_in_backward(self, table: Tensor) -> bool:
        """Whether this table has no gradient, but is updated by the backward pass itself."""
        return bool(self.group_of(table)["in_backward"])

    def has_updated_in_backward(self, table: Tensor) -> bool:
        """Whether a backward pass has updated the table."""
        return self._tracked[id(table)].updated_in_backward

    def use_of(self, table: Tensor) -> Use:
        """For a graph that will update the table: it keeps this, and gives it to `update`."""
        use = Use()
        self._tracked[id(table)].uses.add(use)
        return use

    @torch.no_grad()
    def update(self, table: Tensor, terms: "cuda_rows.GradientTerms", use: Use | None) -> None:
        """On a GPU, with `in_backward`: add up the terms of the gradient, and update the rows.

        If another graph, or another place in this one, still needs the table as it is, the update
        waits for the end of this backward pass.
        """
        if self.may_update_now(table, use):
            self._update_in_backward(table, terms)
            return
        tracked = self._tracked[id(table)]
        if not tracked.deferred:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._update_at_the_end(table))
        done = torch.cuda.current_stream(table.device).record_event() if table.is_cuda else None
        tracked.deferred.append((terms, done))

    def may_update_now(self, table: Tensor, use: Use | None) -> bool:
        """Whether no other place of a graph still needs the table as it is; `use` is done."""
        tracked = self._tracked[id(table)]
        if use is not None:
            tracked.uses.discard(use)
        task = torch._C._current_graph_task_id()
        if tracked.graph_task != task:
            tracked.graph_task, tracked.deferred = task, []  # a pass that failed may have left some
        return not tracked.uses and not tracked.deferred

    @torch.no_grad()
    def _update_at_the_end(self, table: Tensor) -> None:
        tracked = self._tracked[id(table)]
        deferred, tracked.deferred = tracked.deferred, []
        for terms, done in deferred:
            if done is not None:
                here = torch.cuda.current_stream(table.device)
                here.wait_event(done)
                for tensor in terms:
                    if isinstance(tensor, Tensor):
                        tensor.record_stream(here)
        found = [terms for terms, _ in deferred]
        self._update_in_backward(
            table, found[0] if len(found) == 1 else cuda_rows.join_terms(found, table)
        )

    def _update_in_backward(self, table: Tensor, terms: "cuda_rows.GradientTerms") -> None:
        self._count_update(table)
        for event in terms.wait_for:
            torch.cuda.current_stream(table.device).wait_event(event)
        self.update_by(table, terms)
        self._after_update(table)

    def update_by(
        self, table: Tensor, terms: "cuda_rows.GradientTerms", rate: Tensor | None = None
    ) -> None:
        """The kernels of an update by terms, all of whose rows have caught up.

        rate (): the learning rate on the GPU, instead of that of the parameter group.
        """
        with self.stepping(table, rate=rate) as rule:
            if terms.distinct is None:
                cuda_rows.sum_rows(terms, rule, behind=False)
            else:
                cuda_rows.update_terms(terms, rule, behind=False)

    def _count_update(self, table: Tensor) -> None:
        tracked = self._tracked[id(table)]
        if self._stepped:
            self._check_passes(tracked.passes + 1)
        tracked.passes += 1
        tracked.updated_in_backward = True

    def _after_update(self, table: Tensor) -> None:
        # A graph that still needs the table as it was must fail instead of using wrong numbers.
        torch.autograd.graph.increment_version(table)
        self.adopt(table)

    def _count_passes(self) -> None:
        """Begin a step: refuse tables that several backward passes updated since the last one."""
        for tracked in self._tracked.values():
            passes, tracked.passes = tracked.passes, 0
            self._check_passes(passes)
        self._stepped = True

    def _check_passes(self, passes: int) -> None:
        if passes > 1:
            raise RuntimeError(
                f"in_backward=True updates tables in every backward pass, found {passes} "
                "passes before one step(): gradients that add up over several passes need "
                "in_backward=False; otherwise call step() after each"
            )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """`GradScaler` asks before a step whether it has to undo its scaling."""
        if any(tracked.updated_in_backward for tracked in self._tracked.values()):
            raise RuntimeError(
                "in_backward=True has updated tables by gradients that GradScaler had scaled: "
                "use in_backward=False, or train in bfloat16, which needs no GradScaler"
            )
        return False

    @contextmanager
    def stepping(
        self, table: Tensor, finite: Tensor | None = None, rate: Tensor | None = None
    ) -> "Iterator[cuda_rows.Rule]":
        """One step of a table on a GPU: the rule by which to update its rows.

        If `finite` is 0 the table and its state stay as they are, and a learning rate on the GPU
        becomes 0. `rate` (): that rate, instead of that of the parameter group.
        """
        group = self.group_of(table)
        self._check_decay(group)
        with self._gpu_step(table, self._started(table), group, finite, rate) as rule:
            yield rule

    def rehearse(self, table: Tensor, finite: Tensor | None) -> "cuda_rows.Rule":
        """The kernels of a step, not counted, for `precompiling` -> the rule."""
        group = self.group_of(table)
        rule = self._ready_gpu_rule(table, self._started(table), group)
        cuda_rows.begin_step(rule, group["lr"], self._gpu_numbers(group), finite)
        if rule.history is not None:
            cuda_rows.end_step(rule)
        return rule

    def rule_of(self, table: Tensor) -> "cuda_rows.Rule":
        """The rule of a table on a GPU, as it is between steps."""
        return self._ready_gpu_rule(table, self._started(table), self.group_of(table))

    def _started(self, table: Tensor) -> State:
        self._notice_writes(table)
        state: State = self.state[table]
        if not state:
            self._start(table, True, state, self.group_of(table))
        return state

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
        self,
        p: Tensor,
        state: State,
        group: Group,
        finite: Tensor | None = None,
        rate: Tensor | None = None,
    ) -> "Iterator[cuda_rows.Rule]":
        """One step of the rule on a GPU, counted there: the host does not wait for it."""
        rule = self._ready_gpu_rule(p, state, group)
        if rule.history is not None and not is_capturing(p):
            self._count_gpu_step(p)
        lr = group["lr"] if rate is None else rate
        cuda_rows.begin_step(rule, lr, self._gpu_numbers(group), finite)
        yield rule
        if rule.history is not None:
            cuda_rows.end_step(rule)

    def _count_gpu_step(self, p: Tensor) -> None:
        tracked = self._tracked[id(p)]
        tracked.gpu_steps += 1
        if tracked.gpu_steps % (cuda_rows.RING // 2) == 0:  # no row may miss RING steps
            self._catch_up_all(p)

    def _update_sparse(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        """Update distinct rows (m,) by their gradients (m, width)."""
        self._check_decay(group)
        if on_gpu(p):
            with self._gpu_step(p, state, group) as rule:
                cuda_rows.update_rows(rule, rows, values)
        else:
            self._update_rows(p, rows, values, state, group)

    def _check_decay(self, group: Group) -> None:
        if group["weight_decay"] and not self._decouples_decay:
            raise ValueError(
                "weight_decay does not work with row gradients; use RowAdamW, or put the tables "
                "of hash layers into a parameter group with weight_decay=0"
            )

    def _history_on_gpu(self, state: State, group: Group) -> Tensor:
        """The history, of the length that the kernels expect."""
        self._convert_tails(state, group)
        past: Tensor = state["history"]
        if past.shape[1] != cuda_rows.RING:
            past = state["history"] = history.resized(past, int(state["step"]), cuda_rows.RING)
        return past

    def _catch_up(
        self,
        p: Tensor,
        rows: Tensor,
        span: range,
        base: int = 0,
        count: Tensor | None = None,
        move: bool = True,
    ) -> None:
        if not on_gpu(p):
            super()._catch_up(p, rows, span, base, count, move)
            return
        state = self.state.get(p)
        if state and "records" in state:
            rule = self._ready_gpu_rule(p, state, self.group_of(p))
            cuda_rows.catch_up(rule, rows, base, count, move=move)

    def _known_step(self, p: Tensor, state: State) -> int:
        """On a GPU the host does not see the steps of a CUDA graph."""
        return UNKNOWN if on_gpu(p) else super()._known_step(p, state)

    def _make_dense_step(
        self, p: Tensor, state: State, group: Group, step: Callable[[], None]
    ) -> None:
        if not on_gpu(p):
            super()._make_dense_step(p, state, group, step)
            return
        with self._gpu_step(p, state, group):
            step()
