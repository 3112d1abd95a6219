"""Whether the first row names the columns: by usual names, and by what stands below it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# The most usual first.
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

ENOUGH = 20  # rows that tell a label, whose values recur, from a text
_LONGEST_NAME = 64  # characters in a name
_MOST_WORDS = 4  # in a name, as long as nothing else speaks for it
_ONCE = 100  # values that came once are few if there are so many times as many rows
_COPIES = 10  # in files put together the header comes again, in at most one of so many rows
_RECURS = 200  # a name may stand by chance in one of so many rows below it, as a text

Rows = Sequence[Sequence[str]]


def plain(name: str) -> str:
    """A name without case, and with one spelling of what stands between words."""
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def recurring(values: Sequence[str]) -> bool:
    """Whether these values come again and again, as labels do."""
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
        """Whether the cell comes again: then it is a value, such as the class "spam"."""
        return self.below.count(self.cell) > len(self.below) / _RECURS

    @property
    def complete(self) -> bool:
        """Whether so many short values stand below that hardly any further one would be new.

        The share of values that were seen once estimates the chance of a new one (Good, Turing).
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
        """Whether numbers stand below, and nothing else."""
        return len(self.below) > 1 and all(map(is_number, self.below))

    @property
    def may_name(self) -> bool:
        """Whether the cell can be a name: no number, nothing long, and none of the values."""
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
        """Whether the cell is a word above numbers, or above labels among which it is not."""
        return self.numbers or (self.complete and self.cell not in self.below)


def is_header(cells: Sequence[str], rows: Rows) -> bool:
    """Whether a first row names the columns of the rows below it.

    Two usual names do, whatever stands beside them; so do 0, 1, ... above words. With one usual
    name, or where a cell sticks out from what is below it, or where names are numbered (v1, v2),
    all cells must be such as can be names. Empty cells and repeated names say nothing.
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
    """Whether the names are 0, 1, ..., as pandas has them, and words are in a column below."""
    counted = [column.cell == str(i) for i, column in enumerate(columns)]
    if len(columns) < 2 or not all(counted):
        return False
    return any(column.below and not any(map(is_number, column.below)) for column in columns)


def _numbered(columns: Sequence[_Column]) -> bool:
    """Whether all names are one name with numbers, v1, v2, and nothing like it is below them."""
    matches = [re.fullmatch(r"([A-Za-z]+)[ _-]?\d+", column.cell) for column in columns]
    stems = {match[1] for match in matches if match}
    if len(columns) < 2 or not all(matches) or len(stems) > 1:
        return False
    alike = re.compile(rf"{stems.pop()}[ _-]?\d+", re.IGNORECASE)
    return not any(alike.fullmatch(value) for column in columns for value in column.below)
