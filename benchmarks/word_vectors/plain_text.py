"""enwik8, the first 100 MB of a dump of Wikipedia, as plain text: an article a line.

Markup, tables and references are left out, digits are spelled out, all else but the letters a to z
is a space, as is usual for this corpus.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ARTICLE = re.compile(r"<text [^>]*>(.*?)</text>", re.DOTALL)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ENTITIES = (("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# What is removed, and what stays of it, in this order.
MARKUP = [
    (re.compile(pattern, flags), kept)
    for pattern, kept, flags in (
        (r"<ref[^<]*</ref>", "", 0),
        (r"<[^>]*>", "", 0),
        (r"\[http:[^\] ]*", "[", 0),  # the address of a link, not its text
        (r"\|(?:thumb|left|right|\d+px)", "", re.IGNORECASE),
        (r"\[\[image:[^\[\]]*\|", "", re.IGNORECASE),
        (r"\[\[category:([^|\]]*)[^\]]*\]\]", r"[[\1]]", re.IGNORECASE),
        (r"\[\[[a-z\-]*:[^\]]*\]\]", "", 0),  # links to other languages
        (r"\[\[[^|\]]*\|", "[[", 0),
        (r"\{\{[^}]*\}\}", "", 0),
        (r"\{[^}]*\}", "", 0),
        (r"[\[\]]", "", 0),
        (r"&[^;]*;", " ", 0),
    )
]


def plain(article: str) -> str:
    """The words of an article; nothing for a redirection."""
    if article.lower().startswith("#redirect"):
        return ""
    for entity, letter in ENTITIES:
        article = article.replace(entity, letter)
    for pattern, kept in MARKUP:
        article = pattern.sub(kept, article)
    spelled = re.sub(r"[0-9]", lambda digit: f" {DIGITS[int(digit[0])]} ", article.lower())
    return " ".join(re.findall("[a-z]+", spelled))


def articles(dump: Path) -> Iterator[str]:
    text = dump.read_text(encoding="utf-8", errors="replace")
    yield from filter(None, (plain(found[1]) for found in ARTICLE.finditer(text)))


def make_plain(dump: Path, output: Path) -> Path:
    """Write the plain text of a dump, unless it is there."""
    if not output.exists():
        part = output.with_suffix(".part")
        with open(part, "w", encoding="utf-8") as file:
            file.writelines(f"{article}\n" for article in articles(dump))
        part.replace(output)
    return output
