"""Blocks of lines to rows: picks the parser, keeps what it leaves, places marks on rows."""

from typing import Any

import numpy as np

from hashembed.readers import streams
from hashembed.readers.encodings import Block
from hashembed.readers.formats.detect import open_parser
from hashembed.readers.rows import Options, Parser, Rows
from hashembed.readers.scan_kernels import count_lines


class Feeder:
    """Takes the blocks of one file in turn; `before` parsed the first file of the same format."""

    def __init__(self, options: Options, file: str, before: Any):
        self.options, self.file, self.before = options, file, before
        self.parser: Parser | None = None
        self._parts: list[bytes] = []  # lines not parsed yet
        self._size = self._lines = 0  # of the parts
        self._line = 1  # number of their first line
        self._enough = 0  # bytes to wait for when a row did not end
        self._marks: dict[int, str] = {}
        # A text may be an empty line; elsewhere leading ones are nothing, however many there are.
        self._drop_blank = options.labelled or options.format not in ("lines", "fasttext")

    @property
    def untouched(self) -> bool:
        """Whether there was no byte at all."""
        return self._line == 1 and not self._size

    def feed(self, block: Block) -> Rows | None:
        """The rows that end in this block, or None if it takes more to tell."""
        self._keep(self._without_blank_lines(block.data))
        self._marks |= block.marks
        urgent = block.last or block.pause
        too_long = self._size > streams.MAX_ROW or self._lines > streams.MAX_LINES
        if not self._size or not (self._size >= self._enough or urgent or too_long):
            return None
        data = b"".join(self._parts)
        self._parts = [data]
        if self.parser is None:
            self.parser = open_parser(
                *(self.options.format, data, block.last or too_long),
                *(self.options, self.file, self.before),
            )
            if self.parser is None:
                self._enough = 2 * self._size
                return None
        # When it gets too long, rows that are open for half of it are given up: so the other half
        # is there when it gets too long again, and no byte is looked at more than a few times.
        patience = 0 if block.last else len(data) // 2 if too_long else len(data)
        rows, used = self.parser.parse(data, self._line, patience)
        self._line += count_lines(data[:used])
        self._parts, self._size, self._lines = [], 0, 0
        self._keep(data[used:])
        self._enough = 2 * self._size
        self._place_marks(rows, block.last)
        return rows

    def _keep(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            self._size += len(data)
            self._lines += count_lines(data)

    def _without_blank_lines(self, data: bytes) -> bytes:
        """A block, without the blank lines that come before anything else."""
        if not self._drop_blank or self.parser is not None or self._size:
            return data
        if self.options.format is None and not data.strip():  # told by the first line with words
            self._line += count_lines(data)
            return b""
        lead = len(data) - len(data.lstrip(b"\r\n"))
        twice = data.find(b"\r\r", 0, lead)  # one is part of the line end, two are not
        end = data.rfind(b"\n", 0, lead if twice < 0 else twice) + 1
        self._line += count_lines(data[:end])
        return data[end:]

    def _place_marks(self, rows: Rows, last: bool) -> None:
        """A mark on a line makes the row bad that the line belongs to."""
        lines = [line for line in sorted(self._marks) if line < self._line or last]
        places = np.searchsorted(rows.lines, lines, "right") - 1
        found = zip(places.tolist(), ((line, self._marks.pop(line)) for line in lines), strict=True)
        rows.mark({row: mark for row, mark in found if row >= 0}, self.file)
