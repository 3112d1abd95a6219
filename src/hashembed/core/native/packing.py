"""Functions that turn the arguments of a kernel into 64-bit words.

A call of a small layer, or of a short text, takes a few microseconds. So the checks of all
arguments are written out as Python source, one function for each signature.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from hashembed.core.native.library import HEADER
from hashembed.core.native.signature import ArrayKind, GroupKind, Kind, NothingKind, NumberKind

_C_ORDER_AND_ALIGNED = 0x0101  # NumPy's flags

# float32 and float64 are not exchanged: results would differ.
_TYPES: dict[str, tuple[type, ...]] = {
    "f": (np.float32,),
    "d": (float,),
    "?": (bool, np.bool_),
}
_INTEGERS = (int, np.integer)

Packer = Callable[[Sequence[Any]], bytes | None]


def struct_code(kind: Kind) -> str:
    """How `struct` writes a value in words."""
    if isinstance(kind, ArrayKind):
        return "q"
    if isinstance(kind, GroupKind):
        return "".join(map(struct_code, kind.fields))
    if isinstance(kind, NothingKind):
        return ""
    size = kind.dtype.itemsize
    if kind.dtype.kind == "b":
        return "?7x"
    return {"f": {4: "f4x", 8: "d"}, "i": {4: "i4x"}, "u": {8: "Q"}}[kind.dtype.kind].get(size, "q")


def make_packer(kinds: Sequence[Kind]) -> Packer:
    """A function from arguments to words; it returns None if one of them does not fit."""
    known: dict[str, Any] = {
        "ndarray": np.ndarray,
        "pack": struct.Struct("=q" + "".join(map(struct_code, kinds))).pack,
    }
    names = (f"v{i}" for i in count())
    words: list[str] = [str(HEADER)]
    lines = ["def packer(arguments):"]
    lines += [f"    {line}" for line in _unpack("arguments", kinds, known, names, words)]
    lines.append(f"    return pack({', '.join(words)})")
    exec("\n".join(lines), known)
    packer: Packer = known["packer"]
    return packer


def _unpack(
    group: str, kinds: Sequence[Kind], known: dict[str, Any], names: Iterator[str], words: list[str]
) -> Iterator[str]:
    """Lines that check the members of a tuple, and name them."""
    yield f"if len({group}) != {len(kinds)}: return None"
    own = [next(names) for _ in kinds]
    if own:
        yield f"{', '.join(own)}, = {group}"
    nothing = [name for name, kind in zip(own, kinds, strict=True) if isinstance(kind, NothingKind)]
    for name in nothing:  # first, because they tell variants of a kernel apart
        yield f"if {name} is not None: return None"
    for name, kind in zip(own, kinds, strict=True):
        if isinstance(kind, GroupKind):
            known[f"T{name}"] = kind.cls or tuple
            yield f"if not isinstance({name}, T{name}): return None"
            yield from _unpack(name, kind.fields, known, names, words)
        elif isinstance(kind, ArrayKind):
            known[f"T{name}"] = kind.dtype
            yield (
                f"if not isinstance({name}, ndarray) or {name}.dtype != T{name} "
                f"or {name}.ndim != {kind.ndim} or {name}.flags.num & {_C_ORDER_AND_ALIGNED} "
                f"!= {_C_ORDER_AND_ALIGNED}: return None"
            )
            words.append(f"id({name})")
        elif isinstance(kind, NumberKind):
            known[f"T{name}"] = _TYPES.get(kind.dtype.char, _INTEGERS)
            true = "" if kind.dtype == bool else f" or {name} is True or {name} is False"
            yield f"if not isinstance({name}, T{name}){true}: return None"
            words.append(name)
