"""Finds the library of compiled kernels that suits this processor.

A wheel has one library for each level of x86-64 (`LEVELS`, in `lib`). In a source tree, where
kernels are edited, a kernel of the library is used only if its sources are still those that it was
compiled from.

HASHEMBED_KERNELS=jit lets Numba compile all kernels; HASHEMBED_KERNELS=x86-64 (or another level)
names the library to use.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "lib"
STAMPS = FOLDER / "stamps.json"  # kernel -> checksum of its sources
OBSTACLE = FOLDER / "obstacle.txt"  # why there are no libraries
CHOICE = "HASHEMBED_KERNELS"
JIT = "jit"

# What a processor must have, as Linux calls it; the best level comes last.
_V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
_V4 = frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
LEVELS = {"x86-64": frozenset[str](), "x86-64-v3": _V3, "x86-64-v4": _V3 | _V4}
HEADER = object.__basicsize__  # bytes of an object before the fields of its type


class Runtime(NamedTuple):
    """Which kernels run, and why."""

    level: str  # of the library, or JIT
    why: str
    library: ctypes.CDLL | None


@cache
def runtime() -> Runtime:
    """Loads the library, at the first call."""
    wanted = os.environ.get(CHOICE, "")
    if wanted == JIT:
        return Runtime(JIT, f"{CHOICE}={JIT} asks for it", None)
    if wanted and wanted not in LEVELS:
        raise ValueError(f"{CHOICE} must be one of {', '.join([*LEVELS, JIT])}; found {wanted!r}")
    if wanted and not LEVELS[wanted] <= _processor_flags():
        raise ValueError(f"{CHOICE}={wanted}, but this processor has only {best_level()}")
    if problem := _problem():
        return Runtime(JIT, problem, None)
    level = wanted or best_level()
    if not library_file(level).is_file():
        return Runtime(JIT, f"this installation has no compiled kernels{_obstacle()}", None)
    try:
        library = ctypes.CDLL(str(library_file(level)))
    except OSError as error:
        return Runtime(JIT, f"the compiled kernels cannot be loaded ({error})", None)
    why = f"{CHOICE}={wanted} asks for it" if wanted else "the best for this processor"
    return Runtime(level, why, library)


def find_library(symbol: str, function: Callable[..., Any]) -> ctypes.CDLL | None:
    """The library, unless it has this kernel only as it was before an edit."""
    library = runtime().library
    if library is not None and in_source_tree():
        from hashembed.core.source_stamp import source_stamp

        if _stamps().get(symbol) != source_stamp(Path(function.__code__.co_filename)):
            return None
    return library


def library_file(level: str) -> Path:
    """The file of a level's library."""
    return FOLDER / f"kernels-{level}.so"


def best_level() -> str:
    """The best level that this processor has."""
    flags = _processor_flags()
    return [level for level, needed in LEVELS.items() if needed <= flags][-1]


@cache
def in_source_tree() -> bool:
    """Whether the package runs from a clone."""
    return (FOLDER.parents[4] / "hatch_build.py").is_file()


def _problem() -> str | None:
    """What keeps the library from being used."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return f"there are no compiled kernels for {sys.platform} on this processor"
    import numpy as np  # the build reads this module without it

    probe = np.zeros(1)
    if ctypes.c_int64.from_address(id(probe) + HEADER).value != probe.ctypes.data:
        return "this Python or NumPy lays out arrays in another way"
    return None


def _obstacle() -> str:
    """Why the installation did not compile them."""
    try:
        return f": {OBSTACLE.read_text(encoding='utf-8').strip()}"
    except OSError:
        return ""


def _processor_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


@cache
def _stamps() -> dict[str, str]:
    import json

    try:
        stamps: dict[str, str] = json.loads(STAMPS.read_text())
    except (OSError, ValueError):
        return {}
    return stamps
