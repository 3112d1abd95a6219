"""Calls of compiled entries from Python."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hashembed.core.native.signature import (
    ArrayKind,
    GroupKind,
    Kind,
    NothingKind,
    NumberKind,
    Signature,
    signatures,
)

Entry = Callable[[Any], int]


class NativeFailedError(RuntimeError):
    """A compiled kernel stopped: another worker failed, or there was no memory."""


class NativeKernel:
    """The compiled entries of one kernel, one for each signature."""

    def __init__(self, name: str, entries: Sequence[tuple[Signature, Entry]]) -> None:
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
                entries.append((signature, getattr(library, f"{symbol}_{i}")))
            except AttributeError:
                return None
        return cls(function.__name__, entries)

    def pack(self, arguments: Sequence[Any]) -> "tuple[_Entry, Any] | None":
        """The entry that takes these arguments, with their words; None if there is none."""
        for entry in self._entries:
            words = entry.pack(arguments)
            if words is not None:
                return entry, words
        return None

    def run(self, packed: "tuple[_Entry, Any]") -> Any:
        """Call it -> what it returns."""
        entry, words = packed
        if entry.call(words) != 0:
            raise NativeFailedError(
                f"{self.name} stopped: another worker failed, or memory ran out"
            )
        return entry.result(words)


class _Entry:
    def __init__(self, signature: Signature, call: Entry) -> None:
        self.call = call
        self.parameters, self._result = signature.parameters, signature.result
        count = sum(kind.words for kind in signature.parameters)
        self._count, self._block = count, ctypes.c_int64 * (count + self._result.words)

    def pack(self, arguments: Sequence[Any]) -> Any:
        """The words of a call, or None if an argument does not fit."""
        words: list[int] = []
        if len(arguments) != len(self.parameters):
            return None
        for kind, value in zip(self.parameters, arguments, strict=True):
            if not _fill(kind, value, words):
                return None
        return self._block(*words)

    def result(self, words: Any) -> Any:
        """What the kernel has returned."""
        if self._result.words == 0:
            return None
        return _read(self._result, iter(words[self._count :]))


def _fill(kind: Kind, value: Any, words: list[int]) -> bool:
    """Add the words of a value; False if it is of another kind."""
    if isinstance(kind, ArrayKind):
        if not (
            isinstance(value, np.ndarray)
            and value.dtype == kind.dtype
            and value.ndim == kind.ndim
            and value.flags.c_contiguous
        ):
            return False
        words.append(value.__array_interface__["data"][0])
        words.extend(value.shape)
        return True
    if isinstance(kind, GroupKind):
        group: Any = value
        if not isinstance(value, kind.cls or tuple) or len(group) != len(kind.fields):
            return False
        return all(_fill(field, own, words) for field, own in zip(kind.fields, group, strict=True))
    if isinstance(kind, NothingKind):
        return value is None
    return _fill_number(kind, value, words)


def _fill_number(kind: NumberKind, value: Any, words: list[int]) -> bool:
    dtype = kind.dtype
    if dtype.kind == "f":
        if not isinstance(value, float | np.floating):
            return False
        code = "<f4x" if dtype.itemsize == 4 else "<d"
        words.append(struct.unpack("<q", struct.pack(code, value))[0])
        return True
    if dtype.kind == "b":
        if not isinstance(value, bool | np.bool_):
            return False
    elif not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    number = int(value)
    words.append(number - 2**64 if number >= 2**63 else number)
    return True


def _read(kind: Kind, words: Any) -> Any:
    if isinstance(kind, GroupKind):
        return tuple(_read(field, words) for field in kind.fields)
    assert isinstance(kind, NumberKind)
    size = kind.dtype.itemsize
    value = np.frombuffer(struct.pack("<q", next(words))[:size], kind.dtype)[0]
    return value.item()
