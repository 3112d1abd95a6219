"""The numbers of a corpus: in memory while they are few, then in an unnamed temporary file.

Training reads the same numbers in the same order from either, so the vectors are the same.
"""

import os
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

import numpy as np

from hashembed.core.arrays import I32

IN_MEMORY = 256 << 20  # bytes


@dataclass(frozen=True)
class Storage:
    """Where a corpus goes that is larger than `limit` bytes. None is the system's folder."""

    folder: str | os.PathLike[str] | None = None
    limit: int = IN_MEMORY


class IdStore:
    """Appends numbers. Its file has no name: nothing is left behind, even if the process dies."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.count = 0
        self._parts: list[I32] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()  # a map of the file keeps it

    def add(self, ids: I32) -> None:
        """Append these numbers."""
        self.count += len(ids)
        self._parts.append(ids)
        if self._file is not None or 4 * self.count > self.storage.limit:
            self._write()

    def whole(self) -> I32:
        """All numbers. They may be changed; in a file, they are mapped into memory."""
        if self._file is None:
            self._parts = [np.concatenate([np.empty(0, np.int32), *self._parts])]
            return self._parts[0]
        self._file.flush()
        return np.asarray(np.memmap(self._file, np.int32, "r+", shape=(self.count,)))

    def _write(self) -> None:
        try:
            if self._file is None:
                self._file = self._opened()
            for part in self._parts:
                self._file.write(np.ascontiguousarray(part).data)
        except OSError as error:
            folder = self.storage.folder or "the system's folder for temporary files"
            raise OSError(
                error.errno,
                f"cannot keep the numbers of {self.count:,} words on disk ({error.strerror}): name "
                f"a folder with space, cache_dir=",
                str(folder),
            ) from error
        self._parts.clear()

    def _opened(self) -> IO[bytes]:
        import tempfile

        folder = self.storage.folder
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        return tempfile.TemporaryFile(prefix="hashembed-", dir=folder)
