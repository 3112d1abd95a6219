"""What compression did: sizes and accuracy, before and after."""

from dataclasses import asdict, dataclass
from typing import Any

from hashembed.core import tables


@dataclass(frozen=True)
class Compression:
    """A model before and after compression.

    `bytes` are those of the model file; with the default 8 bits before. `accuracy` is that on
    `measured` rows, None if there were none. `rows` are the rows of tables that are kept.
    """

    bytes_before: int
    bytes_after: int
    accuracy_before: float | None
    accuracy_after: float | None
    measured: int
    rows: int
    with_texts: bool

    @property
    def loss(self) -> float | None:
        """What compression cost, in points of accuracy."""
        if self.accuracy_before is None or self.accuracy_after is None:
            return None
        return 100 * (self.accuracy_before - self.accuracy_after)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "loss": self.loss}

    def __str__(self) -> str:
        return tables.plain(tables.terminal_table(*self._table()))

    def _repr_html_(self) -> str:
        return tables.html_table(*self._table())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        heads = ["model", "bytes"]
        rows = [["full", f"{self.bytes_before:,}"], ["compressed", f"{self.bytes_after:,}"]]
        if self.accuracy_before is not None and self.accuracy_after is not None:
            rows_of = "row" if self.measured == 1 else "rows"
            heads.append(f"accuracy on {self.measured:,} {rows_of}")
            rows[0].append(f"{self.accuracy_before:.2%}")
            rows[1].append(f"{self.accuracy_after:.2%}")
        return heads, rows
