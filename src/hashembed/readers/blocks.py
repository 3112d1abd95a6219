"""From blocks of lines to rows: chooses the parser, keeps unparsed bytes, marks bad rows."""

import numpy as np

from hashembed.readers import streams
from hashembed.readers.encodings import Block
from hashembed.readers.formats.detect import open_parser
from hashembed.readers.formats.slices import count_lines
from hashembed.readers.rows import Options, Parser, Rows


class Feeder:
    """Takes the blocks of one file in order. `before` parsed the first file of this format."""

    def __init__(self, options: Options, file: str, before: Parser | None):
        self.options, self.file, self.before = options, file, before
        self.parser: Parser | None = None
        self._parts: list[bytes] = []  # unparsed lines
        self._size = self._lines = 0  # of the parts
        self._line = 1  # number of their first line
        self._enough = 0  # bytes to wait for while a row is incomplete
        self._marks: dict[int, str] = {}
        # Only in these formats is an empty line a text; otherwise leading empty lines are ignored.
        self._drop_blank = options.labelled or options.format not in ("lines", "fasttext")

    @property
    def untouched(self) -> bool:
        """Whether the file was empty."""
        return self._line == 1 and not self._size

    def feed(self, block: Block) -> Rows | None:
        """The rows that end in this block; None if more data is needed."""
        self._keep(self._without_blank_lines(block.data))
        self._marks |= block.marks
        urgent = block.last or block.pause
        too_long = self._size > streams.MAX_ROW or self._lines > streams.MAX_LINES
        if not self._size or not (self._size >= self._enough or urgent or too_long):
            return None
        data = b"".join(self._parts)
        self._parts = [data]
        if self.parser is None:
            last = block.last or too_long
            self.parser = open_parser(data, last, self.options, self.file, self.before)
            if self.parser is None:
                self._enough = 2 * self._size
                return None
        # If the data is too long, a row that has been open for half of it is given up. The other
        # half can then grow again, so no byte is scanned more than a few times.
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
        """Remove blank lines at the beginning of the file."""
        if not self._drop_blank or self.parser is not None or self._size:
            return data
        if self.options.format is None and not data.strip():  # a later line tells the format
            self._line += count_lines(data)
            return b""
        lead = len(data) - len(data.lstrip(b"\r\n"))
        twice = data.find(b"\r\r", 0, lead)  # only a single one belongs to the line end
        end = data.rfind(b"\n", 0, lead if twice < 0 else twice) + 1
        self._line += count_lines(data[:end])
        return data[end:]

    def _place_marks(self, rows: Rows, last: bool) -> None:
        """A mark on a line makes its row bad."""
        lines = [line for line in sorted(self._marks) if line < self._line or last]
        places = np.searchsorted(rows.lines, lines, "right") - 1
        found = zip(places.tolist(), ((line, self._marks.pop(line)) for line in lines), strict=True)
        rows.mark({row: mark for row, mark in found if row >= 0}, self.file)
