"""Labels that look as if another column, or another form, were meant."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from hashembed.core.wording import given
from hashembed.readers.formats.headers import is_number

WATCHED = 10_000  # rows that are looked at
_ENOUGH = 50  # rows below which nothing is said
_MANY = 20  # classes; numbers and dates of which there are fewer may be classes
_SEPARATORS = ",;|/ "
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}([T ].*)?")


class LabelWatch:
    """Counts the labels of the first rows, and says what is odd about them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._rows = 0
        self._lists = self._several = 0

    @property
    def full(self) -> bool:
        """Whether it has seen enough."""
        return self._rows + self._lists >= WATCHED

    def see(self, labels: Any) -> None:
        """Some more labels, single or lists."""
        if self.full:
            return
        if pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type):
            lists = labels.slice(0, WATCHED - self._lists).to_pylist()
            self._lists += len(lists)
            self._several += sum(len(one) > 1 for one in lists if one is not None)
            return
        if not pa.types.is_dictionary(labels.type):
            return
        labels = labels.slice(0, WATCHED - self._rows)
        self._rows += len(labels)
        for count in labels.value_counts().to_pylist():
            self._counts[count["values"]] += count["counts"]

    def warnings(self) -> list[str]:
        """What is odd, at most one thing: the first explains the others."""
        if self._lists >= _ENOUGH and not self._several:
            return [
                "no row has more than one label, yet labels come as lists, so the model may give "
                f"several: check {given('label_separator')}, or write one label a row"
            ]
        if self._rows < _ENOUGH:
            return []
        values = list(self._counts)
        for look in (_listed, _joined, _dates, _fractions):
            if (found := look(values)) is not None:
                return [found]
        if 10 * len(values) > 8 * self._rows:
            return [
                f"{len(values):,} different labels in {self._rows:,} rows, such as "
                f"{values[0]!r:.40}: if this is not the label's column, say which is with "
                f"{given('label')}"
            ]
        return []


def _most(values: Sequence[str], test: Callable[[str], object]) -> bool:
    return 10 * sum(bool(test(value)) for value in values) >= 9 * len(values)


def _dates(values: Sequence[str]) -> str | None:
    if len(values) < _MANY or not _most(values, _DATE.fullmatch):
        return None
    return f"the labels are dates, such as {values[0]!r}: say which column with {given('label')}"


def _fractions(values: Sequence[str]) -> str | None:
    if len(values) < _MANY or not _most(values, lambda v: is_number(v) and "." in v):
        return None
    return (
        f"the labels are {len(values):,} different fractions, such as {values[0]!r}: each is a "
        f"class of its own; say which column has classes with {given('label')}"
    )


def _listed(values: Sequence[str]) -> str | None:
    """Lists in the spelling of Python or JSON."""
    lists = [v for v in values if v.startswith("[") and v.endswith("]")]
    if 2 * len(lists) < len(values):
        return None
    return (
        f"the labels look like lists, such as {lists[0]!r:.60}, but each is read as one class: "
        f"write them with a separator ({given('label_separator', ',')}) or as JSON lines"
    )


def _joined(values: Sequence[str]) -> str | None:
    """Classes that are combinations of fewer classes."""
    for separator in _SEPARATORS:
        joint = [v for v in values if separator in v.strip()]
        groups = [[part.strip() for part in v.split(separator)] for v in values]
        parts = {part for group in groups for part in group if part}
        alone = parts & {v.strip() for v in values}
        # Names of classes may have blanks and slashes, and share words; but words are no classes.
        sure = 2 * len(alone) >= len(parts) or (separator in ",;|" and len(values) > 2 * len(parts))
        if len(joint) >= max(2, len(values) // 10) and len(parts) < len(values) and sure:
            return (
                f"{len(values):,} different labels, many of them combinations of {len(parts):,}, "
                f"such as {joint[0]!r:.60}: if a text can have several labels, give "
                f"{given('label_separator', separator)}"
            )
    return None
