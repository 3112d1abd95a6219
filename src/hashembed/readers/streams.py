"""Files as blocks of lines: opened, decompressed, decoded, cut at line ends."""

import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa

from hashembed.core.background import one_ahead
from hashembed.core.locations import is_uri, open_location
from hashembed.readers.encodings import Block, Decoder, StreamError, repair
from hashembed.readers.formats.slices import behind_lines, count_lines
from hashembed.readers.report import DataError
from hashembed.readers.sources import STDIN

BLOCK = 2 << 20  # bytes parsed at a time: more would not stay in the cache
LINES = 1 << 16  # most lines in a block, which bounds the memory for line numbers
MAX_ROW = 1 << 28  # bytes; anything longer is an open quote, or not text
MAX_LINES = 1 << 20  # lines within quotes; anything longer is an open quote

_ZSTD = 1 << 16
_MAGIC = 6  # bytes that identify a compression


class _Chained(io.RawIOBase):
    """Bytes that were read before, then the rest of the stream."""

    def __init__(self, head: bytes, stream: Any):
        self.head, self.stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        found, self.head = self.head[:size], self.head[size:]
        found = found or self.stream.read1(size)
        buffer[: len(found)] = found
        return len(found)


class Input:
    """A file or standard input, decompressed. Its first bytes tell the compression."""

    def __init__(self, path: str, name: str):
        self.name = name
        try:
            self._file: Any = _standard_input() if path == STDIN else open_source(path)
            self._owned = path != STDIN
            self.live = _is_live(self._file)
            self.head, self.compression, self._stream = _decompressed(self._file)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None

    def read(self) -> bytes:
        """The next bytes, b"" at the end. Waits only until some bytes are there."""
        try:
            return self._stream.read1(BLOCK)  # type: ignore[no-any-return]
        except _damages() as error:
            kind = (
                f"damaged or truncated {self.compression} data"
                if self.compression
                else "read error"
            )
            raise StreamError(f"{kind} ({error})") from None

    def pauses(self) -> bool:
        """Whether a live stream has no more data at the moment."""
        if not self.live:
            return False
        try:
            return not select.select([self._file], [], [], 0)[0]
        except (OSError, ValueError):  # the system cannot tell
            return True

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._owned:
            self._file.close()


def _damages() -> tuple[type[Exception], ...]:
    """What reading damaged data raises. Python asks only after an exception."""
    import lzma
    import zlib

    return EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException


class _Zstd(io.RawIOBase):
    """zstd by Arrow. At damaged data a read returns nothing, so reads are small."""

    def __init__(self, stream: Any):
        self.stream = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")

    def read1(self, size: int) -> bytes:
        return self.stream.read(min(size, _ZSTD))  # type: ignore[no-any-return]


def open_source(path: str) -> Any:
    """A file of this machine, or of another place."""
    if not is_uri(path):
        return open(path, "rb")
    return io.BufferedReader(open_location(path), BLOCK)


def _standard_input() -> Any:
    """The bytes of standard input, which may be closed."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or stream.closed:
        raise OSError("it is closed")
    return stream


def _is_live(file: Any) -> bool:
    """Whether this is a pipe or a terminal, where data may come later."""
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except io.UnsupportedOperation:  # a replacement of standard input without a descriptor
        return False


def _decompressed(file: Any) -> tuple[bytes, str | None, Any]:
    """The first bytes, the compression that they identify, and the decompressed stream."""
    head = b""
    while len(head) < _MAGIC and (more := file.read1(_MAGIC - len(head))):
        head += more
        if b"\n" in head:  # not compressed: do not wait for more
            break
    stream: IO[bytes] = file
    if file.seekable():
        file.seek(-len(head), os.SEEK_CUR)
    else:
        stream = io.BufferedReader(_Chained(head, file), 1 << 16)
    if head.startswith(b"\x1f\x8b"):
        import gzip

        return head, "gzip", gzip.GzipFile(fileobj=stream)
    if head.startswith(b"BZh"):
        import bz2

        return head, "bzip2", bz2.BZ2File(stream)
    if head.startswith(b"\xfd7zXZ\0"):
        import lzma

        return head, "xz", lzma.LZMAFile(stream)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return head, "zstd", _Zstd(stream)
    return head, None, stream


def line_blocks(source: Input, decoder: Decoder, keep_nuls: bool = False) -> Iterator[Block]:
    """Cut the stream into blocks of whole lines, of about BLOCK bytes or up to a pause.

    The last block may be empty.
    """
    blocks = _repaired(source, decoder, keep_nuls)
    # Reading a pipe may block, and a thread that does so cannot be stopped.
    yield from blocks if source.live else one_ahead(blocks)


def _repaired(source: Input, decoder: Decoder, keep_nuls: bool) -> Iterator[Block]:
    for large in _raw_blocks(source, decoder):
        for block in _split(large):
            repair(block, decoder, keep_nuls)
            yield block


def _split(block: Block) -> Iterator[Block]:
    """Split a block into parts of at most LINES lines. The last part keeps its end or error."""
    at, line, data = 0, block.line, block.data
    if count_lines(data) <= LINES:
        yield block
        return
    while (end := behind_lines(data, at, LINES)) < len(data):
        yield Block(data[at:end], line)
        at, line = end, line + LINES
    yield replace(block, data=data[at:], line=line) if at else block


def _raw_blocks(source: Input, decoder: Decoder) -> Iterator[Block]:
    parts: list[bytes] = []
    size, line, whole = 0, 1, False
    try:
        for data in _decoded(source, decoder):
            parts.append(data)
            size += len(data)
            whole = whole or b"\n" in data
            if size > MAX_ROW and not whole:
                raise StreamError(
                    f"found a line of more than {MAX_ROW:,} bytes: check that the file is text"
                )
            pause = source.pauses()
            if (size >= BLOCK or pause) and whole:
                block, rest = _cut(parts, line, pause)
                line += count_lines(block.data)
                yield block
                parts, size, whole = [rest], len(rest), False
    except StreamError as error:
        joined = b"".join(parts)
        yield Block(joined[: joined.rfind(b"\n") + 1], line, last=True, error=str(error))
        return
    yield Block(b"".join(parts), line, last=True)


def _cut(parts: list[bytes], line: int, pause: bool) -> tuple[Block, bytes]:
    """The whole lines of the parts, and what follows them."""
    if b"\n" not in parts[-1]:
        parts = [b"".join(parts)]
    *before, last = parts
    end = last.rfind(b"\n") + 1
    return Block(b"".join([*before, memoryview(last)[:end]]), line, pause=pause), last[end:]


def _decoded(source: Input, decoder: Decoder) -> Iterator[bytes]:
    head = b""
    while len(head) < 4 and (more := source.read()):
        head += more
        if b"\n" in head and not head.startswith((b"\xff", b"\xfe")):
            break
    decoder.begin(head)
    yield decoder.decode(head, False)
    while raw := source.read():
        yield decoder.decode(raw, False)
    yield decoder.decode(b"", True)
