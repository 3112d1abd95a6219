"""What Numba compiles for the operations of `vectors.py`."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

_FLOAT, _I8, _I32 = ir.FloatType(), ir.IntType(8), ir.IntType(32)


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


def _block(context, builder, array_type, array, row, column, vector):
    """A pointer to table[row, column], as a pointer to a vector."""
    view = context.make_array(array_type)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, view.strides, 2)[0]
    offset = builder.add(builder.mul(row, stride), builder.mul(column, ir.IntType(64)(4)))
    pointer = builder.gep(builder.bitcast(view.data, _I8.as_pointer()), [offset])
    return builder.bitcast(pointer, context.get_value_type(vector).as_pointer())


def _lanes(numbers):
    """A constant vector of indices."""
    return ir.Constant(ir.VectorType(_I32, len(numbers)), list(numbers))


def _splat(builder, number, width):
    """A vector of equal numbers."""
    one = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
    one = builder.insert_element(one, number, _I32(0))
    return builder.shuffle_vector(one, one, _lanes([0] * width))


def _tree(builder, vector, combine):
    """Fold the upper half onto the lower one until one number is left."""
    width = vector.type.count
    while width > 1:
        width //= 2
        low = builder.shuffle_vector(vector, vector, _lanes(range(width)))
        high = builder.shuffle_vector(vector, vector, _lanes(range(width, 2 * width)))
        vector = combine(low, high)
    return builder.extract_element(vector, _I32(0))


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic(prefer_literal=True)
def zero_vector(typingctx, width):
    """zero_vector(width): nothing but zeros."""

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return Vector(width.literal_value)(width), codegen


@intrinsic(prefer_literal=True)
def load(typingctx, table, row, column, width):
    """table[row, column : column + width] of a contiguous table."""

    def codegen(context, builder, signature, args):
        pointer = _block(context, builder, signature.args[0], *args[:3], signature.return_type)
        return builder.load(pointer, align=4)

    return Vector(width.literal_value)(table, types.int64, types.int64, width), codegen


@intrinsic
def store(typingctx, table, row, column, vector):
    """table[row, column : column + width] = vector."""

    def codegen(context, builder, signature, args):
        pointer = _block(context, builder, signature.args[0], *args[:3], signature.args[3])
        builder.store(args[3], pointer, align=4)
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64, vector), codegen


@intrinsic
def plus(typingctx, a, b):
    """a + b."""

    def codegen(context, builder, signature, args):
        return builder.fadd(*args)

    return a(a, b), codegen


@intrinsic
def times(typingctx, a, b):
    """a * b, number by number."""

    def codegen(context, builder, signature, args):
        return builder.fmul(*args)

    return a(a, b), codegen


@intrinsic
def scaled(typingctx, number, vector):
    """number * vector."""

    def codegen(context, builder, signature, args):
        number, vector = args
        return builder.fmul(_splat(builder, number, vector.type.count), vector)

    return vector(types.float32, vector), codegen


@intrinsic
def larger(typingctx, a, b):
    """The larger one of a and b, number by number."""

    def codegen(context, builder, signature, args):
        return _larger(builder, *args)

    return a(a, b), codegen


@intrinsic
def size_of(typingctx, vector):
    """Absolute values."""

    def codegen(context, builder, signature, args):
        return _larger(builder, args[0], builder.fneg(args[0]))

    return vector(vector), codegen


@intrinsic
def only_first(typingctx, vector, count, other):
    """The first `count` numbers; those behind them are replaced by `other`."""

    def codegen(context, builder, signature, args):
        vector, count, other = args
        width = vector.type.count
        bound = _splat(builder, builder.trunc(count, _I32), width)
        kept = builder.icmp_signed("<", _lanes(range(width)), bound)
        return builder.select(kept, vector, _splat(builder, other, width))

    return vector(vector, types.int64, types.float32), codegen


@intrinsic
def sum_of(typingctx, vector):
    """The sum of all numbers, in pairs: number i is first added to number i + width / 2."""

    def codegen(context, builder, signature, args):
        return _tree(builder, args[0], builder.fadd)

    return types.float32(vector), codegen


@intrinsic
def largest_of(typingctx, vector):
    """The largest number."""

    def codegen(context, builder, signature, args):
        return _tree(builder, args[0], lambda a, b: _larger(builder, a, b))

    return types.float32(vector), codegen
