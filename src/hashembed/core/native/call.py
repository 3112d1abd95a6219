"""Calls of compiled kernels.

An entry (`core/native/entry.py`) reads its arguments from 64-bit words. An array is passed as the
address of its Python object: the entry finds the data and the shape there, which is several times
faster than asking for them in Python.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hashembed.core.native.library import HEADER
from hashembed.core.native.signature import (
    ArrayKind,
    GroupKind,
    Kind,
    NothingKind,
    NumberKind,
    Signature,
    signatures,
)

_C_ORDER_AND_ALIGNED = 0x0101  # NumPy's flags


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
        self._pack = struct.Struct("=q" + "".join(map(_code, signature.parameters))).pack
        self._result, code = signature.result, _code(signature.result)
        self._unpack = struct.Struct("=" + code)
        self._room = ctypes.c_char * self._unpack.size if code else None

    def pack(self, arguments: Sequence[Any]) -> bytes | None:
        """The words of a call, or None if an argument does not fit."""
        if len(arguments) != len(self._kinds):
            return None
        values: list[Any] = [HEADER]
        for kind, value in zip(self._kinds, arguments, strict=True):
            if not _fill(kind, value, values):
                return None
        return self._pack(*values)

    def results(self) -> Any:
        """Memory for what the kernel returns."""
        return None if self._room is None else self._room()

    def read(self, results: Any) -> Any:
        """What the kernel has returned."""
        return _read(self._result, iter(self._unpack.unpack(results)))


def _code(kind: Kind) -> str:
    """How `struct` writes a value in words."""
    if isinstance(kind, ArrayKind):
        return "q"
    if isinstance(kind, GroupKind):
        return "".join(map(_code, kind.fields))
    if isinstance(kind, NothingKind):
        return ""
    size = kind.dtype.itemsize
    if kind.dtype.kind == "b":
        return "?7x"
    return {"f": {4: "f4x", 8: "d"}, "i": {4: "i4x"}, "u": {8: "Q"}}[kind.dtype.kind].get(size, "q")


def _fill(kind: Kind, value: Any, values: list[Any]) -> bool:
    """Add what `struct` packs for a value; False if it is of another kind."""
    if isinstance(kind, ArrayKind):
        if (
            isinstance(value, np.ndarray)
            and value.dtype == kind.dtype
            and value.ndim == kind.ndim
            and value.flags.num & _C_ORDER_AND_ALIGNED == _C_ORDER_AND_ALIGNED
        ):
            values.append(id(value))
            return True
        return False
    if isinstance(kind, GroupKind):
        group: Any = value
        if not isinstance(value, kind.cls or tuple) or len(group) != len(kind.fields):
            return False
        return all(_fill(field, own, values) for field, own in zip(kind.fields, group, strict=True))
    if isinstance(kind, NothingKind):
        return value is None
    if not isinstance(value, _accepted(kind)) or (isinstance(value, bool) and kind.dtype != bool):
        return False
    values.append(value)
    return True


def _accepted(kind: NumberKind) -> tuple[type, ...]:
    """The types of a number: float32 and float64 are not exchanged, since results would differ."""
    return _ACCEPTED.get(kind.dtype.char, (int, np.integer))


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "f": (np.float32,),
    "d": (float,),
    "?": (bool, np.bool_),
}


def _read(kind: Kind, values: Any) -> Any:
    if isinstance(kind, GroupKind):
        return tuple(_read(field, values) for field in kind.fields)
    return next(values)
