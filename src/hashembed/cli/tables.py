"""Tables that commands print."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def number_table(*heads: str) -> "Table":
    """A table with a column of names, and a column of numbers for each head."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    return table
