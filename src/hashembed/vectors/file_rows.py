"""Rows of a tensor that stays in its file: they are read when they are needed.

The file is not mapped into memory: a process that maps a file crashes if another one truncates it.
Reading past the end is an error that can be told.
"""

import os
import threading
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hashembed.core.tensor_layout import DTYPES, Layout
from hashembed.engine.tensor_file import ModelFileError, all_finite


class OpenFile:
    """A file that is open for reading as long as something needs it.

    A file that is replaced meanwhile, as `save` does it, stays readable in its old state.
    """

    def __init__(self, file: BinaryIO, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._descriptor = os.dup(file.fileno())
        self._lock = threading.Lock()

    def read_into(self, view: memoryview, at: int) -> None:
        """Fill the view with the bytes from `at` on."""
        done = 0
        while done < len(view):
            part = self._read(len(view) - done, at + done)
            if not part:
                raise ModelFileError(f"{self.path} became shorter while it was in use")
            view[done : done + len(part)] = part
            done += len(part)

    def _read(self, size: int, at: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, at)
        with self._lock:
            os.lseek(self._descriptor, at, os.SEEK_SET)
            return os.read(self._descriptor, size)

    def __del__(self) -> None:
        os.close(self._descriptor)


class FileRows:
    """A tensor of one or two axes in a file: `rows[numbers]` reads some rows, `rows[:]` all."""

    def __init__(self, file: OpenFile, layout: Layout, name: str) -> None:
        place = layout.places[name]
        self.file, self.name, self.shape = file, name, place.shape
        self.dtype = np.dtype(DTYPES[place.dtype])
        self._begin = layout.begin + place.begin

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> Any:
        """A copy, or a pickle, holds the rows themselves: other processes may not have the file."""
        return np.asarray, (self[:],)

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        numbers = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
        flat = numbers.reshape(-1)
        out = np.empty((len(flat), *self.shape[1:]), self.dtype)
        width = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        if width and len(flat):
            view = memoryview(out.reshape(-1).view(np.uint8).data)
            # Consecutive rows are read together.
            starts = np.flatnonzero(np.diff(flat, prepend=flat[0] - 2) != 1)
            for first, stop in zip(starts, np.append(starts[1:], len(flat)), strict=True):
                at = self._begin + int(flat[first]) * width
                self.file.read_into(view[int(first) * width : int(stop) * width], at)
        if self.dtype.kind == "f" and not all_finite(out):
            raise ModelFileError(f"{self.file.path} is damaged: {self.name} has NaN or infinity")
        return out.reshape(*numbers.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)
