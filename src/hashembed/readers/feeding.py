"""Blocks of lines to rows: picks the parser, keeps what it leaves, places marks on rows."""

from typing import Any

import numpy as np

from hashembed.readers import streams
from hashembed.readers.cutting import count_lines
from hashembed.readers.encodings import Block
from hashembed.readers.formats import open_parser
from hashembed.readers.report import Problem
from hashembed.readers.rows import Options, Parser, Rows


class Feeder:
    """Takes the blocks of one file in turn; `before` parsed the first file of the same format."""

    def __init__(self, options: Options, file: str, before: Any):
        self.options, self.file, self.before = options, file, before
        self.parser: Parser | None = None
        self._rest, self._line = b"", 1  # lines not parsed yet, and the number of the first
        self._enough = 0  # bytes to wait for when a row did not end
        self._marks: dict[int, str] = {}

    @property
    def untouched(self) -> bool:
        """Whether there was no byte at all."""
        return self._line == 1 and not self._rest

    def feed(self, block: Block) -> Rows | None:
        """The rows that end in this block, or None if it takes more to tell."""
        self._rest += block.data
        self._marks |= block.marks
        urgent = block.last or block.pause
        if not self._rest or (len(self._rest) < self._enough and not urgent):
            return None
        if self.parser is None:
            self.parser = open_parser(
                self.options.format, self._rest, block.last, self.options, self.file, self.before
            )
            if self.parser is None:
                self._enough = 2 * len(self._rest)
                return None
        last = block.last or len(self._rest) > streams.MAX_ROW
        rows, used = self.parser.parse(self._rest, self._line, last)
        self._line += count_lines(self._rest[:used])
        self._rest = self._rest[used:]
        self._enough = 2 * len(self._rest)
        self._place_marks(rows, last)
        return rows

    def _place_marks(self, rows: Rows, last: bool) -> None:
        """A mark on a line makes the row bad that the line belongs to."""
        for line in sorted(self._marks):
            if line >= self._line and not last:
                break
            reason = self._marks.pop(line)
            row = int(np.searchsorted(rows.lines, line, "right")) - 1
            if row >= 0:
                rows.bad[row] = Problem(self.file, line, reason)
