"""A cache on disk of the kernels that Numba compiles.

Numba's own cache raises an error if no folder is writable (a read-only installation without a home
directory), or if one of its files is damaged. This cache never fails: it compiles a kernel that it
cannot read, keeps a kernel that it cannot write in memory, and says so in one line on standard
error.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from hashembed.core.source_stamp import source_stamp

_SEAL = 16  # bytes of the checksum at the end of a file
_told: list[str] = []


def _read_only(locator: Any) -> Any:
    """A locator that finds kernels without testing that their folder can be written."""

    def from_function(cls: Any, function: Any, file: str) -> Any:
        given = getattr(config, "CACHE_DIR", "") or "UserProvided" not in locator.__name__
        return cls(function, file) if given and os.path.exists(file) else None

    name = f"ReadOnly{locator.__name__}"
    return type(name, (locator,), {"from_function": classmethod(from_function)})


class _Places(CompileResultCacheImpl):
    """Where Numba looks; and last, folders that may hold kernels although none can be added.

    A container image that ran the kernels once as root, while it was built, has them in a read-only
    file system.
    """

    _locator_classes = [  # noqa: RUF012 (Numba's own)
        *CompileResultCacheImpl._locator_classes,
        *(
            _read_only(locator)
            for locator in CompileResultCacheImpl._locator_classes
            if locator.__name__.lstrip("_") in ("UserProvidedCacheLocator", "InTreeCacheLocator")
        ),
    ]


class _Files(IndexDataCacheFile):
    """Numba's files, with a checksum at their end and a checksum of all sources.

    Without the first, a flipped bit would run as machine code. Without the second, a change in an
    inlined file would go unnoticed. A kernel is stored with its key: two processes that save
    different kernels at once may choose the same file name.
    """

    def __init__(self, cache_path: str, filename_base: str, source: Path) -> None:
        super().__init__(cache_path, filename_base, source_stamp=None)
        self._source = source

    @property
    def _source_stamp(self) -> str:
        return source_stamp(self._source)

    @_source_stamp.setter
    def _source_stamp(self, value: object) -> None:
        """Numba sets it early; ours is computed when it is needed."""

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_whole(self._data_path(name)):
            raise FileNotFoundError(name)  # Numba then compiles the kernel and writes it again
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BytesIO]:
        content = BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + _seal(content.getvalue()))


class KernelCache(FunctionCache):
    """Numba's cache of one function; a failure is treated as a miss."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.sealed",
            source=Path(inspect.getfile(function)),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A compiled kernel, or None."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # nobody can list what a damaged file may raise
            _tell(
                f"the compiled kernels in {self._cache_path} cannot be read; compiling them again"
            )
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            tell_not_kept(error)


def kernels_are_kept() -> bool:
    """Whether nothing has gone wrong with the cache in this process."""
    return not _told


def tell_not_kept(error: Exception) -> None:
    """Say once why kernels are compiled in every process."""
    _tell(
        f"compiled kernels cannot be kept on disk ({error}), so every process compiles them; "
        "NUMBA_CACHE_DIR=FOLDER names a folder for them"
    )


def _seal(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SEAL).digest()


def _is_whole(path: str) -> bool:
    """Whether the file exists and its checksum is right."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if data[-_SEAL:] == _seal(data[:-_SEAL]):
        return True
    _tell(f"the compiled kernels in {os.path.dirname(path)} are damaged; compiling them again")
    return False


def _tell(message: str) -> None:
    """One line on standard error, once in a process: a hundred kernels would say the same."""
    if _told:
        return
    _told.append(message)
    if sys.stderr is None:  # closed; `print` would take standard output
        return
    with suppress(OSError, ValueError):  # closed: nobody reads it
        print(f"hashembed: {message}", file=sys.stderr)
