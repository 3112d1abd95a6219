"""Keys on disk, for data sets larger than memory: appended in batches, read memory-mapped.

Training reads the same numbers in the same order as from memory, so the model is the same.
"""

import os
from types import TracebackType
from typing import Self

import numpy as np

from hashembed.core.arrays import I64
from hashembed.hashing.bags import Bags


class KeyStore:
    """An unnamed file of keys: nothing is left behind, even if the process is killed.

    The lengths of the bags stay in memory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        import tempfile

        os.makedirs(folder, exist_ok=True)
        self._file = tempfile.TemporaryFile(prefix="hashembed-", dir=folder)  # noqa: SIM115
        self._lengths: list[I64] = []
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, bags: Bags) -> None:
        """Append these bags."""
        self._file.write(bags.keys.data)
        self._lengths.append(bags.lengths)
        self._count += len(bags.keys)

    def bags(self) -> Bags:
        """All bags so far; keys are read from the file on demand."""
        self._file.flush()
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if self._count == 0:
            return Bags(np.empty(0, np.int64), offsets)
        return Bags(np.asarray(np.memmap(self._file, np.int64, "r", shape=(self._count,))), offsets)
