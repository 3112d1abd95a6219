"""Compiled kernels are arithmetic that has the same bits on every processor."""

import re
import subprocess
import sys
from types import CodeType, ModuleType

import pytest
from tests.cases.elf import undefined_symbols

from hashembed.core.native import build, library
from hashembed.core.native.library import LEVELS, library_file, runtime
from hashembed.core.njit import Kernel

LINKED = {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable"}
LINKED |= {"_ITM_registerTMCloneTable"}  # by the C compiler, into every library
MEMORY = {"free", "malloc", "memcpy", "memmove", "memset"}
TRANSLATE = """
from hashembed.core.native.entry import compile_entry, only_translating
from hashembed.core.native.signature import signatures
from hashembed.engine.shallow.kernel import FOR_ANY

(signature,) = signatures(FOR_ANY.scores.py_func)
with only_translating():
    print(compile_entry(FOR_ANY.scores.dispatcher, signature, "entry"))
"""
WAITING = {"sched_yield", "usleep"}
EXACT = {"ceil", "floor", "rint", "trunc", "sqrt", "sqrtf"}  # one result is right


@pytest.mark.parametrize("level", LEVELS)
def test_compiled_kernels_need_no_library(level):
    """Neither Numba's helpers nor functions of libm, whose bits differ between machines."""
    if not library_file(level).is_file():
        pytest.skip(f"needs the compiled kernels: {runtime().why}")
    needed = undefined_symbols(library_file(level))
    assert {"malloc"} <= needed
    assert needed - LINKED - MEMORY - EXACT == WAITING


def kernels_within(kernel: Kernel, found: dict[str, Kernel]) -> None:
    """Adds a kernel, and those that its source names."""
    function = kernel.py_func
    name = f"{function.__module__}.{function.__qualname__}"
    if name in found:
        return
    found[name] = kernel
    closed = (cell.cell_contents for cell in function.__closure__ or ())
    own = dict(zip(function.__code__.co_freevars, closed, strict=True))
    known = {**function.__globals__, **own}
    names = names_in(function.__code__)
    for value in [known[name] for name in names if name in known]:
        parts = vars(value) if isinstance(value, ModuleType) else {}
        for other in [value, *(parts[name] for name in names if name in parts)]:
            if isinstance(other, Kernel):
                kernels_within(other, found)


def names_in(code: CodeType) -> set[str]:
    inner = [names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(code.co_freevars, *inner)


def test_sums_keep_their_order():
    """`fastmath` would let the compiler choose one for each processor."""
    found: dict[str, Kernel] = {}
    for kernel in build.kernels():
        kernels_within(kernel, found)
    assert "hashembed.engine.shallow.parts.dot_rows" in found
    assert [name for name, kernel in found.items() if kernel._options.get("fastmath")] == []


def test_code_has_no_flags_for_fast_mathematics():
    """Not from our intrinsics either."""
    order = [sys.executable, "-c", TRANSLATE]  # its kernels cannot be called
    code = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    assert re.search(r"= fadd <16 x float>", code)
    assert not re.search(r"\b(fast|reassoc|contract|afn|arcp|nnan|ninf|nsz) ", code)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("avx9", "must be one of x86-64, x86-64-v3, x86-64-v4, jit; found 'avx9'"),
     ("x86-64-v4", "this processor has only x86-64$")],
)  # fmt: skip
def test_levels_that_cannot_run(wanted, message, monkeypatch):
    monkeypatch.setenv(library.CHOICE, wanted)
    monkeypatch.setattr(library, "_processor_flags", frozenset)
    with pytest.raises(ValueError, match=message):
        library.runtime.__wrapped__()
