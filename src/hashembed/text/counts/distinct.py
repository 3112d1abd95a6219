"""Estimates the number of distinct keys, in an array or in a stream.

    count_distinct     an array: linear counting in 2 MiB a thread, on all cores
    DistinctCounter    a stream: HyperLogLog in 64 KiB

HyperLogLog uses Otmar Ertl's estimator, algorithm 6 of "New cardinality estimation algorithms for
HyperLogLog sketches" (2017). It is one formula from zero to 2^64, without tables of bias.
"""

from collections.abc import Callable, Iterator
from math import inf, log, sqrt
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import I64, distinct
from hashembed.core.threads import cpu_count, run_workers
from hashembed.text.counts.distinct_kernels import BITS, add_all, mark

if TYPE_CHECKING:
    from hashembed.text.config import TextConfig

CHUNK_BYTES = 4 << 20


def count_distinct(keys: I64, threads: int | None = None) -> int:
    """About how many distinct keys there are: within 1% up to 50 million."""
    workers = (threads or cpu_count()) if len(keys) > 1_000_000 else 1
    ones = run_workers(mark, workers, keys, np.zeros((workers, BITS // 64), np.uint64))
    return round(-BITS * log(max(BITS - sum(ones), 1) / BITS))


class DistinctCounter:
    """Estimates the number of distinct keys seen, to within about 1.04 / sqrt(2^precision).

    The keys must be hashes already, as those of `hashing/spec.py` are: the low bits of a key choose
    a register, which keeps the longest run of leading zeros seen in the rest. The state depends
    only on the set of keys, not on their order, repetition or division into batches.
    """

    def __init__(self, precision: int = 16) -> None:
        if not 4 <= precision <= 18:
            raise ValueError(f"precision must be from 4 to 18, found {precision}")
        self.precision = precision
        self.registers = np.zeros(1 << precision, np.uint8)

    @property
    def relative_error(self) -> float:
        """The standard error of a large estimate; small ones are better."""
        return 1.04 / sqrt(len(self.registers))

    def update(self, keys: npt.ArrayLike) -> None:
        """Count some int64 keys."""
        add_all(np.ascontiguousarray(keys, np.int64).ravel(), self.registers, self.precision)

    def merge(self, other: "DistinctCounter") -> None:
        """Count all that `other` has counted: a union, so common keys count once."""
        if self.precision != other.precision:
            raise ValueError(
                f"cannot merge a counter of precision {other.precision} "
                f"into one of precision {self.precision}"
            )
        np.maximum(self.registers, other.registers, out=self.registers)

    def estimate(self) -> float:
        """The estimated number of distinct keys."""
        m = len(self.registers)
        counts = np.bincount(self.registers, minlength=self._max_rank + 1).tolist()
        if counts[0] == m:
            return 0.0
        z: float = m * _tau(1 - counts[self._max_rank] / m)
        for count in counts[self._max_rank - 1 : 0 : -1]:
            z = (z + count) / 2
        z += m * _sigma(counts[0] / m)
        return m * m / (2 * log(2) * z) if z > 0 else inf

    @property
    def _max_rank(self) -> int:
        return 64 - self.precision + 1


def count_distinct_ngrams(
    file: IO[bytes], config: "TextConfig", on_bytes: Callable[[int], object] = lambda count: None
) -> DistinctCounter:
    """Read text, one document per line, and count its distinct n-grams in bounded memory.

    `on_bytes` gets the size of every piece after it is counted.
    """
    from hashembed.text.pipeline import text_to_bags

    counter = DistinctCounter()
    for chunk in _whole_lines(file):
        counter.update(text_to_bags(_line_array(chunk), config).keys)
        on_bytes(len(chunk))
    return counter


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Chunks that end at a line end; within a line longer than a chunk, at a space or anywhere."""
    rest = b""
    while block := file.read(CHUNK_BYTES):
        rest += block
        cut = rest.rfind(b"\n") + 1
        if not cut and len(rest) >= CHUNK_BYTES:
            cut = rest.rfind(b" ") + 1 or len(rest)
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _line_array(chunk: bytes) -> Any:
    """A large_string array over the chunk itself; the newlines stay, as white space."""
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + 1
    offsets = distinct(np.concatenate([[0], ends, [len(chunk)]])).astype(np.int64)
    buffers = pa.py_buffer(offsets), pa.py_buffer(chunk)
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)


def _sigma(x: float) -> float:
    """x + sum over i >= 1 of x^(2^i) 2^(i-1), for 0 <= x < 1: registers still empty."""
    total, weight = x, 1.0
    while True:
        x *= x
        previous, total = total, total + x * weight
        if total == previous:
            return total
        weight *= 2


def _tau(x: float) -> float:
    """(1 - x - sum over i >= 1 of (1 - x^(2^-i))^2 2^-i) / 3: registers that are full."""
    if x in (0.0, 1.0):
        return 0.0
    total, weight = 1 - x, 1.0
    while True:
        x = sqrt(x)
        weight /= 2
        previous, total = total, total - (1 - x) ** 2 * weight
        if total == previous:
            return total / 3
