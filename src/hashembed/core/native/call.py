"""Calls of compiled kernels.

An entry (`core/native/entry.py`) reads its arguments from 64-bit words. An array is passed as the
address of its Python object: the entry finds the data and the shape there, which is several times
faster than asking for them in Python.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from hashembed.core.native.packing import make_packer, struct_code
from hashembed.core.native.signature import GroupKind, Kind, Signature, signatures


class NativeFailedError(RuntimeError):
    """A kernel stopped: another worker failed, or memory ran out."""


Packed = tuple["_Entry", bytes]


class NativeKernel:
    """The entries of one kernel, one for each signature."""

    def __init__(self, name: str, entries: Sequence[tuple[Signature, Any]]) -> None:
        self.name = name
        self._entries = [_Entry(signature, entry) for signature, entry in entries]

    @classmethod
    def of(
        cls, function: Callable[..., Any], symbol: str, library: ctypes.CDLL
    ) -> "NativeKernel | None":
        """The entries of a function, or None if the library does not have it."""
        entries = []
        for i, signature in enumerate(signatures(function)):
            try:
                entries.append((signature, library[f"{symbol}_{i}"]))
            except AttributeError:
                return None
        return cls(function.__name__, entries)

    def pack(self, arguments: Sequence[Any]) -> Packed | None:
        """The entry that takes these arguments, with their words; None if there is none."""
        for entry in self._entries:
            words = entry.pack(arguments)
            if words is not None:
                return entry, words
        return None

    def run(self, packed: Packed) -> Any:
        """Call it -> what it returns. The arguments must still exist."""
        entry, words = packed
        results = entry.results()
        if entry.call(words, results) != 0:
            raise NativeFailedError(
                f"{self.name} stopped: another worker failed, or memory ran out"
            )
        return None if results is None else entry.read(results)


def as_worker(packed: Packed, worker: int, workers: int) -> Packed:
    """The same call by another worker: the two numbers are a kernel's first arguments."""
    entry, words = packed
    return entry, words[:8] + struct.pack("=qq", worker, workers) + words[24:]


class _Entry:
    def __init__(self, signature: Signature, call: Any) -> None:
        call.argtypes, call.restype = (ctypes.c_char_p, ctypes.c_void_p), ctypes.c_int32
        self.call, self._kinds = call, signature.parameters
        self._result, code = signature.result, struct_code(signature.result)
        self._unpack = struct.Struct("=" + code)
        self._room = ctypes.c_char * self._unpack.size if code else None

    @cached_property
    def pack(self) -> Callable[[Sequence[Any]], bytes | None]:
        """From arguments to the words of a call, or None if an argument does not fit."""
        return make_packer(self._kinds)

    def results(self) -> Any:
        """Memory for what the kernel returns."""
        return None if self._room is None else self._room()

    def read(self, results: Any) -> Any:
        """What the kernel has returned."""
        return _read(self._result, iter(self._unpack.unpack(results)))


def _read(kind: Kind, values: Any) -> Any:
    if isinstance(kind, GroupKind):
        return tuple(_read(field, values) for field in kind.fields)
    return next(values)
