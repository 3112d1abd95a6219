"""What happened in training, pass by pass."""

from dataclasses import asdict, dataclass, field, replace
from math import nan
from os import PathLike
from typing import Any, Literal

from hashembed.core.checks import one_of, whole_number
from hashembed.core.plotting import new_figure
from hashembed.core.tables import html_table

Monitor = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data."""

    number: int  # from 0
    loss: float  # mean over the documents, each before its own update
    learning_rate: float  # at the end of the pass
    seconds: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None

    def __str__(self) -> str:
        line = f"pass {self.number + 1}: loss {self.loss:.4f}"
        if self.validation_loss is None or self.validation_accuracy is None:
            return line
        return (
            f"{line}, validation loss {self.validation_loss:.4f}, "
            f"accuracy {self.validation_accuracy:.2%}"
        )


@dataclass
class History:
    """All passes; `stopped` says why training ended early, or is None."""

    epochs: list[Epoch] = field(default_factory=list)
    stopped: str | None = None
    monitor: Monitor = "loss"  # the validation figure that decides which pass is best

    @property
    def best(self) -> Epoch:
        """The pass with the best validation loss or accuracy; without validation, the last one."""
        if not self.epochs:
            raise ValueError("the history is empty: nothing has been trained")
        validated = [e for e in self.epochs if e.validation_loss is not None]
        return min(validated, key=self.measure, default=self.epochs[-1])

    def measure(self, epoch: Epoch) -> float:
        """The figure to minimise: the validation loss or error rate of a pass."""
        if self.monitor == "accuracy":
            return 1 - (epoch.validation_accuracy or 0.0)
        return epoch.validation_loss or 0.0

    def outcome(self) -> str:
        """Why training stopped early and which pass was kept; empty if there is nothing to say."""
        lines = [f"Stopped: {self.stopped}."] if self.stopped else []
        if self.epochs and self.best.validation_loss is not None:
            lines.append(
                f"Kept pass {self.best.number + 1} of {len(self.epochs)}: the best validation "
                f"{self.monitor} (loss {self.best.validation_loss:.4f}, "
                f"accuracy {self.best.validation_accuracy:.2%})."
            )
        return "\n".join(lines)

    @property
    def seconds(self) -> float:
        """Time spent on training."""
        return sum(epoch.seconds for epoch in self.epochs)

    def without_times(self) -> "History":
        """The same with 0 seconds: what is left depends on data and settings alone."""
        return replace(self, epochs=[replace(epoch, seconds=0.0) for epoch in self.epochs])

    def to_dict(self) -> dict[str, Any]:
        """The history as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "History":
        """The history from `to_dict`; a TypeError or ValueError if `saved` is something else."""
        epochs = [Epoch(**epoch) for epoch in saved["epochs"]]
        for epoch in epochs:
            numbers = (epoch.loss, epoch.learning_rate, epoch.seconds)
            measured = (epoch.validation_loss, epoch.validation_accuracy)
            whole_number("the number of a pass", epoch.number, 0, 2**31)
            for x in (*numbers, *(x for x in measured if x is not None)):
                if type(x) not in (int, float):
                    raise TypeError(f"the history holds {x!r:.20}, expected a number")
        stopped, monitor = saved["stopped"], saved.get("monitor", "loss")
        if stopped is not None and not isinstance(stopped, str):
            raise TypeError(f"the history was stopped by {stopped!r:.20}, expected a text")
        one_of("monitor", monitor, ("loss", "accuracy"))
        return cls(epochs, stopped, monitor)

    def _repr_html_(self) -> str:
        from html import escape

        heads = ["pass", "loss", "learning rate", "seconds"]
        validated = any(epoch.validation_loss is not None for epoch in self.epochs)
        heads += ["validation loss", "validation accuracy"] if validated else []
        rows = []
        for e in self.epochs:
            cells = [f"{e.number + 1}", f"{e.loss:.4f}", f"{e.learning_rate:.4g}"]
            cells += [f"{e.seconds:.2f}", _cell(e.validation_loss, ".4f")]
            rows.append([*cells, _cell(e.validation_accuracy, ".2%")][: len(heads)])
        told = "".join(f"<p>{escape(line)}</p>" for line in self.outcome().splitlines())
        return f"<div>{html_table(heads, rows, words=())}{told}</div>"

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw loss and validation accuracy over the passes."""
        figure = new_figure("a history", 7, 4.5)
        axes = figure.subplots()
        numbers = [epoch.number + 1 for epoch in self.epochs]
        axes.plot(numbers, [epoch.loss for epoch in self.epochs], "o-", label="training loss")
        axes.set(xlabel="pass", ylabel="loss")
        if any(epoch.validation_loss is not None for epoch in self.epochs):
            losses = [epoch.validation_loss or nan for epoch in self.epochs]
            axes.plot(numbers, losses, "s-", label="validation loss")
            right = axes.twinx()
            accuracies = [epoch.validation_accuracy or nan for epoch in self.epochs]
            right.plot(numbers, accuracies, "^--", color="C2", label="validation accuracy")
            right.set(ylabel="accuracy")
            right.legend(loc="upper right")
        axes.legend(loc="upper left")
        figure.savefig(path)


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
