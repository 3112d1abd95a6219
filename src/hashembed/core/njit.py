"""Kernels compiled by Numba, and kept on disk where that is possible.

Numba's own cache is fatal where no folder can be written (a read-only installation without a home)
and where one of its files was damaged. Ours costs time at worst: a kernel that cannot be read is
compiled, one that cannot be kept stays in memory, and one line on standard error says so.
"""

import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from hashembed.core.source_stamp import source_stamp

LONG = 1.0  # seconds of compiling after which the user is told

# A value of `fastmath`: sums may be reordered and contracted for SIMD, but NaN and infinity keep
# their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}

_SEAL = 16  # bytes of the checksum at the end of a file
_seen: set[Hashable] = set()
_told: list[str] = []


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """Numba's `njit` for all kernels; `cache` keeps them on disk where that is possible."""
    if function is None:
        return lambda function: njit(function, cache=cache, **options)
    dispatcher = numba.njit(**options)(function)
    if cache and hasattr(dispatcher, "enable_caching"):  # with NUMBA_DISABLE_JIT it is the function
        try:
            dispatcher._cache = _Cache(function)  # what `enable_caching` does
        except Exception as error:  # code without a file, or a Numba of other manners
            _tell_not_kept(error)
    return dispatcher


def _read_only(locator: Any) -> Any:
    """A place to look for kernels without a test that it can be written."""

    def from_function(cls: Any, function: Any, file: str) -> Any:
        given = getattr(config, "CACHE_DIR", "") or "UserProvided" not in locator.__name__
        return cls(function, file) if given and os.path.exists(file) else None

    name = f"ReadOnly{locator.__name__}"
    return type(name, (locator,), {"from_function": classmethod(from_function)})


class _Places(CompileResultCacheImpl):
    """Where Numba looks, and last of all where kernels may lie although none can be added.

    An image whose build has run them once, as root, has them in its read-only file system.
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
    """Numba's files with a checksum at their end, and with a checksum of all sources.

    A flipped bit would otherwise be run as machine code, and a change in an inlined file would go
    unnoticed. And a kernel knows its key: two processes that save different ones at once may take
    the same name.
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
            raise FileNotFoundError(name)  # for Numba the same: to be compiled, and written anew
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BytesIO]:
        content = BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + _seal(content.getvalue()))


class _Cache(FunctionCache):
    """Numba's cache of one function; whatever goes wrong is as if there were none."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.sealed",
            source=Path(inspect.getfile(function)),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what a file may hold, nobody can list
            _tell(f"the compiled kernels in {self._cache_path} cannot be read; compiling them anew")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _tell_not_kept(error)


def _seal(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SEAL).digest()


def _is_whole(path: str) -> bool:
    """Whether the file is there, as it was written."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if data[-_SEAL:] == _seal(data[:-_SEAL]):
        return True
    _tell(f"the compiled kernels in {os.path.dirname(path)} are damaged; compiling them anew")
    return False


def _tell_not_kept(error: Exception) -> None:
    _tell(
        f"compiled kernels cannot be kept on disk ({error}), so every process compiles them; "
        "NUMBA_CACHE_DIR=FOLDER names a folder for them"
    )


def _tell(message: str) -> None:
    """One line on standard error, once in a process: a hundred kernels would say the same."""
    if _told:
        return
    _told.append(message)
    if sys.stderr is None:  # closed; `print` would take standard output
        return
    with suppress(OSError, ValueError):  # closed: nobody reads it
        print(f"hashembed: {message}", file=sys.stderr)


@cache
def _say() -> None:
    kept = "" if _told else "; they are kept on disk for the next time"
    message = f"compiling CPU kernels{kept}"
    logging.getLogger("hashembed").info(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"hashembed: {message}", file=sys.stderr)


@contextmanager
def may_compile(what: Hashable) -> Iterator[None]:
    """Around a call that compiles when it is the first of its kind."""
    if what in _seen:
        yield
        return
    timer = threading.Timer(LONG, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seen.add(what)
