"""Whether the first row names the columns: by usual names, and by the rows below it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# The most usual names first.
LABELS = [
    *("label", "labels", "class", "classes", "category", "categories", "target", "class_index"),
    *("label_name", "class_name", "topic", "topics", "intent", "sentiment", "emotion", "tag"),
    *("tags", "language", "lang", "spam", "genre", "rating", "stars", "y"),
]
TITLES = ["title", "headline", "subject", "question_title", "review_title", "review_summary"]
TEXTS = [
    *("text", "texts", "sentence", "sentences", "document", "review", "review_text", "comment"),
    *("comment_text", "content", "body", "message", "msg", "tweet", "utterance", "post"),
    *("article", "description", "abstract", "question", "question_content", "query", "news", "x"),
]

ENOUGH = 20  # rows needed to distinguish a label, whose values recur, from a text
_LONGEST_NAME = 64  # characters in a name
_MOST_WORDS = 4  # in a name, without further evidence
_ONCE = 100  # at most one row in this many may have a value that occurs once
_COPIES = 10  # concatenated files repeat the header, in at most one row of this many
_RECURS = 200  # a name may be a text by chance, in at most one row of this many

Rows = Sequence[Sequence[str]]


def plain(name: str) -> str:
    """A name in lower case, its words separated by underscores."""
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def recurring(values: Sequence[str]) -> bool:
    """Whether the values recur, as labels do: each twice on average."""
    return 2 * len(set(values)) <= len(values)


def is_number(cell: str) -> bool:
    """Whether this is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class _Column:
    """The first cell of a column, and those below it."""

    cell: str
    below: list[str]

    @property
    def usual(self) -> bool:
        return plain(self.cell) in (*LABELS, *TITLES, *TEXTS) and not self.recurs

    @property
    def recurs(self) -> bool:
        """Whether the cell occurs below: then it is a value, such as the class "spam"."""
        return self.below.count(self.cell) > len(self.below) / _RECURS

    @property
    def complete(self) -> bool:
        """Whether the values below are short, and a further one would hardly be new.

        The share of values that occur once estimates the chance of a new one (Good-Turing).
        """
        counts = Counter(self.below)
        once = sum(count == 1 for count in counts.values())
        return (
            len(self.below) >= ENOUGH
            and max(map(len, counts)) <= _LONGEST_NAME
            and _ONCE * once <= len(self.below)
        )

    @property
    def numbers(self) -> bool:
        """Whether all values below are numbers."""
        return len(self.below) > 1 and all(map(is_number, self.below))

    @property
    def may_name(self) -> bool:
        """Whether the cell can be a name: short, not a number, and not one of the values."""
        short = len(self.cell.split()) <= _MOST_WORDS or self.complete or self.numbers
        return (
            short
            and "\n" not in self.cell
            and len(self.cell) <= _LONGEST_NAME
            and not is_number(self.cell)
            and not self.recurs
        )

    @property
    def sticks_out(self) -> bool:
        """Whether the cell is a word above numbers, or not among the labels below it."""
        return self.numbers or (self.complete and self.cell not in self.below)


def is_header(cells: Sequence[str], rows: Rows) -> bool:
    """Whether the first row names the columns of the rows below it.

    Two usual names are enough, and so are 0, 1, ... above words. With one usual name, or a cell
    that differs from the values below it, or numbered names (v1, v2), every cell must be a possible
    name. Empty cells and repeated names are ignored.
    """
    below = [row for row in rows if list(row) != list(cells)]
    if len(rows) - len(below) > max(1, len(rows) // _COPIES):
        below = list(rows)
    columns = [
        _Column(cell, [row[c].strip() for row in below if row[c : c + 1] and row[c].strip()])
        for c, cell in enumerate(map(str.strip, cells))
        if cell
    ]
    usual = {plain(column.cell) for column in columns if column.usual}
    long_enough = [name for name in usual if len(name) > 1]
    if len(long_enough) > 1 and all(len(column.cell) <= _LONGEST_NAME for column in columns):
        return True
    if _counted(columns):
        return True
    if not columns or not all(column.may_name for column in columns):
        return False
    return bool(
        long_enough
        or {"x", "y"} <= usual
        or any(column.sticks_out for column in columns)
        or _numbered(columns)
    )


def _counted(columns: Sequence[_Column]) -> bool:
    """Whether the names are 0, 1, ..., as pandas writes them, and a column below has words."""
    counted = [column.cell == str(i) for i, column in enumerate(columns)]
    if len(columns) < 2 or not all(counted):
        return False
    return any(column.below and not any(map(is_number, column.below)) for column in columns)


def _numbered(columns: Sequence[_Column]) -> bool:
    """Whether the names are one name with numbers, as v1, v2, and no value looks like that."""
    matches = [re.fullmatch(r"([A-Za-z]+)[ _-]?\d+", column.cell) for column in columns]
    stems = {match[1] for match in matches if match}
    if len(columns) < 2 or not all(matches) or len(stems) > 1:
        return False
    alike = re.compile(rf"{stems.pop()}[ _-]?\d+", re.IGNORECASE)
    return not any(alike.fullmatch(value) for column in columns for value in column.below)
