"""Which columns hold the label and the text: by their names, or by their content."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hashembed.core.wording import given, named
from hashembed.readers.formats.headers import (
    ENOUGH,
    LABELS,
    TEXTS,
    TITLES,
    is_number,
    plain,
    recurring,
)
from hashembed.readers.report import DataError
from hashembed.readers.rows import Column, Options

_LONGEST_LABEL = 64  # mean characters in a label
_MOST_DIGITS = 9  # in the number of a column
_LISTED = 30  # names that a message shows


@dataclass(frozen=True)
class Choice:
    """The columns used, counted from 0; `label` is None in a reading without labels."""

    label: int | None
    texts: tuple[int, ...]


def describe(
    choice: tuple[int, ...] | int | None, names: Sequence[str] | None, noun: str = "column"
) -> str | None:
    """The columns as a report names them: "column 1", "columns 2-3", "column 'text'".

    A repeated name is shown with its number, an empty name as a number.
    """
    if choice is None:
        return None
    columns = (choice,) if isinstance(choice, int) else choice
    word = noun if len(columns) == 1 else f"{noun}s"
    if names is not None:
        counts = Counter(names)
        return f"{word} " + ", ".join(_spelled(c, names[c], counts[names[c]]) for c in columns)
    if len(columns) > 1 and columns == tuple(range(columns[0], columns[-1] + 1)):
        return f"{word} {columns[0] + 1}-{columns[-1] + 1}"
    return f"{word} " + ", ".join(str(c + 1) for c in columns)


def _spelled(column: int, name: str, count: int) -> str:
    if not name.strip():
        return str(column + 1)
    return repr(name) if count == 1 else f"{column + 1} ({name!r})"


def listing(names: Iterable[str]) -> str:
    """Names for a message; only the first if there are many."""
    quoted = [repr(name) for name in names]
    more = [f"and {len(quoted) - _LISTED:,} more"] if len(quoted) > _LISTED else []
    return ", ".join(quoted[:_LISTED] + more) or "none"


def _there(names: Sequence[str] | None, count: int, noun: str) -> str:
    if names is None:
        return f"the {noun}s have no names, give a number from 1 to {count}"
    return f"the {noun}s are {listing(names)}"


def _unnamed(what: str, names: Sequence[str] | None, count: int, noun: str) -> str:
    """The message if a column was not named and could not be detected."""
    there = _there(names, count, noun)
    return f"found no {what} {noun}: {there}. Choose one with {given(what)}"


def as_number(wanted: Column) -> int | None:
    """The number of a column, if it is given as one."""
    if isinstance(wanted, str):
        return int(wanted) if wanted.isdecimal() and len(wanted) <= _MOST_DIGITS else None
    return wanted


def find(
    what: str, wanted: Column, names: Sequence[str] | None, count: int, noun: str = "column"
) -> int:
    """The position of the column with this name or number (from 1).

    A string counts as a number if no column has that name, and a number as a name if there is no
    such number. `what` it is for: "label", "text" or "keep".
    """
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise TypeError(f"{named(what)} must be a column's name or number, found {wanted!r}")
    kind = noun if what == "keep" else f"{what} {noun}"
    number = as_number(wanted)
    in_range = number is not None and 1 <= number <= count
    if names is not None and not (in_range and isinstance(wanted, int)):
        same = [c for c, name in enumerate(names) if name == str(wanted)]
        same = same or [c for c, name in enumerate(names) if plain(name) == plain(str(wanted))]
        if len(same) == 1:
            return same[0]
        if same:
            places = " and ".join(str(c + 1) for c in same)
            raise DataError(
                f"found {len(same)} {kind}s {str(wanted)!r}, numbers {places}: give a number, not "
                "the name"
            )
    if number is not None and in_range:
        return number - 1
    use = " to keep" if what == "keep" else ""
    raise DataError(f"found no {kind} {wanted!r}{use}: {_there(names, count, noun)}")


def listed(wanted: Column | Sequence[Column] | None) -> list[Column]:
    """The columns that an option names."""
    if wanted is None:
        return []
    return [wanted] if isinstance(wanted, int | str) else list(wanted)


def by_name(options: Options) -> bool:
    """Whether a column is given by name, which needs a header."""
    wanted = [options.label, *listed(options.text)]
    return any(isinstance(column, str) and as_number(column) is None for column in wanted)


def choose(
    names: Sequence[str] | None,
    sample: Sequence[Sequence[str]],
    count: int,
    options: Options,
    noun: str = "column",
) -> Choice:
    """The columns that the options name; the others are detected.

    With names: a usual name for the label; a usual name for the text, and the title if there is
    one. If the names do not tell, the content decides, if it is unambiguous. Without names: the
    content decides (see `_label_at_the_edge`), and the text is everything but the label. Names
    after the first `count` belong to nested keys: they can be given, but are not detected.
    """
    label, texts = _asked_for(names, count, options, noun)
    taken = {label, *(texts or ())}
    free = [c for c in range(count) if c not in taken]
    if names is not None:
        free = [c for c in free if names[c].strip()] or free
    if options.labelled and label is None:
        if names is None and (texts is None or len(free) > 1):
            label = _label_at_the_edge(sample, free, True)
        elif names is not None:
            label = _named(names, LABELS, free)
        if label is None and texts is not None and len(free) == 1:
            label = free[0]
        free = [c for c in free if c != label]
    if texts is None and names is not None:
        texts = _named_texts(names, free)
    elif texts is None:
        guess = _label_at_the_edge(sample, free, False) if not options.labelled else None
        texts = tuple(c for c in free if c != guess)
    if names is not None and options.labelled and label is None:
        if texts and count == 2:
            label = next((c for c in range(count) if c not in texts), None)
        else:
            label = _label_by_content(sample, [c for c in free if c not in texts])
    if names is not None and not texts:
        texts = _text_by_content(sample, [c for c in free if c != label])
    if options.labelled and label is None:
        raise DataError(_unnamed("label", names, count, noun))
    if not texts:
        raise DataError(_unnamed("text", names, count, noun))
    return Choice(label, texts)


def _asked_for(
    names: Sequence[str] | None, count: int, options: Options, noun: str
) -> tuple[int | None, tuple[int, ...] | None]:
    label = texts = None
    if options.label is not None:
        label = find("label", options.label, names, count, noun)
    if options.text is not None:
        texts = tuple(find("text", c, names, count, noun) for c in listed(options.text))
        if not texts:
            raise ValueError(f"{named('text')} must name at least one column, found none")
    if texts and len({*texts, label}) <= len(texts):
        raise ValueError(
            f"{named('text')} must name each column once, and not the label column, "
            f"found {options.text!r}"
        )
    return label, texts


def _named(names: Sequence[str], usual: Sequence[str], free: Sequence[int]) -> int | None:
    """The column with the most usual name; the first of several."""
    places = {plain(names[c]): c for c in reversed(free)}
    return next((places[name] for name in usual if name in places), None)


def _named_texts(names: Sequence[str], free: Sequence[int]) -> tuple[int, ...]:
    title, text = _named(names, TITLES, free), _named(names, TEXTS, free)
    found = sorted(c for c in (title, text) if c is not None)
    if not found and len(free) == 1:
        found = list(free)
    return tuple(found)


def _values(sample: Sequence[Sequence[str]], column: int) -> list[str]:
    return [row[column].strip() for row in sample]


def _is_short(values: Sequence[str]) -> bool:
    return sum(map(len, values)) <= _LONGEST_LABEL * len(values)


def _label_at_the_edge(
    sample: Sequence[Sequence[str]], free: Sequence[int], must: bool
) -> int | None:
    """The first or the last column if it looks like a label.

    Labels are short and recur. If both columns look like that, take the one with fewer values, but
    more than one, or the first. If there are too few rows for values to recur, numbers count as
    labels; and so does anything if there `must` be a label.
    """
    if len(free) < 2 or not sample:
        return None
    found: list[tuple[bool, int, int]] = []
    for column in dict.fromkeys((free[0], free[-1])):
        values = _values(sample, column)
        distinct = len(set(values))
        few = len(values) < ENOUGH and (must or all(v.isdecimal() for v in values))
        if _is_short(values) and (recurring(values) or few):
            found.append((distinct == 1, distinct, column))
    return min(found)[-1] if found else None


def _label_by_content(sample: Sequence[Sequence[str]], free: Sequence[int]) -> int | None:
    """The only column whose values are short and recur; None if there are several."""
    if len(sample) < ENOUGH:
        return None
    columns = {c: _values(sample, c) for c in free}
    found = [c for c, v in columns.items() if len(set(v)) > 1 and recurring(v) and _is_short(v)]
    return found[0] if len(found) == 1 else None


def _text_by_content(sample: Sequence[Sequence[str]], free: Sequence[int]) -> tuple[int, ...]:
    """The column with the longest values, if they are words and rarely recur."""
    if len(sample) < ENOUGH or not free:
        return ()
    longest = max(free, key=lambda c: sum(map(len, _values(sample, c))))
    values = _values(sample, longest)
    words = sum(len(value.split()) for value in values)
    if recurring(values) or all(map(is_number, values)) or words < 2 * len(values):
        return ()
    return (longest,)
