"""The file formats of word2vec, which fastText (.vec) and gensim read and write, too.

    text      a line 'V d', then V lines of a word and d numbers, separated by spaces
    binary    the same first line; then V times a word, a space, d numbers of four bytes, and a line
              feed, which some programs leave out

Files may be compressed by gzip. A word holds no space: in phrases it becomes '_'.
"""

import gzip
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from hashembed.core.arrays import F32
from hashembed.core.printable import printable
from hashembed.core.writing import Parts, write_whole
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.vectors.model import VectorModel
from hashembed.vectors.settings import MAX_DIM
from hashembed.vectors.word_table import model_of_table

PathLike = str | os.PathLike[str]

_ROWS = 1 << 12  # written or parsed at a time
_BLOCK = 1 << 20  # bytes read at a time
_LONGEST_WORD = 1 << 16  # bytes
_LONGEST_NUMBER = 64  # bytes
_MOST_EXPANSION = 1100  # of gzip


class VectorFileError(ValueError):
    """A file that does not hold vectors in the format that it should have."""


# --- writing ---


def write_word2vec(model: VectorModel, path: PathLike, binary: bool) -> None:
    """Write the words of the vocabulary and their vectors, the most frequent first."""
    parts = _parts(model, binary)
    if os.fspath(path).endswith(".gz"):
        parts = _compressed(parts)
    write_whole(path, Parts(0, bytes, parts))


def _parts(model: VectorModel, binary: bool) -> Iterator[bytes]:
    """The file, in pieces."""
    words, dim = len(model.dictionary), model.settings.embedding_dim
    yield f"{words} {dim}\n".encode()
    for first in range(0, words, _ROWS):
        strings = model.dictionary.strings.slice(first, _ROWS).to_pylist()
        names = [string.replace(" ", "_").encode() for string in strings]
        rows = model.of_ranks(np.arange(first, first + len(names)))
        if binary:
            pairs = zip(names, rows, strict=True)
            yield b"".join(
                [name + b" " + row.astype("<f4").tobytes() + b"\n" for name, row in pairs]
            )
        else:
            pairs = zip(names, _printed(rows), strict=True)
            yield b"".join([name + b" " + row + b"\n" for name, row in pairs])


def _printed(rows: F32) -> list[bytes]:
    """Each row as the shortest numbers that give the same bits when they are read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count, dim = rows.shape
    flat = pa.Array.from_buffers(pa.float32(), count * dim, [None, pa.py_buffer(rows)])
    offsets = pa.Array.from_buffers(
        pa.int32(), count + 1, [None, pa.py_buffer(np.arange(count + 1, dtype=np.int32) * dim)]
    )
    numbers = flat.cast(pa.string()).cast(pa.binary())
    return list(pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), b" ").to_pylist())


def _compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)  # gzip, without a name or a time
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


# --- reading ---


def read_word2vec(path: PathLike, binary: bool | None, threads: int | None) -> VectorModel:
    """The words and vectors of a file. None: find out whether it is binary."""
    with _opened(path) as file:
        reader = _Reader(file, path)
        words, dim = reader.header()
        if binary is None:
            binary = reader.seems_binary(dim)
        table = padded_rows(words, dim)
        rows = table[:, :dim]
        strings = reader.read_binary(rows) if binary else reader.read_text(rows)
    try:
        return model_of_table(strings, table, dim, threads)
    except ValueError as error:
        raise VectorFileError(printable(f"{path}: {error}")) from None


@contextmanager
def _opened(path: PathLike) -> Iterator[IO[bytes]]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            yield file
            return
        try:
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise VectorFileError(f"{path}: the compressed data are damaged: {error}") from None


class _Reader:
    """Reads a file from its beginning to its end, without trusting it."""

    def __init__(self, file: IO[bytes], path: PathLike) -> None:
        self.file, self.path = file, path
        self.buffer = b""
        self.at = 0  # what was read of the buffer

    def header(self) -> tuple[int, int]:
        """V and d, of the first line."""
        line = self._line(256, 1)
        try:
            words, dim = (int(part) for part in line.split())
        except ValueError:
            raise self._error(
                1,
                f"found {_shown(line)}, expected the number of words and the size of a vector, "
                "such as '400000 300' (files of GloVe lack this line: add it)",
            ) from None
        if not (words > 0 and 0 < dim <= MAX_DIM):
            raise self._error(
                1, f"found {words:,} words of {dim:,} numbers, expected 1 to {MAX_DIM} numbers"
            )
        packed = isinstance(self.file, gzip.GzipFile)
        size = os.path.getsize(self.path) * (_MOST_EXPANSION if packed else 1)
        if words * (2 * dim + 2) > size:  # a word takes at least 'w 0 0\n'
            raise self._error(
                1, f"{words:,} words of {dim:,} numbers do not fit in a file of its size"
            )
        return words, dim

    def seems_binary(self, dim: int) -> bool:
        """Whether what follows is not a word and `dim` numbers in a line of text."""
        self._fill(_LONGEST_WORD + _LONGEST_NUMBER * dim)
        line = self.buffer[self.at :].split(b"\n", 1)[0]
        parts = line.rstrip(b" \r").split(b" ")
        try:
            return len(parts) != 1 + dim or not [float(part) for part in parts[1:]]
        except ValueError:
            return True

    def read_text(self, rows: F32) -> list[str]:
        """Fill the rows -> the words."""
        words, dim = rows.shape
        longest = _LONGEST_WORD + (_LONGEST_NUMBER + 1) * dim
        strings: list[str] = []
        while len(strings) < words:
            first = len(strings)
            pending: list[bytes] = []
            for place in range(first, min(first + _ROWS, words)):
                line = self._line(longest, place + 2)
                if not line:
                    raise self._too_few(place, words)
                word, _, numbers = line.rstrip(b" \r\n").partition(b" ")
                if numbers.count(b" ") != dim - 1 or not numbers:
                    found = numbers.count(b" ") + bool(numbers)
                    raise self._error(
                        place + 2, f"found {found:,} numbers after {_shown(word)}, expected {dim:,}"
                    )
                strings.append(self._word(word, place + 2))
                pending.append(numbers)
            rows[first : len(strings)] = self._parsed(pending, dim, first + 2)
        number = words + 2
        while line := self._line(longest, number):
            if line.strip():
                raise self._error(
                    number, f"found more than the {words:,} words that the first line says"
                )
            number += 1
        return strings

    def read_binary(self, rows: F32) -> list[str]:
        """Fill the rows -> the words."""
        words, dim = rows.shape
        strings: list[str] = []
        for place in range(words):
            end = self._find_space(place, words)
            word = self.buffer[self.at : end].lstrip(b"\n")
            strings.append(self._word(word, None, place))
            self.at = end + 1
            self._fill(4 * dim)
            if len(self.buffer) - self.at < 4 * dim:
                raise self._too_few(place, words)
            rows[place] = np.frombuffer(self.buffer, "<f4", dim, self.at)
            if not np.isfinite(rows[place]).all():
                raise self._error(None, f"the vector of {_shown(word)} holds NaN or infinity")
            self.at += 4 * dim
        self._fill(_BLOCK)
        if self.buffer[self.at :].strip(b"\n"):
            raise self._error(None, f"found more than the {words:,} words that the first line says")
        return strings

    def _find_space(self, place: int, words: int) -> int:
        end = self.buffer.find(b" ", self.at)
        if end < 0:
            self._fill(_LONGEST_WORD)
            end = self.buffer.find(b" ", self.at)
        if end < 0 and len(self.buffer) - self.at < _LONGEST_WORD:
            raise self._too_few(place, words)
        if end < 0 or end - self.at > _LONGEST_WORD:
            raise self._error(
                None, f"word {place + 1:,} has no end: the file is damaged, or not binary"
            )
        return end

    def _parsed(self, lines: list[bytes], dim: int, first: int) -> F32:
        """The numbers of lines that have `dim` each."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # of what is not a number
                flat = np.fromstring(b" ".join(lines), np.float32, sep=" ")
            if len(flat) == dim * len(lines) and np.isfinite(flat).all():
                return np.asarray(flat.reshape(-1, dim))
        except (DeprecationWarning, ValueError):
            pass
        return np.stack([self._parsed_one(line, first + n) for n, line in enumerate(lines)])

    def _parsed_one(self, line: bytes, number: int) -> F32:
        """The same for one line, to find what is wrong, and where."""
        values: list[float] = []
        for part in line.split(b" "):
            try:
                values.append(float(part))
            except ValueError:
                raise self._error(number, f"found {_shown(part)}, expected a number") from None
        with np.errstate(over="ignore"):
            row = np.array(values, np.float32)
        if not np.isfinite(row).all():
            raise self._error(number, "found NaN, infinity or a number too large")
        return row

    def _word(self, word: bytes, line: int | None, place: int = 0) -> str:
        where = "" if line is not None else f"word {place + 1:,}: "
        if not word:
            raise self._error(line, f"{where}found an empty word")
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise self._error(line, f"{where}found {_shown(word)}, which is not UTF-8") from None

    def _line(self, longest: int, number: int) -> bytes:
        """The next line with its end; nothing at the end of the file."""
        end = self.buffer.find(b"\n", self.at)
        if end < 0:
            self._fill(longest)
            end = self.buffer.find(b"\n", self.at)
        end = len(self.buffer) if end < 0 else end + 1
        line, self.at = self.buffer[self.at : end], end
        if len(line) > longest:
            raise self._error(number, f"found a line longer than {longest:,} bytes")
        return line

    def _fill(self, wanted: int) -> None:
        """Have at least `wanted` bytes in the buffer, if the file has so many."""
        while len(self.buffer) - self.at < wanted:
            more = self.file.read(max(_BLOCK, wanted))
            if not more:
                return
            self.buffer, self.at = self.buffer[self.at :] + more, 0

    def _too_few(self, found: int, words: int) -> VectorFileError:
        return VectorFileError(
            printable(
                f"{self.path}: the first line says {words:,} words, but the file ends after "
                f"{found:,}: it was cut off"
            )
        )

    def _error(self, line: int | None, message: str) -> VectorFileError:
        where = "" if line is None else f"line {line:,}: "
        return VectorFileError(printable(f"{self.path}: {where}{message}"))


def _shown(part: Any) -> str:
    return repr(part[:60].decode(errors="replace"))
