"""Shows explanations: in the terminal, in a notebook, as a figure.

Blue marks evidence for the class, orange evidence against it. Colour-blind readers can tell these
colours apart.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import TYPE_CHECKING

from hashembed.core.plotting import new_figure
from hashembed.core.tables import html_table, plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

FOR, AGAINST = (49, 130, 189), (230, 85, 13)
FAINT = 0.08  # words below this share of the strongest word have no colour

NO_NGRAMS = "This text has no n-grams, so only the class frequencies decide."

# Control characters and marks of text direction become visible characters, one for one.
_PICTURES = {c: 0x2400 + c for c in range(0x20) if c not in (0x09, 0x0A)}
_OTHERS = (0x80, 0xA0), (0x2028, 0x202F), (0x2066, 0x206A), (0xD800, 0xE000)
_VISIBLE = _PICTURES | {0x7F: 0x2421} | {c: 0xFFFD for run in _OTHERS for c in range(*run)}
_VISIBLE |= dict.fromkeys((0x061C, 0x200E, 0x200F), 0xFFFD)  # marks of direction


def visible(text: str) -> str:
    """The text with visible characters instead of control characters, of the same length."""
    return text.translate(_VISIBLE)


def shown(text: str, subword: bool) -> str:
    """An n-gram for display: '-' where a character n-gram is cut from its word, as in '-di-'."""
    if not subword:
        return text
    return f"{'' if text[0] == '<' else '-'}{text}{'' if text[-1] in '>…' else '-'}"


@dataclass(frozen=True)
class Line:
    """A line of the table: evidence, an n-gram or (another term), its occurrences, |p_w|."""

    evidence: float
    text: str
    times: str = ""
    weight: str = ""


@dataclass(frozen=True)
class Sheet:
    """The content of a view.

    headline: classes with probabilities. label: the class that the evidence is about.
    pieces: the text, cut at words, with the evidence of each piece; 0 between words.
    lines: the strongest n-grams, then the other terms and the sum; empty without n-grams.
    """

    headline: str
    label: str
    pieces: list[tuple[str, float]]
    lines: list[Line]

    def shares(self) -> Iterator[tuple[str, float, float]]:
        """The pieces, their evidence, and its share of the strongest."""
        largest = max((abs(value) for _, value in self.pieces), default=0) or 1.0
        for piece, value in self.pieces:
            yield visible(piece), value, value / largest


# --- the terminal ----------------------------------------------------------------------------


def for_terminal(sheet: Sheet) -> "Group":
    """The text with its words coloured, and the strongest n-grams."""
    from rich.console import Group
    from rich.text import Text

    text = Text()
    for piece, _, share in sheet.shares():
        text.append(piece, _style(share))
    return Group(Text(visible(sheet.headline), "bold"), "", text, "", _table(sheet))


def as_text(sheet: Sheet) -> str:
    """The strongest n-grams as a plain table."""
    from rich.console import Group
    from rich.text import Text

    return plain(Group(Text(visible(sheet.headline)), _table(sheet)))


def _table(sheet: Sheet) -> "Table | str":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not sheet.lines:
        return NO_NGRAMS
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(Text(visible(f"for {sheet.label}")), justify="right", no_wrap=True)
    table.add_column("n-gram", overflow="fold")
    table.add_column("times", justify="right")
    table.add_column("|p_w|", justify="right")
    for line in sheet.lines:
        style = ("blue" if line.evidence > 0 else "red") if line.times else "dim"
        evidence = Text(f"{line.evidence:+.3f}", style)
        table.add_row(evidence, Text(visible(line.text)), line.times, line.weight)
    return table


def _style(share: float) -> str:
    """Black on a colour; the larger the share, the stronger."""
    if abs(share) < FAINT:
        return ""
    target = FOR if share > 0 else AGAINST
    strength = 0.25 + 0.55 * abs(share)
    r, g, b = (round(255 - (255 - value) * strength) for value in target)
    return f"rgb(0,0,0) on rgb({r},{g},{b})"


# --- notebooks -------------------------------------------------------------------------------


def as_html(sheet: Sheet) -> str:
    """Self-contained HTML. Colours are translucent, for light and dark pages."""
    words = "".join(
        f'<span style="background:{_rgba(share)};border-radius:3px" title="{value:+.3f}">'
        f"{escape(piece)}</span>"
        if abs(share) >= FAINT
        else escape(piece)
        for piece, value, share in sheet.shares()
    )
    heads = [visible(f"for {sheet.label}"), "n-gram", "times", "|p_w|"]
    lines = [(f"{x.evidence:+.3f}", visible(x.text), x.times, x.weight) for x in sheet.lines]
    table = html_table(heads, lines, words=[1]) if lines else escape(NO_NGRAMS)
    return (
        f"<div><b>{escape(visible(sheet.headline))}</b>"
        f'<div style="white-space:pre-wrap;line-height:1.7;margin:8px 0">{words}</div>{table}</div>'
    )


def _rgba(share: float) -> str:
    r, g, b = FOR if share > 0 else AGAINST
    return f"rgba({r},{g},{b},{0.12 + 0.5 * abs(share):.2f})"


# --- figures ---------------------------------------------------------------------------------


def draw_bars(
    path: str | PathLike[str], bars: Sequence[tuple[str, float]], axis: str, title: str
) -> None:
    """Draw horizontal bars, blue above zero and orange below it, the first on top."""
    figure = new_figure("n-grams", 7, 1.4 + 0.28 * max(len(bars), 3))
    axes = figure.subplots()
    places = range(len(bars))
    colours = [tuple(v / 255 for v in (FOR if value > 0 else AGAINST)) for _, value in bars]
    axes.barh(places, [value for _, value in bars], color=colours)
    axes.axvline(0, color="0.5", linewidth=0.8)
    names = [text if len(text) <= 40 else f"{text[:39]}…" for text, _ in bars]
    axes.set_yticks(places, [visible(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(visible(axis))
    axes.set_title(visible(title))
    for words in [*axes.get_yticklabels(), axes.xaxis.label, axes.title]:
        words.set_parse_math(False)
    if not bars:
        axes.text(0.5, 0.5, "no n-grams", ha="center", va="center", transform=axes.transAxes)
    with warnings.catch_warnings():  # fonts lack some characters
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(path)
