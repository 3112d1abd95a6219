"""Compiled entries: C functions that read a kernel's arguments from words, made by Numba.

    int32 entry(int64 *words, int64 *results)

It returns 0, or another number if the kernel raised an exception. The first word is the size of
the header of a Python object; `core/native/signature.py` describes the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUTargetOptions
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from hashembed.core.kernel_cache import KernelCache
from hashembed.core.native.signature import (
    ArrayKind,
    GroupKind,
    Kind,
    NothingKind,
    NumberKind,
    Signature,
)

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_DATA, _SHAPE = 0, 16  # bytes from the header of an array to its two pointers


def numba_type(kind: Kind) -> Any:
    """The type that Numba knows it by."""
    if isinstance(kind, ArrayKind):
        return types.Array(from_dtype(kind.dtype), kind.ndim, "C")
    if isinstance(kind, NumberKind):
        return from_dtype(kind.dtype)
    if isinstance(kind, NothingKind):
        return types.none
    fields = [numba_type(field) for field in kind.fields]
    if kind.cls is not None:
        return types.NamedTuple(fields, kind.cls)
    return types.Tuple(fields)


@contextmanager
def only_translating() -> Iterator[None]:
    """Numba translates kernels to LLVM code, and leaves the rest to `optimise`.

    Otherwise it would optimise every function, and then again with each function that calls it, and
    make functions for Python to call. Without these, a kernel cannot be called: so nothing is kept
    on disk, and the process should not use the kernels.
    """
    cache: Any = KernelCache
    load, save = cache.load_overload, cache.save_overload
    library: Any = CPUCodeLibrary
    target: Any = CPUTargetOptions
    whole, finalize = library._optimize_final_module, target.finalize

    def without_wrappers(options: Any, flags: Any, given: Any) -> None:
        finalize(options, flags, given)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True

    library._optimize_final_module = lambda library: None
    target.finalize = without_wrappers
    cache.load_overload = cache.save_overload = lambda *arguments: None
    try:
        yield
    finally:
        library._optimize_final_module, target.finalize = whole, finalize
        cache.load_overload, cache.save_overload = load, save


def optimise(code: str, machine: Any, entry: str | None = None) -> Any:
    """An LLVM module of the code, optimised for a processor as Numba would.

    entry: the only function that other modules see. Variants of a kernel have the same name inside
    of different modules, so without this the linker would take one of them for all.
    """
    module = llvm.parse_assembly(code)
    if entry is not None:
        for part in [*module.functions, *module.global_variables]:
            if not part.is_declaration and part.name != entry:
                part.linkage = "internal"
    for level in (0, 3):  # the first round inlines, so that reference counts can be removed
        options = llvm.create_pipeline_tuning_options(level)
        options.loop_vectorization, options.slp_vectorization = level == 3, False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if level == 0:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.add_refprune_pass()
        passes.run(module, builder)
    return module


@global_compiler_lock
def compile_entry(dispatcher: Any, signature: Signature, name: str) -> str:
    """LLVM code of an entry and all that it calls, to be optimised."""
    parameters = tuple(numba_type(kind) for kind in signature.parameters)
    dispatcher.compile(parameters)
    compiled = dispatcher.overloads[parameters]
    context, found = compiled.target_context, compiled.fndesc.restype
    if found != numba_type(signature.result):
        raise TypeError(f"{name} returns {found}, its annotation says {signature.result}")
    library = context.codegen().create_library(name)
    module = library.create_ir_module(name)
    entry = ir.Function(module, ir.FunctionType(_I32, [_I64.as_pointer()] * 2), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    words = _Words(context, builder, entry.args[0])
    words.read_header()
    values = [
        words.read(kind, parameter)
        for kind, parameter in zip(signature.parameters, parameters, strict=True)
    ]
    callee = context.declare_function(module, compiled.fndesc)
    status, result = context.call_conv.call_function(builder, callee, found, parameters, values)
    _Words(context, builder, entry.args[1]).write(signature.result, result)
    builder.ret(builder.select(status.is_ok, _I32(0), _I32(1)))
    library.add_ir_module(module)
    library.add_linking_library(compiled.library)
    library.finalize()
    code: str = library.get_llvm_str()
    return code


class _Words:
    """Code that reads values from words and writes them, one after the other."""

    def __init__(self, context: Any, builder: Any, pointer: Any) -> None:
        self.context, self.builder, self.pointer, self.place = context, builder, pointer, 0

    def _next(self) -> Any:
        self.place += 1
        return self.builder.gep(self.pointer, [_I64(self.place - 1)])

    def read_header(self) -> None:
        """The first word of all."""
        self.header = self.builder.load(self._next())

    def read(self, kind: Kind, typ: Any) -> Any:
        """The next value."""
        if isinstance(kind, ArrayKind):
            return self._array(kind, typ)
        if isinstance(kind, GroupKind):
            fields = [self.read(*pair) for pair in zip(kind.fields, typ, strict=True)]
            return self.context.make_tuple(self.builder, typ, fields)
        if isinstance(kind, NothingKind):
            return self.context.get_dummy_value()
        data = self.context.get_data_type(typ)
        place = self.builder.bitcast(self._next(), data.as_pointer())
        value = self.builder.load(place)
        return self.context.data_model_manager[typ].from_data(self.builder, value)

    def _array(self, kind: ArrayKind, typ: Any) -> Any:
        builder, item = self.builder, self.context.get_data_type(typ.dtype)
        fields = builder.add(builder.load(self._next()), self.header)
        address = self._load(fields, _DATA)
        lengths = self._load(fields, _SHAPE)
        shape = [self._load(lengths, 8 * axis) for axis in range(kind.ndim)]
        strides = [_I64(kind.dtype.itemsize)]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        array = self.context.make_array(typ)(self.context, builder)
        populate_array(
            array,
            data=builder.inttoptr(address, item.as_pointer()),
            shape=shape,
            strides=strides,
            itemsize=_I64(kind.dtype.itemsize),
            meminfo=None,
        )
        return array._getvalue()

    def _load(self, address: Any, offset: int) -> Any:
        """The word in memory at an address."""
        place = self.builder.add(address, _I64(offset))
        return self.builder.load(self.builder.inttoptr(place, _I64.as_pointer()))

    def write(self, kind: Kind, value: Any) -> None:
        """Store a result in the next words: numbers, and tuples of numbers."""
        if isinstance(kind, GroupKind):
            for i, field in enumerate(kind.fields):
                self.write(field, self.builder.extract_value(value, i))
        elif isinstance(kind, NumberKind):
            model = self.context.data_model_manager[numba_type(kind)]
            data = model.as_data(self.builder, value)
            place = self.builder.bitcast(self._next(), data.type.as_pointer())
            self.builder.store(data, place)
        elif isinstance(kind, ArrayKind):
            raise TypeError("a native kernel returns numbers, not arrays")
