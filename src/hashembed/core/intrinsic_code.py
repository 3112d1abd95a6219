"""The code of `core/intrinsics.py`: prefetches, atomics, bit counts, waiting."""

import os

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"


def _element(context, builder, array_type, array, index):
    """Pointer to array[index], or to the beginning of row `index`."""
    view = context.make_array(array_type)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, view.strides, array_type.ndim)[0]
    byte_pointer = builder.bitcast(view.data, _I8.as_pointer())
    return builder.gep(byte_pointer, [builder.mul(index, stride)])


@intrinsic
def prefetch(typingctx, array, row):
    """Prefetch the cache line at array[row] (its first line, in two dimensions)."""
    signature = types.void(array, types.int64)

    def codegen(context, builder, sig, args):
        pointer = _element(context, builder, sig.args[0], *args)
        shape = ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], shape)
        read, keep, data = (_I32(flag) for flag in (0, 3, 1))
        builder.call(function, [pointer, read, keep, data])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def atomic_add(typingctx, array, index, value):
    """array[index] += value for an int64 array, atomically; returns the old value."""
    signature = types.int64(array, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        pointer = _element(context, builder, sig.args[0], args[0], args[1])
        pointer = builder.bitcast(pointer, _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return signature, codegen


@intrinsic
def atomic_load(typingctx, array, index):
    """array[index] of an int64 array, read from memory each time."""
    signature = types.int64(array, types.int64)

    def codegen(context, builder, sig, args):
        pointer = _element(context, builder, sig.args[0], *args)
        pointer = builder.bitcast(pointer, _I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return signature, codegen


@intrinsic
def yield_core(typingctx):
    """Let another thread run."""

    def codegen(context, builder, sig, args):
        shape = ir.FunctionType(_I32, [])
        function = cgutils.get_or_insert_function(builder.module, shape, _YIELD)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def sleep_briefly(typingctx):
    """Leave the core to others for a moment."""

    def codegen(context, builder, sig, args):
        shape = ir.FunctionType(_I32, [_I32])
        name, time = ("Sleep", 1) if os.name == "nt" else ("usleep", 20)
        function = cgutils.get_or_insert_function(builder.module, shape, name)
        builder.call(function, [_I32(time)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def bit_count(typingctx, x):
    """The number of ones among the 64 bits of x."""

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx, x):
    """The number of zeros below the lowest one of x: 64 for 0."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def leading_zeros(typingctx, x):
    """The number of zeros above the highest one of x: 64 for 0."""

    def codegen(context, builder, sig, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def bits_of(typingctx, x):
    """The bits of a float64, as an int64."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


@intrinsic
def float_of(typingctx, bits):
    """The float64 with these bits."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def sqrt32(typingctx, x):
    """The square root of a float32, as an instruction instead of a call of libm."""

    def codegen(context, builder, sig, args):
        function = builder.module.declare_intrinsic("llvm.sqrt", [ir.FloatType()])
        return builder.call(function, args)

    return types.float32(types.float32), codegen
