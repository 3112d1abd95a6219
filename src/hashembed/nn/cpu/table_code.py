"""The code of `nn/cpu/precision.py`: how kernels read, write and prefetch the numbers of tables.

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

_I32, _I64 = ir.IntType(32), ir.IntType(64)


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


def _place(context, builder, table_type, table, row, column):
    """Pointer to table[row, column]."""
    array = context.make_array(table_type)(context, builder, table)
    shape = cgutils.unpack_tuple(builder, array.shape, 2)
    strides = cgutils.unpack_tuple(builder, array.strides, 2)
    return cgutils.get_item_pointer2(
        context, builder, array.data, shape, strides, table_type.layout, (row, column)
    )


@intrinsic
def prefetch_number(typingctx, table, row, column):
    """Prefetch the cache line at table[row, column]."""

    def codegen(context, builder, sig, args):
        place = _place(context, builder, sig.args[0], *args)
        shape = ir.FunctionType(ir.VoidType(), [place.type, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], shape)
        read, keep, data = (_I32(flag) for flag in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), codegen


@intrinsic
def dot(typingctx, a, a_row, begin, b, b_row, width):
    """The sum of a[a_row, begin + j] * b[b_row, j] for all j below `width`.

    Sixteen sums, each of every sixteenth product, are added up in a fixed order: halves first, then
    quarters, and so on. Products that do not fill a block enter where as many sums are left.
    """
    result = types.float64 if a.dtype == types.float64 else types.float32

    def codegen(context, builder, sig, args):
        first = _place(context, builder, sig.args[0], *args[:3])
        second = _place(context, builder, sig.args[3], *args[3:5], _I64(0))
        kinds, width = (sig.args[0].dtype, sig.args[3].dtype), args[5]
        item = context.get_value_type(result)

        def products(lanes, at):
            x = _load_lanes(builder, kinds[0], item, first, at, lanes)
            y = _load_lanes(builder, kinds[1], item, second, at, lanes)
            return builder.fmul(x, y)

        zero = ir.Constant(ir.VectorType(item, 16), None)
        place = cgutils.alloca_once_value(builder, zero)
        with cgutils.for_range(builder, builder.lshr(width, _I64(4))) as loop:
            block = products(16, builder.shl(loop.index, _I64(4)))
            builder.store(builder.fadd(builder.load(place), block), place)
        sums, at = builder.load(place), builder.and_(width, _I64(-16))
        for lanes in (8, 4, 2, 1):
            half = ir.VectorType(_I32, lanes)
            low = builder.shuffle_vector(sums, sums, half(list(range(lanes))))
            high = builder.shuffle_vector(sums, sums, half(list(range(lanes, 2 * lanes))))
            sums = builder.fadd(low, high)
            place, rest = cgutils.alloca_once_value(builder, sums), builder.and_(width, _I64(lanes))
            with builder.if_then(builder.icmp_unsigned("!=", rest, _I64(0))):
                builder.store(builder.fadd(sums, products(lanes, at)), place)
            sums, at = builder.load(place), builder.add(at, rest)
        return builder.extract_element(sums, _I32(0))

    return result(a, types.int64, types.int64, b, types.int64, types.int64), codegen


def _load_lanes(builder, kind, item, pointer, at, lanes):
    """Numbers of a table, from `at` on, as a vector to compute with."""
    stored = ir.VectorType(pointer.type.pointee, lanes)
    place = builder.bitcast(builder.gep(pointer, [at]), stored.as_pointer())
    found = builder.load(place, align=kind.bitwidth // 8)
    if kind in (types.float32, types.float64):
        return found
    words, floats = ir.VectorType(_I32, lanes), ir.VectorType(item, lanes)

    def all_are(number):
        return words([number] * lanes)

    bits = builder.zext(found, words)
    if kind == types.uint16:
        return builder.bitcast(builder.shl(bits, all_are(16)), floats)
    # As `float16_to_float` does it.
    x = builder.shl(builder.and_(bits, all_are(0x7FFF)), all_are(13))
    sign = builder.shl(builder.and_(bits, all_are(0x8000)), all_are(16))
    scaled = builder.fmul(builder.bitcast(x, floats), floats([2.0**112] * lanes))
    is_finite = builder.icmp_unsigned("<", x, all_are(0x0F800000))
    endless = builder.or_(x, all_are(0x7F800000))
    magnitude = builder.select(is_finite, builder.bitcast(scaled, words), endless)
    return builder.bitcast(builder.or_(magnitude, sign), floats)
