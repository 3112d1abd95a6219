"""Text from untrusted sources, made safe to print."""

import unicodedata

# Cc: control characters, C1 included. Cs: halves of surrogate pairs, which no encoding can write.
# Zl, Zp: line and paragraph separators.
_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}

# They reorder the text around them, so that a line can look like a different one.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    r"""Escape what would move the cursor, change colours, break the line or reverse the writing.

    Labels and texts come from files that anybody may have written, and a terminal executes the
    control sequences it gets. Letters of all languages and emoji do not change.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    if text.isprintable():  # nearly always; Python's definition is narrower than ours
        return text
    return "".join(_escaped(c) if _is_escaped(c) else c for c in text)


def _is_escaped(character: str) -> bool:
    return character in _BIDI or unicodedata.category(character) in _ESCAPED


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
