"""Rows of a float32 table as vectors in registers.

LLVM vectorises a loop over columns only if it can prove that no arrays alias. Otherwise it computes
one number at a time. Here a vector is loaded and stored as a whole. Its width is a compile-time
constant of the kernel and may be any number.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

_FLOAT, _I8 = ir.FloatType(), ir.IntType(8)
# Products and sums may be fused; sums may be reordered.
_FLAGS = ("contract", "reassoc", "nsz")


class Vector(types.Type):
    """`width` float32 numbers."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(f"Vector({width})")

    @property
    def key(self) -> int:
        """What makes two vector types the same."""
        return self.width


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, ir.VectorType(_FLOAT, vector.width))


def _row(context, builder, array_type, array, index, vector):
    """A pointer to row `index`, as a pointer to a vector."""
    view = context.make_array(array_type)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, view.strides, 2)[0]
    data = builder.bitcast(view.data, _I8.as_pointer())
    row = builder.gep(data, [builder.mul(index, stride)])
    return builder.bitcast(row, context.get_value_type(vector).as_pointer())


def _splat(builder, number, width):
    """A vector of equal numbers."""
    one = builder.insert_element(
        ir.Constant(ir.VectorType(_FLOAT, width), ir.Undefined), number, ir.IntType(32)(0)
    )
    order = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(one, one, order)


@intrinsic(prefer_literal=True)
def zero_vector(typingctx, width):
    """zero_vector(d): nothing but zeros."""

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return Vector(width.literal_value)(width), codegen


@intrinsic(prefer_literal=True)
def load_row(typingctx, table, row, width):
    """table[row], of a contiguous table (rows, d)."""

    def codegen(context, builder, signature, args):
        pointer = _row(context, builder, signature.args[0], *args[:2], signature.return_type)
        return builder.load(pointer, align=4)

    return Vector(width.literal_value)(table, types.int64, width), codegen


@intrinsic
def store_row(typingctx, table, row, vector):
    """table[row] = vector."""

    def codegen(context, builder, signature, args):
        pointer = _row(context, builder, signature.args[0], *args[:2], signature.args[2])
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.void(table, types.int64, vector), codegen


@intrinsic
def plus(typingctx, a, b):
    """a + b."""

    def codegen(context, builder, signature, args):
        return builder.fadd(*args, flags=_FLAGS)

    return a(a, b), codegen


@intrinsic
def plus_scaled(typingctx, a, number, b):
    """a + number * b."""

    def codegen(context, builder, signature, args):
        a, number, b = args
        scaled = builder.fmul(_splat(builder, number, signature.args[0].width), b, flags=_FLAGS)
        return builder.fadd(a, scaled, flags=_FLAGS)

    return a(a, types.float32, b), codegen


@intrinsic
def dot(typingctx, a, b):
    """The inner product of two vectors."""

    def codegen(context, builder, signature, args):
        products = builder.fmul(*args, flags=_FLAGS)
        name = f"llvm.vector.reduce.fadd.v{signature.args[0].width}f32"
        shape = ir.FunctionType(_FLOAT, [_FLOAT, products.type])
        total = cgutils.get_or_insert_function(builder.module, shape, name)
        return builder.call(total, [_FLOAT(0.0), products], fastmath=_FLAGS)

    return types.float32(a, b), codegen
