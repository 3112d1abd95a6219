"""Accuracy, confusion, and precision, recall and F1 of each class; how good probabilities are."""

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.classify.calibration import Reliability
from hashembed.core import tables
from hashembed.core.arrays import F64, I64
from hashembed.core.plotting import new_figure
from hashembed.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


LARGEST_PLOT = 40  # most classes whose names fit next to a confusion matrix
WIDEST = 12  # most classes whose confusion matrix fits a terminal
PAIRS = 10  # most frequent mistakes, shown instead


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of right and wrong answers. Classes that the model does not know come last."""

    classes: list[Any]
    texts: int
    right: int  # texts answered right, see `right_texts` in `tally.py`
    truly: I64  # (C,), texts that have the class
    said: I64  # (C,), texts to which the model gave the class
    hits: I64  # (C,), texts with both
    confusion: I64 | None  # (C, C), truth by answer; None if a text may have several answers
    answered: int  # texts to which the model gave any class
    known: int  # classes that the model knows: the first of `classes`
    log_loss: float  # mean of -log(probability of the truth), see `text_losses`
    average_precision: F64  # (C,), area below precision over recall; 0 for a class without texts
    reliability: Reliability  # answers by their confidence
    threshold: float | None = None  # as given to `evaluate`
    top: int | None = None

    @property
    def accuracy(self) -> float:
        """The share of texts with exactly the right classes.

        With one class per text, and `top` or `threshold`: the share of texts whose class is among
        the answers.
        """
        return self.right / max(self.texts, 1)

    @property
    def precision(self) -> F64:
        """Of each class: the share of answers that are right (0 without answers)."""
        return self.hits / np.maximum(self.said, 1)

    @property
    def recall(self) -> F64:
        """Of each class: the share of its texts that were found (0 without texts)."""
        return self.hits / np.maximum(self.truly, 1)

    @property
    def f1(self) -> F64:
        """Of each class: the harmonic mean of precision and recall."""
        return np.asarray(2 * self.hits / np.maximum(self.said + self.truly, 1))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur in the truth or in the answers."""
        occurs = (self.truly + self.said) > 0
        return float(self.f1[occurs].mean()) if occurs.any() else 0.0

    @property
    def micro_f1(self) -> float:
        """F1 over all texts and classes. With one class per text it is the accuracy."""
        return float(2 * self.hits.sum() / max(int((self.said + self.truly).sum()), 1))

    @property
    def micro_precision(self) -> float:
        """The share of all answers that are right: fastText's precision at k."""
        return float(self.hits.sum() / max(int(self.said.sum()), 1))

    @property
    def micro_recall(self) -> float:
        """The share of all true labels that were found: fastText's recall at k."""
        return float(self.hits.sum() / max(int(self.truly.sum()), 1))

    @property
    def macro_average_precision(self) -> float:
        """The mean average precision of the classes that occur in the truth."""
        occurs = self.truly > 0
        return float(self.average_precision[occurs].mean()) if occurs.any() else 0.0

    @property
    def calibration_error(self) -> float:
        """The expected calibration error (ECE): how far confidence and accuracy are apart."""
        return self.reliability.error

    def to_dict(self) -> dict[str, Any]:
        """The measures as JSON values."""
        columns = (self.precision, self.recall, self.f1, self.average_precision, self.truly)
        return {
            "texts": self.texts,
            "answered": self.answered,
            "threshold": self.threshold,
            "top": self.top,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "micro_f1": self.micro_f1,
            "micro_precision": self.micro_precision,
            "micro_recall": self.micro_recall,
            "log_loss": self.log_loss,
            "macro_average_precision": self.macro_average_precision,
            "calibration_error": self.calibration_error,
            "classes": [
                {
                    "class": c,
                    "precision": p,
                    "recall": r,
                    "f1": f,
                    "average_precision": a,
                    "texts": n,
                }
                for c, p, r, f, a, n in zip(
                    self.classes, *(column.tolist() for column in columns), strict=True
                )
            ],
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "reliability": self.reliability.to_list(),
        }

    def __str__(self) -> str:
        return tables.plain(self.__rich__())

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [tables.terminal_table(*self._class_table()), ""]
        if self.confusion is not None and len(self.classes) <= WIDEST:
            parts += [tables.terminal_table(*self._confusion_table()), ""]
        return Group(*parts, *(Text(line) for line in self._lines()))

    def _repr_html_(self) -> str:
        from html import escape

        parts = [tables.html_table(*self._class_table())]
        if self.confusion is not None and len(self.classes) <= WIDEST:
            parts.append(tables.html_table(*self._confusion_table()))
        parts += [f"<p>{escape(line)}</p>" for line in self._lines() if line]
        return f"<div>{''.join(parts)}</div>"

    def _class_table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows."""
        columns = (self.precision, self.recall, self.f1)
        rows = [
            [str(name), *(f"{column[i]:.3f}" for column in columns), f"{self.truly[i]:,}"]
            for i, name in enumerate(self.classes)
        ]
        return ["class", "precision", "recall", "F1", "texts"], rows

    def _confusion_table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows."""
        assert self.confusion is not None
        names = [str(name) for name in self.classes]
        rows = [
            [name, *(f"{n:,}" if n else "." for n in counts)]
            for name, counts in zip(names, self.confusion.tolist(), strict=True)
        ]
        return ["truth \\ answer", *names], rows

    def _lines(self) -> list[str]:
        """The lines below the tables, without control characters."""
        lines = self._mistakes()
        if self.threshold is not None or self.top is not None:
            lines += [self._asked()]
        lines += [
            f"log loss {self.log_loss:.4f}   average precision "
            f"{self.macro_average_precision:.4f}   calibration error {self.calibration_error:.4f}",
            f"accuracy {self.accuracy:.4f}   macro F1 {self.macro_f1:.4f}   "
            f"micro F1 {self.micro_f1:.4f}   {self.texts:,} texts",
        ]
        if len(self.classes) > self.known:
            names = ", ".join(printable(str(c)) for c in self.classes[self.known :])
            lines.append(
                f"The model does not know these labels, so it is wrong about them: {names}"
            )
        return lines

    def _asked(self) -> str:
        """The limits of the answers, and what fastText calls P@k and R@k."""
        limits = [] if self.top is None else [f"at most {self.top:,} per text"]
        limits += [] if self.threshold is None else [f"above {self.threshold:g}"]
        return (
            f"answers {', '.join(limits)}: precision {self.micro_precision:.4f}   "
            f"recall {self.micro_recall:.4f}   {self.answered:,} texts answered"
        )

    def _mistakes(self) -> list[str]:
        """The most frequent mistakes, if the confusion matrix is too wide to show."""
        size = len(self.classes)
        if self.confusion is None or size <= WIDEST:
            return []
        wrong = self.confusion.copy()
        wrong.flat[:: size + 1] = 0
        worst = wrong.ravel().argsort(kind="stable")[::-1][:PAIRS].tolist()
        names = [printable(str(name)) for name in self.classes]
        return [
            "most frequent mistakes:",
            *(
                f"  {wrong.flat[cell]:>7,}  {names[cell // size]} taken for {names[cell % size]}"
                for cell in worst
                if wrong.flat[cell]
            ),
            "",
        ]

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the confusion matrix; without one, the F1 of the classes."""
        names = [str(c) for c in self.classes]
        side = min(4 + 0.28 * len(names), 16)
        figure = new_figure("an evaluation", side + 1.5, side)
        axes = figure.subplots()
        if self.confusion is None:
            order = np.argsort(self.f1)
            axes.barh([names[i] for i in order], self.f1[order])
            axes.set(xlabel="F1", xlim=(0, 1))
        else:
            shares = self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
            image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
            figure.colorbar(image, label="share of the texts of a class")
            axes.set(xlabel="answer", ylabel="truth")
            if len(names) <= LARGEST_PLOT:
                axes.set_xticks(range(len(names)), names, rotation=90)
                axes.set_yticks(range(len(names)), names)
        axes.set_title(f"accuracy {self.accuracy:.1%} on {self.texts:,} texts")
        figure.savefig(path)

    def plot_reliability(self, path: str | PathLike[str]) -> None:
        """Draw the share of right answers for each confidence: on the diagonal if calibrated."""
        self.reliability.plot(path)
