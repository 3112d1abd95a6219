"""The explanation of one text: contributions of its n-grams, and the evidence they add up to."""

from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.classify.explain import render as explain_views
from hashembed.classify.explain.render import Line, Sheet, shown
from hashembed.core.arrays import F64
from hashembed.core.printable import printable
from hashembed.engine.protocol import to_probabilities
from hashembed.text.spans import NGram

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Term:
    """An n-gram with all its occurrences in the text. Its evidence is their sum."""

    text: str
    subword: bool
    evidence: float
    importance: float | None
    places: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Explanation:
    """How the n-grams of a text add up to its logits.

    text, classes: what was explained. ngrams: all occurrences, in the order of the text.
    contributions: of each n-gram to each logit (n, C); with `bias` (C,) they sum to `logits` (C,).
    importances: |p_w| of each n-gram (n,), or None if the model has no importance weights.
    words: start and end of each word, in characters of the text.
    multilabel: whether probabilities are sigmoids; otherwise they are a softmax.
    exact: False for an occlusion, whose sum only approximates the logits; see `unexplained`.
    asked: the class that the views show, see `about`; None is the most likely one.

    `print` shows a table; rich and notebooks also show the text in colours.
    """

    text: str
    classes: list[Any]
    ngrams: list[NGram]
    contributions: F64
    bias: F64
    logits: F64
    importances: F64 | None
    words: list[tuple[int, int]]
    multilabel: bool = False
    exact: bool = True
    asked: Any = None

    @property
    def probabilities(self) -> F64:
        """The probabilities of the classes: (C,)."""
        return to_probabilities(self.logits, self.multilabel)

    @property
    def predicted(self) -> Any:
        """The most likely class."""
        return self.classes[int(self.logits.argmax())]

    @property
    def unexplained(self) -> F64:
        """Logits minus bias and contributions (C,). If exact, this is rounding error."""
        return np.asarray(self.logits - self.bias - self.contributions.sum(axis=0))

    @property
    def evidence(self) -> F64:
        """Evidence for or against each class (n, C): contributions `relative` to other classes."""
        return self.relative(self.contributions)

    @property
    def word_contributions(self) -> F64:
        """Contributions by word (words, C). The words of an n-gram share its contribution equally.

        With the bias, these also sum to the logits.
        """
        out = np.zeros((len(self.words), len(self.classes)))
        for ngram, contribution in zip(self.ngrams, self.contributions, strict=True):
            out[ngram.word : ngram.word + ngram.words] += contribution / ngram.words
        return out

    def about(self, label: Any) -> "Explanation":
        """The same explanation, shown for this class."""
        return replace(self, asked=self.classes[self.class_index(label)])

    def top(self, label: Any = None, n: int | None = 10) -> list[Term]:
        """The n n-grams (None: all) with the most evidence for or against a class.

        Without a label it is the class asked about. Occurrences of an n-gram are added up. The
        strongest comes first; negative evidence speaks against the class.
        """
        column = self.evidence[:, self.class_index(label)]
        terms: dict[tuple[str, bool], list[int]] = {}
        for i, ngram in enumerate(self.ngrams):
            terms.setdefault((ngram.text, ngram.subword), []).append(i)
        made = [
            Term(
                text,
                subword,
                float(column[at].sum()),
                None if self.importances is None else float(self.importances[at[0]]),
                [(self.ngrams[i].start, self.ngrams[i].end) for i in at],
            )
            for (text, subword), at in terms.items()
        ]
        return sorted(made, key=lambda term: -abs(term.evidence))[:n]

    def class_index(self, label: Any = None) -> int:
        """The column of a class; None is the class asked about."""
        label = self.asked if label is None else label
        if label is None:
            return int(self.logits.argmax())
        if label not in self.classes:
            listed = ", ".join(repr(known) for known in self.classes[:10])
            more = ", ..." if len(self.classes) > 10 else ""
            raise ValueError(f"found no class {label!r}, the classes are {listed}{more}")
        return self.classes.index(label)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        weights = [None] * len(self.ngrams) if self.importances is None else self.importances
        return {
            "text": self.text,
            "predicted": self.predicted,
            "class": self.classes[self.class_index()],
            "exact": self.exact,
            "multilabel": self.multilabel,
            "classes": self.classes,
            "probabilities": self.probabilities.tolist(),
            "logits": self.logits.tolist(),
            "bias": self.bias.tolist(),
            "ngrams": [
                {
                    **asdict(ngram),
                    "importance": None if weight is None else float(weight),
                    "contributions": contribution,
                }
                for ngram, weight, contribution in zip(
                    self.ngrams, weights, self.contributions.tolist(), strict=True
                )
            ],
            "words": [
                {"start": start, "end": end, "contributions": contribution}
                for (start, end), contribution in zip(
                    self.words, self.word_contributions.tolist(), strict=True
                )
            ],
        }

    def summary(self, n: int = 10) -> dict[str, Any]:
        """A short form as JSON values: the n strongest n-grams for and against the class.

        Their evidence, that of the `others`, the bias and, unless it is exact, `unexplained` add up
        to `sum`.
        """
        c = self.class_index()
        terms = self.top(n=None)
        ends = {"bias": self.bias, "unexplained": self.unexplained, "sum": self.logits}
        if self.exact:
            del ends["unexplained"]
        return {
            "text": self.text,
            "predicted": self.predicted,
            "class": self.classes[c],
            "probability": float(self.probabilities[c]),
            "exact": self.exact,
            "ngrams": [asdict(term) for term in terms[:n]],
            "others": sum(term.evidence for term in terms[n:]),
            **{name: float(self.relative(value)[c]) for name, value in ends.items()},
        }

    def __str__(self) -> str:
        return explain_views.as_text(self._sheet())

    def __rich__(self) -> "RenderableType":
        return explain_views.for_terminal(self._sheet())

    def _repr_html_(self) -> str:
        return explain_views.as_html(self._sheet())

    def plot(self, path: str | PathLike[str], label: Any = None, n: int = 20) -> None:
        """Draw the n strongest n-grams for and against a class; by default the one asked about."""
        c = self.class_index(label)
        bars = [(shown(term.text, term.subword), term.evidence) for term in self.top(label, n)]
        name = printable(str(self.classes[c]))
        title = f"{name}: {self.probabilities[c]:.1%}"
        explain_views.draw_bars(path, bars, f"evidence for {name}", title)

    def _sheet(self, n: int = 12, most_classes: int = 4) -> Sheet:
        """The content of a view: the whole text, n n-grams, and how they add up."""
        likely = np.argsort(-self.probabilities, kind="stable")[:most_classes].tolist()
        asked = self.class_index()
        listed = [self._named(c) for c in likely]
        listed += ["..."] if len(self.classes) > most_classes else []
        listed += [self._named(asked)] if asked not in likely else []
        label = printable(str(self.classes[asked]))
        return Sheet(", ".join(listed), label, self._pieces(), self._lines(n))

    def _named(self, c: int) -> str:
        return f"{printable(str(self.classes[c]))} {self.probabilities[c]:.1%}"

    def _pieces(self) -> list[tuple[str, float]]:
        pieces, at = [], 0
        evidence = self.relative(self.word_contributions)[:, self.class_index()]
        for (start, end), value in zip(self.words, evidence.tolist(), strict=True):
            pieces += [(self.text[at:start], 0.0), (self.text[start:end], value)]
            at = end
        return [*pieces, (self.text[at:], 0.0)]

    def _lines(self, n: int) -> list[Line]:
        terms, c = self.top(n=None), self.class_index()
        if not terms:
            return []
        lines = [
            Line(
                term.evidence,
                shown(term.text, term.subword),
                str(len(term.places)),
                "" if term.importance is None else f"{term.importance:.3f}",
            )
            for term in terms[:n]
        ]
        if terms[n:]:
            rest = sum(term.evidence for term in terms[n:])
            lines.append(Line(rest, f"({len(terms) - n:,} others)"))
        ends = [("(bias)", self.bias), ("(sum)", self.logits)]
        if not self.exact:
            ends.insert(1, ("(unexplained)", self.unexplained))
        return lines + [Line(float(self.relative(value)[c]), name) for name, value in ends]

    def relative(self, values: F64) -> F64:
        """Values (..., C) as evidence; see the function of this name."""
        return relative(values, self.multilabel)


def relative(values: F64, multilabel: bool) -> F64:
    """Values (..., C) minus their mean over the classes.

    Adding the same value to all logits does not change a softmax. For sigmoids, and for a single
    class, values stay as they are.
    """
    if multilabel or values.shape[-1] == 1:
        return values
    return np.asarray(values - values.mean(axis=-1, keepdims=True))
