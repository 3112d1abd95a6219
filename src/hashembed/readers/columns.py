"""Which columns hold the label and the text: by their names, or by what is in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hashembed.readers.report import DataError
from hashembed.readers.rows import Column, Options

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

_LONGEST_NAME = 64  # characters in a name of a header
_LONGEST_LABEL = 64  # mean characters in a label
_ENOUGH = 20  # rows that tell a label, whose values recur, from a text


@dataclass(frozen=True)
class Choice:
    """The columns taken, counted from 0; `label` is None where none is asked for."""

    label: int | None
    texts: tuple[int, ...]


def _plain(name: str) -> str:
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def is_header(cells: Sequence[str]) -> bool:
    """Whether a first row names columns: it has a usual name, and nothing that is no name."""
    names = [_plain(cell) for cell in cells]
    usual = [name for name in names if name in LABELS or name in TEXTS or name in TITLES]
    known = any(len(name) > 1 for name in usual) or {"x", "y"} <= set(usual)
    fine = all(
        "\n" not in cell and len(cell) <= _LONGEST_NAME and not _is_number(cell) for cell in cells
    )
    return known and fine and len(set(names)) == len(names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def describe(
    choice: tuple[int, ...] | int | None, names: Sequence[str] | None, noun: str = "column"
) -> str | None:
    """The columns as a report spells them: "column 1", "columns 2-3", "column 'text'"."""
    if choice is None:
        return None
    columns = (choice,) if isinstance(choice, int) else choice
    word = noun if len(columns) == 1 else f"{noun}s"
    if names is not None:
        return f"{word} " + ", ".join(repr(names[c]) for c in columns)
    if len(columns) > 1 and columns == tuple(range(columns[0], columns[-1] + 1)):
        return f"{word} {columns[0] + 1}-{columns[-1] + 1}"
    return f"{word} " + ", ".join(str(c + 1) for c in columns)


def _listing(names: Sequence[str] | None, count: int, noun: str) -> str:
    if names is None:
        return f"there are {count}, without names; give a number from 1 to {count}"
    return f"the {noun}s are " + (", ".join(repr(name) for name in names) or "none")


def find(
    what: str, wanted: Column, names: Sequence[str] | None, count: int, noun: str = "column"
) -> int:
    """The place of the column with this name or number (from 1)."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise TypeError(f"{what} must be a column's name or number, found {wanted!r}")
    if isinstance(wanted, str) and names is not None:
        if wanted in names:
            return list(names).index(wanted)
        alike = [i for i, name in enumerate(names) if _plain(name) == _plain(wanted)]
        if len(alike) == 1:
            return alike[0]
    if (isinstance(wanted, int) or wanted.isdecimal()) and 1 <= int(wanted) <= count:
        return int(wanted) - 1
    raise DataError(f"found no {what} {noun} {wanted!r}: {_listing(names, count, noun)}")


def choose(
    names: Sequence[str] | None,
    sample: Sequence[Sequence[str]],
    count: int,
    options: Options,
    noun: str = "column",
) -> Choice:
    """The columns that the options ask for, and for the rest those that look right.

    By name if there are names: a usual name for the label; a usual name for the text, with the
    title if there is one. Without names by content, see `_label_by_content`; the text is then
    everything but the label.
    """
    label = texts = None
    if options.label is not None:
        label = find("label", options.label, names, count, noun)
    if options.text is not None:
        wanted = options.text
        listed = [wanted] if isinstance(wanted, int | str) else list(wanted)
        texts = tuple(find("text", column, names, count, noun) for column in listed)
        if not texts:
            raise ValueError("text must name at least one column, found none")
    if texts and len({*texts, label}) <= len(texts):
        raise ValueError(
            f"text must name each column once and not the label's, found {options.text!r}"
        )
    taken = {label, *(texts or ())}
    free = [c for c in range(count) if c not in taken]
    if options.labelled and label is None:
        label = _named(names, LABELS, free) if names is not None else None
        if label is None and names is None and (texts is None or len(free) > 1):
            label = _label_by_content(sample, free, True)
        if label is None and texts is not None and len(free) == 1:
            label = free[0]
        free = [c for c in free if c != label]
    if texts is None and names is not None:
        texts = _named_texts(names, free)
    elif texts is None:
        guess = _label_by_content(sample, free, False) if not options.labelled else None
        texts = tuple(c for c in free if c != guess)
    if options.labelled and label is None and texts and names is not None and len(names) == 2:
        label = next((c for c in range(count) if c not in texts), None)
    if options.labelled and label is None:
        found = _listing(names, count, noun)
        raise DataError(f"found no label {noun}: {found}; say which with label=")
    if not texts:
        found = _listing(names, count, noun)
        raise DataError(f"found no text {noun}: {found}; say which with text=")
    return Choice(label, texts)


def _named(names: Sequence[str], usual: Sequence[str], free: Sequence[int]) -> int | None:
    """The column with the most usual name."""
    plain = {_plain(names[c]): c for c in reversed(free)}
    return next((plain[name] for name in usual if name in plain), None)


def _named_texts(names: Sequence[str], free: Sequence[int]) -> tuple[int, ...]:
    title, text = _named(names, TITLES, free), _named(names, TEXTS, free)
    found = sorted(c for c in (title, text) if c is not None)
    if not found and len(free) == 1:
        found = list(free)
    return tuple(found)


def _label_by_content(
    sample: Sequence[Sequence[str]], free: Sequence[int], must: bool
) -> int | None:
    """The first or the last column if it looks like a label.

    Labels are short and recur; of two such columns the one with fewer values, but more than one, or
    the first. Where rows are too few to recur, numbers will do, and anything if there `must` be a
    label.
    """
    if len(free) < 2 or not sample:
        return None
    found: list[tuple[bool, int, int]] = []
    for column in dict.fromkeys((free[0], free[-1])):
        values = [row[column].strip() for row in sample]
        short = sum(map(len, values)) <= _LONGEST_LABEL * len(values)
        distinct = len(set(values))
        recur = 2 * distinct <= len(values)
        few = len(values) < _ENOUGH and (must or all(v.isdecimal() for v in values))
        if short and (recur or few):
            found.append((distinct == 1, distinct, column))
    return min(found)[-1] if found else None
