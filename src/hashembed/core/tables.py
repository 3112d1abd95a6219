"""Tables for the terminal, for notebooks and as plain text; cells are made safe to show."""

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from hashembed.core.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Rows = Sequence[Sequence[str]]


def terminal_table(heads: Sequence[str], rows: Rows, words: Sequence[int] = (0,)) -> "Table":
    """A table for rich. Columns in `words` are aligned left; the others hold numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, head in enumerate(heads):
        if i in words:
            table.add_column(Text(printable(head)), overflow="fold")
        else:
            table.add_column(Text(printable(head)), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def html_table(heads: Sequence[str], rows: Rows, words: Sequence[int] = (0,)) -> str:
    """The same in HTML."""
    body = "".join(_html_row("td", row, words) for row in rows)
    return f"<table>{_html_row('th', heads, words)}{body}</table>"


def _html_row(tag: str, cells: Sequence[str], words: Sequence[int]) -> str:
    from html import escape

    made = [
        f'<{tag} style="text-align:{"left" if i in words else "right"};padding:1px 8px">'
        f"{escape(printable(cell))}</{tag}>"
        for i, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(made)}</tr>"


def plain(renderable: "RenderableType") -> str:
    """What rich shows, as text without colours."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=100, color_system=None, force_terminal=False).print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
