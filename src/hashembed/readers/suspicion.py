"""Warns of labels that look like the wrong column, or like several labels in one string."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from hashembed.core.arrow_columns import whole_numbers
from hashembed.core.wording import given
from hashembed.readers.formats.headers import is_number

WATCHED = 10_000  # rows that are examined
_ENOUGH = 50  # no warnings for fewer rows
_MANY = 20  # fewer distinct numbers or dates may well be classes
_SEPARATORS = ",;|/ "
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}([T ].*)?")


class LabelWatch:
    """Counts the labels of the first rows, and finds what is unusual about them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._rows = 0
        self._lists = self._several = 0

    @property
    def full(self) -> bool:
        """Whether it has counted enough rows."""
        return self._rows + self._lists >= WATCHED

    def see(self, labels: Any) -> None:
        """Count some labels, single or lists."""
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
        if labels.null_count:
            self._counts.update(labels.to_pylist())
            return
        names = labels.dictionary.to_pylist()
        for number, count in Counter(whole_numbers(labels.indices).tolist()).items():
            self._counts[names[number]] += count

    def warnings(self) -> list[str]:
        """The most likely mistake, if any."""
        if self._lists >= _ENOUGH and not self._several:
            return [
                "labels are lists, so the model may give several labels to a text, but no row has "
                f"more than one: check {given('label_separator')}, or write single labels"
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
                f"{values[0]!r:.40}: if this is the wrong column, name the right one with "
                f"{given('label')}"
            ]
        return []


def _most(values: Sequence[str], test: Callable[[str], object]) -> bool:
    return 10 * sum(bool(test(value)) for value in values) >= 9 * len(values)


def _dates(values: Sequence[str]) -> str | None:
    if len(values) < _MANY or not _most(values, _DATE.fullmatch):
        return None
    return (
        f"the labels are dates, such as {values[0]!r}: if this is the wrong column, name the right "
        f"one with {given('label')}"
    )


def _fractions(values: Sequence[str]) -> str | None:
    if len(values) < _MANY or not _most(values, lambda v: is_number(v) and "." in v):
        return None
    return (
        f"the labels are {len(values):,} different fractions, such as {values[0]!r}, and each is "
        f"a class: if this is the wrong column, name the right one with {given('label')}"
    )


def _listed(values: Sequence[str]) -> str | None:
    """Labels that are lists in Python's or JSON's notation."""
    lists = [v for v in values if v.startswith("[") and v.endswith("]")]
    if 2 * len(lists) < len(values):
        return None
    return (
        f"the labels look like lists, such as {lists[0]!r:.60}, but each is read as one class: "
        f"write them with a separator ({given('label_separator', ',')}) or as JSON lines"
    )


def _joined(values: Sequence[str]) -> str | None:
    """Labels that are combinations of fewer labels."""
    for separator in _SEPARATORS:
        joint = [v for v in values if separator in v.strip()]
        groups = [[part.strip() for part in v.split(separator)] for v in values]
        parts = {part for group in groups for part in group if part}
        alone = parts & {v.strip() for v in values}
        # Names of classes may contain blanks and slashes and share words. That alone is no sign.
        sure = 2 * len(alone) >= len(parts) or (separator in ",;|" and len(values) > 2 * len(parts))
        if len(joint) >= max(2, len(values) // 10) and len(parts) < len(values) and sure:
            return (
                f"{len(values):,} different labels, many of them combinations of {len(parts):,}, "
                f"such as {joint[0]!r:.60}: if a text can have several labels, give "
                f"{given('label_separator', separator)}"
            )
    return None
