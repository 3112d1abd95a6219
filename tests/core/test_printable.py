"""Untrusted text is printed without its control sequences taking effect."""

import sys

import pytest

from hashembed.core.printable import printable


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31mred", r"\x9b31mred"),  # the same as one C1 character
        ("two\nlines\r\tand a tab", r"two\nlines\r\tand a tab"),
        ("bell\x07 delete\x7f nul\0", r"bell\x07 delete\x7f nul\x00"),
        ("abc\u202edcba\u2066", r"abc\u202edcba\u2066"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text, printed):
    assert printable(text) == printed
    printable(text).encode("utf8")


@pytest.mark.parametrize(
    "text", ["", "plain", "Größe", "日本語", "हिन्दी", "👩‍👩‍👧", "a b", "zero\u200dwidth", "\xa0"]
)
def test_letters_stay(text):
    assert printable(text) == text


def test_every_character():
    """No control character passes, and nothing is escaped twice."""
    for code in range(sys.maxunicode + 1):
        out = printable(chr(code))
        if code < 32 or 127 <= code < 160:
            assert out.isascii()
            assert out.isprintable()
        assert printable(out) == out
