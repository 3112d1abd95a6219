"""Steps on a GPU whose kernels were recorded in a CUDA graph; `nn/ops/recorded.py` records them.

A recorded step does on the host what an ordinary one does: it counts, and it refuses what an
ordinary one refuses. Only its kernels come from the graph.
"""

from collections.abc import Callable
from operator import is_
from typing import Any

import torch
from torch import Tensor

from hashembed.nn.ops.recording_owner import Settings
from hashembed.nn.optim.gpu_steps import GpuSteps
from hashembed.nn.optim.tables import Group, State


def _options(group: Group) -> list[Any]:
    return [value for name, value in group.items() if name not in ("params", "lr")]


class RecordedSteps(GpuSteps):
    """The part of a row optimizer that makes recorded steps."""

    def recorder_of(self, table: Tensor, make: Callable[[], Any]) -> Any:
        """What records the calls of this table."""
        tracked = self._tracked[id(table)]
        if tracked.recorder is None:
            tracked.recorder = make()
        return tracked.recorder

    def settings_of(self, table: Tensor) -> Settings | None:
        """Those of the next step; None before the first step."""
        if not self.state.get(table):
            return None
        group = self.group_of(table)
        self._check_decay(group)
        rule = self.rule_of(table)  # it may change the state
        state: State = self.state[table]
        return Settings(rule, group, _options(group), state, tuple(state.values()))

    def still_has(self, table: Tensor, settings: Settings) -> bool:
        """Whether a step would launch the same kernels; also notices that others wrote."""
        self._notice_writes(table)
        state = self.state.get(table)
        return (
            state is settings.state
            and len(state) == len(settings.held)
            and all(map(is_, state.values(), settings.held))
            and any(group is settings.group for group in self.param_groups)
            and _options(settings.group) == settings.options
        )

    @torch.no_grad()
    def begin_recorded(self, table: Tensor, settings: Settings) -> None:
        """Before the graph of a step runs."""
        self._count_update(table)
        if settings.rule.history is not None:
            self._count_gpu_step(table)

    def end_recorded(self, table: Tensor) -> None:
        """After the graph of a step was started."""
        self._after_update(table)
