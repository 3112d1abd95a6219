"""Bytes in any encoding to UTF-8; lines that are not valid UTF-8 are repaired."""

import codecs
import struct
from dataclasses import dataclass, field

import pyarrow as pa

from hashembed.core.wording import named
from hashembed.readers.report import KEPT, WINDOWS

_BOMS = [  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_NOT_FOR_FILES = ("idna", "punycode")  # for domain names: slow, and limited in length
_UNREADABLE = "\udcff"  # encodes to invalid UTF-8, so that the line is found later


_NUL = {
    True: "kept a NUL byte",
    False: "found a NUL byte: check that the file is text, and its encoding",
}


class StreamError(Exception):
    """Bytes that cannot be read. The message does not name the file; the caller does."""


def _mark_unreadable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNREADABLE, error.end


codecs.register_error("hashembed.mark", _mark_unreadable)


def known_encoding(encoding: str) -> str:
    """Python's name of an encoding, or a ValueError.

    Refuses codecs that do not decode bytes to text (zip, rot13), and those that cannot decode in
    parts or cannot report errors.
    """
    try:
        found = codecs.lookup(encoding)
        b"text".decode(encoding, "replace")
        if found.incrementaldecoder is not None and found.name not in _NOT_FOR_FILES:
            return found.name
    except (LookupError, UnicodeError, ValueError, TypeError):
        pass
    raise ValueError(
        f"{named('encoding')} must be an encoding that Python knows, such as 'utf-8', 'latin-1' or "
        f"'utf-16', found {encoding!r}"
    )


class Decoder:
    """Converts bytes to UTF-8.

    Without an encoding, a byte order mark decides, otherwise it is UTF-8, and invalid lines are
    repaired. With an encoding, invalid lines are marked as bad.
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
        """Look for a byte order mark in the first bytes: at least four, or the whole stream."""
        if self.found is None:
            self.found = next((name for bom, name in _BOMS if data.startswith(bom)), None)
        if self.found not in (None, "utf-8", "utf-8-sig"):
            self._recode = codecs.getincrementaldecoder(self.found)("hashembed.mark")

    def decode(self, data: bytes, final: bool) -> bytes:
        """Convert the next bytes."""
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
    """Whether the bytes are valid UTF-8."""
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

    marks, repairs: bad lines and repaired lines, {line: what}.
    pause: the stream has no more data at the moment.
    last: the stream ends here; `error` says why, if it failed.
    """

    data: bytes
    line: int  # number of the first line
    pause: bool = False
    last: bool = False
    error: str | None = None
    marks: dict[int, str] = field(default_factory=dict)
    repairs: dict[int, str] = field(default_factory=dict)


def repair(block: Block, decoder: Decoder, keep_nuls: bool) -> None:
    """Make a block valid UTF-8.

    A line with a NUL byte is marked as bad, unless NUL bytes are kept. An invalid line counts as
    damaged UTF-8 if more of its non-ASCII characters are valid than not; U+FFFD then replaces the
    invalid ones. Otherwise it is decoded as Windows-1252, which is latin-1 with quotation marks. A
    decoder with a given encoding marks the line as bad instead.
    """
    if b"\0" in block.data:
        for i, line in enumerate(block.data.split(b"\n")):
            if b"\0" not in line:
                continue
            found, reason = (block.repairs if keep_nuls else block.marks), _NUL[keep_nuls]
            if len(found) < KEPT:  # later ones share one string, to save memory
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
    """Decode as browsers do: the five undefined bytes are latin-1's control characters."""
    try:
        return line.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(_GAPS.get(b) or bytes([b]).decode("cp1252") for b in line)


_GAPS = {b: chr(b) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
