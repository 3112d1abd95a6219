"""The code of `nn/cpu/precision.py`: how kernels read, write and prefetch a number of a table.

Rows and columns are never negative; unsigned indices tell that to Numba, which would otherwise
count negative ones from the end.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from hashembed.nn.cpu.precision import (
    bfloat16_to_float,
    float16_to_float,
    float_to_bfloat16,
    float_to_float16,
    u64,
)


def load(table, row, column):
    """table[row, column] as a number to compute with."""
    return table[row, column]


def store(table, row, column, value):
    """table[row, column] = value, rounded to nearest even."""
    table[row, column] = value


@overload(load)
def _load(table, row, column):
    if table.dtype == types.uint16:
        return lambda table, row, column: bfloat16_to_float(table[u64(row), u64(column)])
    if table.dtype == types.int16:
        return lambda table, row, column: float16_to_float(table[u64(row), u64(column)])
    return lambda table, row, column: table[u64(row), u64(column)]


@overload(store)
def _store(table, row, column, value):
    if table.dtype == types.uint16:

        def put(table, row, column, value):
            table[u64(row), u64(column)] = float_to_bfloat16(value)
    elif table.dtype == types.int16:

        def put(table, row, column, value):
            table[u64(row), u64(column)] = float_to_float16(value)
    else:

        def put(table, row, column, value):
            table[u64(row), u64(column)] = value

    return put


@intrinsic
def prefetch_number(typingctx, table, row, column):
    """Prefetch the cache line at table[row, column]."""
    signature = types.void(table, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        array = context.make_array(sig.args[0])(context, builder, args[0])
        shape = cgutils.unpack_tuple(builder, array.shape, 2)
        strides = cgutils.unpack_tuple(builder, array.strides, 2)
        place = cgutils.get_item_pointer2(
            context, builder, array.data, shape, strides, "C", args[1:], wraparound=False
        )
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        read, keep, data = (i32(flag) for flag in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return signature, codegen
