"""Kernels compiled ahead of time: linked, loaded and called, with the same results."""

import ctypes
import shutil
import subprocess
from types import GenericAlias
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from llvmlite import binding as llvm

from hashembed.core.arrays import F32_2D, I32, I64, U8, Dimensions
from hashembed.core.native.call import NativeKernel
from hashembed.core.native.entry import compile_entry, only_translating, optimise
from hashembed.core.native.runtime import runtime_code
from hashembed.core.native.signature import ArrayKind, choices, signatures
from hashembed.core.njit import njit


class Pair(NamedTuple):
    table: F32_2D
    number: int


def kernel(
    keys: I32 | I64,
    pair: Pair,
    scale: np.float32,
    flag: bool,
    ends: tuple[int, int],
    more: U8 | None,
) -> tuple[int, float]:
    """Something of everything: arrays, groups, numbers, None, memory of its own."""
    total, weight = 0, 0.0
    for x in range(len(keys)):
        total += keys[x]
    for i in range(pair.table.shape[0]):
        for j in range(pair.table.shape[1]):
            weight += pair.table[i, j] * scale
    if more is not None:
        total += more[0]
    if flag:
        total += pair.number
    squares = np.empty(ends[1], np.int64)
    for x in range(len(squares)):
        squares[x] = x * x
    return total + ends[0] + squares.sum(), weight


jitted = njit(kernel)


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """The kernel in a shared library, for any processor of this kind."""
    folder = tmp_path_factory.mktemp("native")
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler to link with")
    objects = []
    codes = [runtime_code()]
    with only_translating():
        for i, signature in enumerate(signatures(kernel)):
            codes.append(compile_entry(njit(kernel).dispatcher, signature, f"hashembed_kernel_{i}"))
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(opt=3, reloc="pic")
    for i, code in enumerate(codes):
        objects.append(folder / f"{i}.o")
        objects[-1].write_bytes(
            machine.emit_object(optimise(code, machine, f"hashembed_kernel_{i - 1}" if i else None))
        )
    library = folder / "kernel.so"
    subprocess.run([compiler, "-shared", "-o", library, *objects, "-lm"], check=True)
    return NativeKernel.of(kernel, "hashembed_kernel", ctypes.CDLL(str(library)))


TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
GOOD = (np.arange(5), Pair(TABLE, -7), np.float32(0.5), True, (2**40, 9), None)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("more", [None, np.array([200], np.uint8)])
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_the_same_result(native, dtype, more, flag, count):
    keys = np.arange(-5, count - 5, dtype=dtype)
    arguments = (keys, Pair(TABLE[:2], -7), np.float32(0.1), flag, (2**40, 9), more)
    assert native.run(native.pack(arguments)) == jitted(*arguments)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, np.arange(5.0)),  # another type
        (0, np.arange(10)[::2]),  # not contiguous
        (0, [1, 2]),
        (1, (TABLE, 7)),  # not the NamedTuple
        (1, Pair(TABLE.T, 7)),
        (1, Pair(TABLE[0], 7)),
        (2, 1),
        (3, 1),
        (4, (1,)),
        (5, 0),
    ],
)
def test_what_it_was_not_compiled_for_is_refused(native, place, value):
    """Instead of memory being read that is something else."""
    assert native.pack(GOOD) is not None
    assert native.pack((*GOOD[:place], value, *GOOD[place + 1 :])) is None
    assert native.pack(GOOD[:place]) is None


def test_array_types_of_newer_numpy():
    """Since NumPy 2.5, on Python 3.12, `NDArray` is an alias that Python does not expand."""
    kept = GenericAlias(npt.NDArray, (np.uint8,))
    assert choices(kept) == choices(U8) == [ArrayKind(np.dtype(np.uint8), 1)]
    assert choices(Annotated[kept, Dimensions(2)]) == [ArrayKind(np.dtype(np.uint8), 2)]


def test_parameters_need_annotations():
    def bare(x, y: int) -> None: ...

    with pytest.raises(TypeError, match=r"bare has no annotation for x"):
        signatures(bare)
