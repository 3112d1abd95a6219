"""How good predictions are: accuracy, precision, recall and F1 of each class, confusion."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.labels import Labels

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LARGEST_PLOT = 40  # classes whose names still fit beside a confusion matrix


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of right and wrong answers; classes that the model does not know come last."""

    classes: list[Any]
    texts: int
    right: int  # texts with exactly the right classes
    truly: I64  # (C,), texts that have the class
    said: I64  # (C,), texts that the model gave the class
    hits: I64  # (C,), both
    confusion: I64 | None  # (C, C), truth by answer; None where a text may have several classes

    @property
    def accuracy(self) -> float:
        """Texts with exactly the right classes, of all."""
        return self.right / max(self.texts, 1)

    @property
    def precision(self) -> F64:
        """Of the texts given a class, those that have it (0 where there are none)."""
        return self.hits / np.maximum(self.said, 1)

    @property
    def recall(self) -> F64:
        """Of the texts that have a class, those given it (0 where there are none)."""
        return self.hits / np.maximum(self.truly, 1)

    @property
    def f1(self) -> F64:
        """The harmonic mean of both."""
        return np.asarray(2 * self.hits / np.maximum(self.said + self.truly, 1))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur, in the truth or in the answers."""
        occurs = (self.truly + self.said) > 0
        return float(self.f1[occurs].mean()) if occurs.any() else 0.0

    @property
    def micro_f1(self) -> float:
        """F1 over all texts and classes; with one class a text, the accuracy."""
        return float(2 * self.hits.sum() / max(int((self.said + self.truly).sum()), 1))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        columns = (self.precision, self.recall, self.f1, self.truly)
        return {
            "texts": self.texts,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "micro_f1": self.micro_f1,
            "classes": [
                {"class": c, "precision": p, "recall": r, "f1": f, "texts": n}
                for c, p, r, f, n in zip(
                    self.classes, *(column.tolist() for column in columns), strict=True
                )
            ],
            "confusion": None if self.confusion is None else self.confusion.tolist(),
        }

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the confusion matrix, or without one the F1 of the classes."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            message = 'drawing needs matplotlib: pip install "hashembed[plot]"'
            raise ImportError(message) from None

        names = [str(c) for c in self.classes]
        side = min(4 + 0.28 * len(names), 16)
        figure = Figure(figsize=(side + 1.5, side), layout="constrained")
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


def evaluate_answers(
    truth: Labels, answers: npt.NDArray[np.bool_], classes: list[Any], multilabel: bool
) -> Evaluation:
    """Answers (texts, classes the model knows) against the truth, which may have more classes."""
    known, size = answers.shape[1], len(classes)
    wanted = truth.matrix(size)
    given = np.zeros((len(answers), size), np.bool_)
    given[:, :known] = answers
    confusion = None
    if not multilabel:
        cells = truth.labels * size + given.argmax(axis=1)
        confusion = np.bincount(cells, minlength=size * size).reshape(size, size)
    return Evaluation(
        classes=classes,
        texts=len(answers),
        right=int((wanted == given).all(axis=1).sum()),
        truly=wanted.sum(axis=0),
        said=given.sum(axis=0),
        hits=(wanted & given).sum(axis=0),
        confusion=confusion,
    )
