"""Writes the character tables of the JavaScript module.

    python -m hashembed.web.generate_tables

replaces the lines between the two marks of `module/hashembed.mjs` with the tables of
`text/characters.py`. Run it after a change of those tables; a test compares both.

All numbers are in base 36, each table is one string:

    WHITE_SPACE, PUNCTUATION  runs of code points, as pairs: how many lie between this run and the
                              one before, and how many it has
    FOLDS                     runs of code points that become one other: how far the first is from
                              the first of the run before, how many there are, the distance between
                              neighbours, and what is added to each
    EXPANSIONS                code points that become two or three: the code point, and what it
                              becomes
"""

import string
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from hashembed.text.characters import (
    CODE_POINTS,
    EXPANSIONS,
    MARK,
    UNICODE_VERSION,
    WHITE_SPACE,
    all_utf8_codes,
    character_table,
    punctuation_table,
)

MODULE = Path(__file__).parent / "module" / "hashembed.mjs"
BEGIN = "// --- tables by `python -m hashembed.web.generate_tables`: do not edit\n"
END = "// --- end of the tables\n"
_WIDTH = 92  # characters of a string in a line
_DIGITS = string.digits + string.ascii_lowercase


def javascript_tables() -> str:
    """The lines that stand between the marks."""
    one, several = _foldings()
    tables = {
        "WHITE_SPACE": _gaps(WHITE_SPACE),
        "PUNCTUATION": _gaps(_runs(np.flatnonzero(punctuation_table()).tolist())),
        "FOLDS": _fold_runs(one),
        "EXPANSIONS": " ".join(
            ".".join(map(base36, (point, *becomes))) for point, becomes in several.items()
        ),
    }
    lines = [f'const UNICODE_VERSION = "{UNICODE_VERSION}";\n']
    for name, text in tables.items():
        pieces = [text[i : i + _WIDTH] for i in range(0, len(text), _WIDTH)]
        lines.append(f"const {name} =\n" + " +\n".join(f'  "{piece}"' for piece in pieces) + ";\n")
    return "".join(lines)


def with_tables(source: str) -> str:
    """The source of the module with these tables in place of those it has."""
    before, mark, rest = source.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"found no lines {BEGIN!r} and {END!r} in the module")
    return before + mark + javascript_tables() + end + after


def base36(number: int) -> str:
    """As JavaScript's `number.toString(36)`."""
    sign, number = "-" * (number < 0), abs(number)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return sign + digits


def _foldings() -> tuple[dict[int, int], dict[int, list[int]]]:
    """The code points that case folding makes one other, and those that it makes several."""
    table, plain = character_table(True), all_utf8_codes()
    changed = np.flatnonzero((table[:CODE_POINTS] != plain) & (table[:CODE_POINTS] != MARK))
    one, several = {}, {}
    for point in changed.tolist():
        code = int(table[point])
        if code & 0xFF == MARK:
            count, *codes = table[EXPANSIONS + 4 * (code >> 8) :][:4].tolist()
            several[point] = [_code_point(c) for c in codes[:count]]
        else:
            one[point] = _code_point(code)
    return one, several


def _code_point(code: int) -> int:
    """Of its UTF-8 in one integer, first byte lowest."""
    return ord(code.to_bytes(4, "little").rstrip(b"\0").decode())


def _runs(points: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Rising code points as ranges."""
    start = end = -1
    for point in points:
        if point != end:
            if start >= 0:
                yield start, end
            start = point
        end = point + 1
    yield start, end


def _gaps(runs: Iterable[tuple[int, int]]) -> str:
    pairs, before = [], 0
    for start, end in runs:
        pairs.append(f"{base36(start - before)}.{base36(end - start)}")
        before = end
    return " ".join(pairs)


def _fold_runs(folds: dict[int, int]) -> str:
    """Neighbours in a run are one or two code points apart, as in most alphabets."""
    runs: list[list[int]] = []  # first code point, how many, distance, what is added
    for point, becomes in folds.items():
        added = becomes - point
        if runs:
            first, count, distance, same = runs[-1]
            found = point - (first + (count - 1) * distance) if count > 1 else point - first
            if same == added and found <= 2 and (count == 1 or found == distance):
                runs[-1] = [first, count + 1, found, added]
                continue
        runs.append([point, 1, 1, added])
    parts, before = [], 0
    for first, count, distance, added in runs:
        parts.append(".".join(map(base36, (first - before, count, distance, added))))
        before = first
    return " ".join(parts)


def main() -> None:
    """Write the tables into the module."""
    MODULE.write_text(with_tables(MODULE.read_text()))


if __name__ == "__main__":
    main()
