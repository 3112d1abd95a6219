"""The table of a model's most and least important n-grams."""

from dataclasses import asdict, dataclass
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, get_args

from hashembed.classify.explain import render as explain_views
from hashembed.classify.explain.render import shown, visible
from hashembed.core import tables
from hashembed.core.wording import named

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

By = Literal["weight", "evidence"]
BY: tuple[By, ...] = get_args(By)


@dataclass(frozen=True)
class Word:
    """One n-gram of the corpus.

    text: the n-gram, as it is hashed. subword: whether it is a character n-gram.
    count: it was seen at least this often, and at most `missed` times more.
    weight: |p_w|, the norm of its k importance weights; None if the model has none. In an ensemble
        it is the mean over the members, and so is the evidence.
    speaks_for: the class that it supports most. evidence: how much it adds to the logit of that
        class, minus the mean over the classes (multi-label models: no mean).
    collision: the chance that another n-gram of the corpus, at least as frequent, shares its row
        of importance weights. The weights may then be due to that one. In an ensemble it is the
        chance in one member, and so the share of members to expect it in.
    shares_row_with: the most frequent other n-gram in its row with at least `min_count`, if any.
        None in an ensemble: an n-gram has a row in each member.
    """

    text: str
    subword: bool
    count: int
    missed: int
    weight: float | None
    speaks_for: Any
    evidence: float
    collision: float
    shares_row_with: str | None


@dataclass(frozen=True)
class WordsTable:
    """The most and the least important n-grams, each list with the most extreme first.

    by: the measure of importance. looked_at: the number of n-grams that may have been seen
    `min_count` times; all with at least `complete_from` occurrences are among them. total,
    distinct: n-grams in the corpus. same_row, same_vector: the chances that an n-gram shares its
    importance weights, or its whole vector, with any other n-gram of the corpus. In an ensemble of
    several `members`, same_row is the chance in one member, same_vector that in all of them.
    """

    most: list[Word]
    least: list[Word]
    by: By
    min_count: int
    looked_at: int
    complete_from: int
    total: int
    distinct: int
    same_row: float
    same_vector: float
    members: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return tables.plain(self.__rich__())

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        if not self.most:
            return Group(Text(f"{self._none()}\n{self._numbers()}"))
        parts: list[RenderableType] = []
        for table in self._tables():
            parts += [tables.terminal_table(*table), ""]
        return Group(*parts, Text(self._numbers()))

    def _repr_html_(self) -> str:
        parts = [tables.html_table(*table) for table in self._tables()]
        if not parts:
            parts.append(f"<p>{escape(self._none())}</p>")
        parts += [f"<p>{escape(line)}</p>" for line in self._numbers().splitlines()]
        return f"<div>{''.join(parts)}</div>"

    def _none(self) -> str:
        lower = f"give a lower {named('min_count')} or more text"
        return f"No n-gram was seen at least {self.min_count:,} times: {lower}."

    def _tables(self) -> "list[tuple[list[str], list[list[str]], list[int]]]":
        halves = (("most important", self.most), ("least important", self.least))
        return [_table(title, words) for title, words in halves if words]

    def _numbers(self) -> str:
        lines = [
            f"{self.total:,} n-grams, {self.distinct:,} of them distinct; "
            f"{self.looked_at:,} seen at least {self.min_count:,} times.",
        ]
        if self.complete_from > self.min_count:
            lines.append(
                "Some rarer n-grams did not fit into the memory for counting. All that were seen "
                f"at least {self.complete_from:,} times are among these."
            )
        if self.most and self.most[0].weight is not None:
            one, all_ = (" in a member", " in all members") if self.members > 1 else ("", "")
            lines.append(
                "collision: the chance that an n-gram at least as frequent has the same importance "
                f"weights{one}; for one of any frequency it is {self.same_row:.2g}. The same "
                f"vector{all_}: {self.same_vector:.2g}."
            )
        return "\n".join(lines)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the most and the least important n-grams as bars."""
        names = [f"{shown(word.text, word.subword)} ({word.speaks_for})" for word in self.most]
        names += [shown(word.text, word.subword) for word in reversed(self.least)]
        values = [self._value(word) for word in [*self.most, *reversed(self.least)]]
        axis = "|p_w|" if self.by == "weight" else "evidence"
        title = f"the {len(self.most)} most and the {len(self.least)} least important n-grams"
        explain_views.draw_bars(path, list(zip(names, values, strict=True)), axis, title)

    def _value(self, word: Word) -> float:
        return word.weight if self.by == "weight" and word.weight is not None else word.evidence


def _table(title: str, words: list[Word]) -> tuple[list[str], list[list[str]], list[int]]:
    """Heads, rows, and which columns are text."""
    heads = [title, "count", "|p_w|", "evidence", "for", "collision"]
    if any(word.shares_row_with for word in words):
        heads.append("shares row with")
    rows = []
    for word in words:
        cells = [
            visible(shown(word.text, word.subword)),
            f"{word.count:,}" + (f" +{word.missed:,}" if word.missed else ""),
            "" if word.weight is None else f"{word.weight:.4f}",
            f"{word.evidence:.4f}",
            str(word.speaks_for),
            "" if word.weight is None else f"{word.collision:.1%}",
            visible(word.shares_row_with or ""),
        ]
        rows.append(cells[: len(heads)])
    return heads, rows, [0, 4, 6]
