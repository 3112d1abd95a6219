"""Bytes in any encoding to UTF-8, and lines that are not UTF-8 made readable."""

import codecs
import struct
from dataclasses import dataclass, field

import pyarrow as pa

from hashembed.core.wording import named
from hashembed.readers.report import KEPT, WINDOWS

_BOMS = [  # UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_NOT_FOR_FILES = ("idna", "punycode")  # of names in the net; slow, and strict about their length
_UNREADABLE = "\udcff"  # becomes three bytes that are not UTF-8, so that the line is noticed


_NUL = {True: "kept a NUL byte", False: "found a NUL byte; is this text, and UTF-8?"}


class StreamError(Exception):
    """Bytes that cannot be had; the message leaves file and line to those who know them."""


def _mark_unreadable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNREADABLE, error.end


codecs.register_error("hashembed.mark", _mark_unreadable)


def known_encoding(encoding: str) -> str:
    """The name Python has for an encoding, or a ValueError.

    Codecs from bytes to bytes or text to text, such as zip and rot13, are none; nor are those that
    cannot be read in parts, or cannot tell what they cannot read.
    """
    try:
        found = codecs.lookup(encoding)
        b"text".decode(encoding, "replace")
        if found.incrementaldecoder is not None and found.name not in _NOT_FOR_FILES:
            return found.name
    except (LookupError, UnicodeError, ValueError, TypeError):
        pass
    raise ValueError(
        f"{named('encoding')} must be one that Python knows, such as 'utf-8', 'latin-1' or "
        f"'utf-16', found {encoding!r}"
    )


class Decoder:
    """Turns bytes into UTF-8 and tells what it found.

    Without an encoding: what the byte order mark says, otherwise UTF-8, and a line that is not
    UTF-8 is repaired. With one, such a line is marked.
    """

    def __init__(self, encoding: str | None):
        self.found = known_encoding(encoding) if encoding else None
        self._recode: codecs.IncrementalDecoder | None = None
        self._begun = False

    @property
    def strict(self) -> bool:
        """Whether lines are marked rather than repaired."""
        return self.found is not None

    def begin(self, data: bytes) -> None:
        """Look at the first bytes of the stream, at least four unless it is shorter."""
        if self.found is None:
            self.found = next((name for bom, name in _BOMS if data.startswith(bom)), None)
        if self.found not in (None, "utf-8", "utf-8-sig"):
            self._recode = codecs.getincrementaldecoder(self.found)("hashembed.mark")

    def decode(self, data: bytes, final: bool) -> bytes:
        """The next bytes, as UTF-8."""
        if self._recode is not None:
            try:
                data = self._recode.decode(data, final).encode("utf-8", "surrogatepass")
            except UnicodeError as error:
                raise StreamError(f"cannot be read as {self.found} ({error})") from None
        if not self._begun and data:
            self._begun = True
            data = data.removeprefix(codecs.BOM_UTF8)
        return data


def is_utf8(data: bytes) -> bool:
    """Whether all of the bytes are UTF-8."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(struct.pack("=qq", 0, len(data)))
    column = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass
class Block:
    """Whole lines of a file; `data` is UTF-8.

    marks, repairs: lines with something wrong, and lines that were made readable, {line: what}.
    pause: the stream has nothing more at the moment.
    last: it ends here, with an `error` if it failed.
    """

    data: bytes
    line: int  # number of the first line
    pause: bool = False
    last: bool = False
    error: str | None = None
    marks: dict[int, str] = field(default_factory=dict)
    repairs: dict[int, str] = field(default_factory=dict)


def repair(block: Block, decoder: Decoder, keep_nuls: bool) -> None:
    """Make a block UTF-8.

    A line with a NUL byte is marked, unless they are to be kept. A line that is not UTF-8 is UTF-8
    with damage if it has more characters that are than that are not, and takes U+FFFD for the
    damage; otherwise it is read as Windows-1252, which is latin-1 with quotation marks. A decoder
    that knows its encoding marks the line instead.
    """
    if b"\0" in block.data:
        for i, line in enumerate(block.data.split(b"\n")):
            if b"\0" not in line:
                continue
            found, reason = (block.repairs if keep_nuls else block.marks), _NUL[keep_nuls]
            if len(found) < KEPT:  # all others share one string
                where = f"NUL byte (byte {line.index(0) + 1:,} of the line)"
                reason = reason.replace("NUL byte", where)
            found[block.line + i] = reason
    if is_utf8(block.data):
        return
    lines = block.data.split(b"\n")
    for i, line in enumerate(lines):
        try:
            line.decode("utf-8")
            continue
        except UnicodeDecodeError:
            number = block.line + i
        text = line.decode("utf-8", "replace")
        damage = text.count("\ufffd")
        if decoder.strict:
            block.marks[number] = f"found bytes that are not {str(decoder.found).upper()}"
        elif sum(c > "\x7f" for c in text) > 2 * damage:
            block.repairs[number] = f"{damage} damaged UTF-8 characters, read as U+FFFD"
        else:
            text = _windows_1252(line)
            block.repairs[number] = f"not UTF-8, read as {WINDOWS}"
        lines[i] = text.encode("utf-8")
    block.data = b"\n".join(lines)


def _windows_1252(line: bytes) -> str:
    """Windows-1252 as browsers read it: its five gaps are latin-1's control characters."""
    try:
        return line.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(_GAPS.get(b) or bytes([b]).decode("cp1252") for b in line)


_GAPS = {b: chr(b) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
