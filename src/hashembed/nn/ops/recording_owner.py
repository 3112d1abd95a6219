"""What `recorded.py` needs to know about a row optimizer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from hashembed.nn.owners import Owner, Use

if TYPE_CHECKING:
    from hashembed.nn.gpu.rows import GradientTerms, Rule


class Settings(NamedTuple):
    """What the kernels of a step were recorded with, except for the learning rate."""

    rule: "Rule"
    group: dict[str, Any]  # the parameter group
    options: list[Any]  # of the group, as they were
    state: dict[str, Any]  # of the table
    held: tuple[Any, ...]  # the tensors of the state


class RecordingOwner(Owner, Protocol):
    """A row optimizer whose steps can be recorded; `nn/optim/recorded_steps.py` explains."""

    def recorder_of(self, table: Tensor, make: Callable[[], Any]) -> Any:
        """What records the calls of a table."""

    def settings_of(self, table: Tensor) -> Settings | None:
        """What the kernels of the next step depend on, except for the learning rate."""

    def still_has(self, table: Tensor, settings: Settings) -> bool:
        """Whether a step would launch the same kernels; also notices that others wrote."""

    def may_update_now(self, table: Tensor, use: Use | None) -> bool:
        """Whether no other place of a graph still needs the table as it is."""

    def update_by(self, table: Tensor, terms: "GradientTerms", rate: Tensor | None) -> None:
        """The kernels of a step."""

    def begin_recorded(self, table: Tensor, settings: Settings) -> None:
        """Before the graph of a step runs."""

    def end_recorded(self, table: Tensor) -> None:
        """After the graph of a step was started."""
