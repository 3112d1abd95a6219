"""Compares two models on the same texts: which is better, how significantly, where they differ.

result = compare(old, new, texts, labels)
print(result)
result.p_value, result.differences
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hashembed.classify.classifier import TextClassifier
from hashembed.classify.metrics import Evaluation
from hashembed.classify.targets import encode
from hashembed.core import tables
from hashembed.core.printable import printable
from hashembed.text.arrow import to_arrow

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

Answer = frozenset[Any]

SHOWN_CLASSES = 20
SHOWN_TEXTS = 10
LONGEST = 60  # characters of a text in a table


@dataclass(frozen=True)
class Difference:
    """A text that the models answer differently. Multi-label answers are tuples."""

    number: int  # of the text, from 1
    text: str
    truth: Any
    first: Any
    second: Any


@dataclass(frozen=True)
class ClassChange:
    """One class, and its F1 with each model."""

    label: Any
    texts: int
    first_f1: float
    second_f1: float

    @property
    def change(self) -> float:
        """The F1 that the second model gains."""
        return self.second_f1 - self.first_f1


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models on the same texts.

    first, second: the evaluation of each model. only_first, only_second: number of texts that only
    this model answers right; both_right, both_wrong: number of the others. differences: all texts
    with different answers, also where both are wrong. names: the models' names in tables.
    """

    first: Evaluation
    second: Evaluation
    both_right: int
    only_first: int
    only_second: int
    both_wrong: int
    differences: list[Difference]
    names: tuple[str, str] = ("first", "second")

    @property
    def texts(self) -> int:
        """The number of texts."""
        return self.first.texts

    @property
    def p_value(self) -> float:
        """McNemar's exact test: the chance of such a difference if the models are equally good."""
        return mcnemar(self.only_first, self.only_second)

    @property
    def classes(self) -> list[ClassChange]:
        """All classes of the models and of the truth, sorted by the change of F1."""
        first, second = (
            dict(zip(e.classes, zip(e.truly.tolist(), e.f1.tolist(), strict=True), strict=True))
            for e in (self.first, self.second)
        )
        none = (0, 0.0)
        made = [
            ClassChange(
                label,
                max(first.get(label, none)[0], second.get(label, none)[0]),
                first.get(label, none)[1],
                second.get(label, none)[1],
            )
            for label in dict.fromkeys([*first, *second])
        ]
        return sorted(made, key=lambda c: -abs(c.change))

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        counts = ("texts", "both_right", "only_first", "only_second", "both_wrong", "p_value")
        return {
            "models": list(self.names),
            **{name: getattr(self, name) for name in counts},
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "classes": [{**asdict(c), "change": c.change} for c in self.classes],
            "differences": [asdict(d) for d in self.differences],
        }

    def __str__(self) -> str:
        return tables.plain(self.__rich__())

    def __rich__(self) -> "Group":
        return self.view(SHOWN_TEXTS)

    def view(self, show: int) -> "Group":
        """Tables for rich's console, with `show` of the texts with different answers."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [tables.terminal_table(*self._measures()), ""]
        parts += [Text(line) for line in self._lines()]
        parts += ["", tables.terminal_table(*self._changes()), *self._more_classes()]
        if show and self.differences:
            parts += ["", tables.terminal_table(*self._texts(show))]
        return Group(*parts)

    def _repr_html_(self) -> str:
        parts = [tables.html_table(*self._measures())]
        parts += [f"<p>{escape(line)}</p>" for line in self._lines()]
        parts.append(tables.html_table(*self._changes()))
        if self.differences:
            parts.append(tables.html_table(*self._texts(SHOWN_TEXTS)))
        return f"<div>{''.join(parts)}</div>"

    def _measures(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [name, *(f"{getattr(e, field):.4f}" for e in (self.first, self.second))]
            for name, field in (
                ("accuracy", "accuracy"),
                ("macro F1", "macro_f1"),
                ("micro F1", "micro_f1"),
            )
        ]
        return ["", *self.names], rows

    def _lines(self) -> list[str]:
        first, second = (printable(name) for name in self.names)
        return [
            f"{self.texts:,} texts: both right {self.both_right:,}, both wrong "
            f"{self.both_wrong:,}, only {first} right {self.only_first:,}, only {second} right "
            f"{self.only_second:,}",
            f"answers differ for {len(self.differences):,} texts; McNemar's exact test: "
            f"p = {self.p_value:.3g}",
        ]

    def _changes(self) -> tuple[list[str], list[list[str]]]:
        first, second = self.names
        rows = [
            [
                str(c.label),
                f"{c.texts:,}",
                f"{c.first_f1:.3f}",
                f"{c.second_f1:.3f}",
                f"{c.change:+.3f}",
            ]
            for c in self.classes[:SHOWN_CLASSES]
        ]
        return ["class", "texts", f"F1 {first}", f"F1 {second}", "change"], rows

    def _more_classes(self) -> list[str]:
        rest = len(self.classes) - SHOWN_CLASSES
        return [f"and {rest:,} classes that change less"] if rest > 0 else []

    def _texts(self, show: int) -> tuple[list[str], list[list[str]], list[int]]:
        rows = [
            [
                f"{d.number:,}",
                _spelled(d.truth),
                _spelled(d.first),
                _spelled(d.second),
                _cut(d.text),
            ]
            for d in self.differences[:show]
        ]
        return ["text", "truth", *self.names, ""], rows, [1, 2, 3, 4]


def compare(
    first: TextClassifier,
    second: TextClassifier,
    texts: Any,
    labels: Any,
    *,
    names: tuple[str, str] = ("first", "second"),
) -> Comparison:
    """Compare two models on the same labelled texts.

    The models may know different classes. A multi-label answer is right if it has exactly the right
    labels. `names` are the models' names in tables.
    """
    kinds = {clf.classes_.dtype.kind: clf.classes_.dtype.type.__name__ for clf in (first, second)}
    if len(kinds) > 1:
        raise ValueError(
            f"the classes of both models must have the same type, found "
            f"{' and '.join(kinds.values())}: train both on labels of one type, such as str"
        )
    column = to_arrow(texts)
    answers = [_sets(clf.predict(column), clf) for clf in (first, second)]
    several = any(clf.label_form_ != "single" for clf in (first, second))
    wider = second if second.label_form_ != "single" else first
    truth = _sets(labels, wider)
    right = np.array([[a == t for a, t in zip(row, truth, strict=True)] for row in answers], bool)
    return Comparison(
        first=first.evaluate(column, labels),
        second=second.evaluate(column, labels),
        both_right=int((right[0] & right[1]).sum()),
        only_first=int((right[0] & ~right[1]).sum()),
        only_second=int((~right[0] & right[1]).sum()),
        both_wrong=int((~right[0] & ~right[1]).sum()),
        differences=_differences(column, truth, answers, several),
        names=names,
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test.

    If the models were equally good, each text that only one of them answers right would be a toss
    of a fair coin; p is the chance of a split at least as uneven.

    Example:
        >>> mcnemar(1, 9)
        0.021484375
    """
    n, few = only_first + only_second, min(only_first, only_second)
    if 2 * few == n:
        return 1.0
    if n <= 1000:  # exact, in whole numbers
        return float(min(1.0, 2 * sum(math.comb(n, i) for i in range(few + 1)) / 2**n))
    logarithm = math.lgamma(n + 1) - math.lgamma(few + 1) - math.lgamma(n - few + 1)
    term = total = 1.0  # relative to the largest term, which comes first
    for i in range(few, 0, -1):
        term *= i / (n - i + 1)
        total += term
        if term < 1e-17 * total:
            break
    return min(1.0, 2 * total * math.exp(logarithm - n * math.log(2)))


def _sets(labels: Any, clf: TextClassifier) -> list[Answer]:
    """The labels of each text as a set, from labels of any form."""
    targets = encode(labels, clf.classes_, clf.label_form_)
    classes = targets.classes[targets.labels.labels].tolist()
    edges = targets.labels.offsets.tolist()
    return [frozenset(classes[a:b]) for a, b in pairwise(edges)]


def _differences(
    column: pa.ChunkedArray, truth: list[Answer], answers: Sequence[list[Answer]], several: bool
) -> list[Difference]:
    first, second = answers
    where = [i for i in range(len(truth)) if first[i] != second[i]]
    texts = [column[i].as_py() or b"" for i in where]

    def shown(answer: Answer) -> Any:
        return tuple(sorted(answer)) if several else next(iter(answer))

    return [
        Difference(i + 1, _decoded(text), shown(truth[i]), shown(first[i]), shown(second[i]))
        for i, text in zip(where, texts, strict=True)
    ]


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf8", "replace")


def _spelled(answer: Any) -> str:
    return ", ".join(map(str, answer)) or "(none)" if isinstance(answer, tuple) else str(answer)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
