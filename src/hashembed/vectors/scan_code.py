"""What Numba compiles for `dot_codes` of `scan_kernels.py`."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_WIDTH = 32


def _vector(kind, width=_WIDTH):
    return ir.VectorType(kind, width)


def _take(builder, vector, lanes):
    indices = ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, vector, indices)


@intrinsic
def dot_codes(typingctx, codes, row, query):
    """The dot product of a row of bytes and a query of 16-bit numbers, 32 numbers at a time."""

    def codegen(context, builder, signature, args):
        table = context.make_array(signature.args[0])(context, builder, args[0])
        other = context.make_array(signature.args[2])(context, builder, args[2])
        columns = cgutils.unpack_tuple(builder, table.shape, 2)[1]
        start = builder.mul(args[1], columns)
        sums = cgutils.alloca_once_value(builder, ir.Constant(_vector(_I32, _WIDTH // 2), None))
        with cgutils.for_range(builder, builder.udiv(columns, _I64(_WIDTH))) as loop:
            at = builder.mul(loop.index, _I64(_WIDTH))
            bytes_at = builder.gep(table.data, [builder.add(start, at)])
            words_at = builder.gep(other.data, [at])
            few = builder.load(builder.bitcast(bytes_at, _vector(_I8).as_pointer()), align=1)
            many = builder.load(builder.bitcast(words_at, _vector(_I16).as_pointer()), align=2)
            products = builder.mul(
                builder.sext(few, _vector(_I32)), builder.sext(many, _vector(_I32))
            )
            # Sums of neighbours: the instruction PMADDWD.
            pairs = builder.add(
                _take(builder, products, range(0, _WIDTH, 2)),
                _take(builder, products, range(1, _WIDTH, 2)),
            )
            builder.store(builder.add(builder.load(sums), pairs), sums)
        total = builder.sext(builder.load(sums), _vector(_I64, _WIDTH // 2))
        width = _WIDTH // 2
        while width > 1:
            width //= 2
            low, high = range(width), range(width, 2 * width)
            total = builder.add(_take(builder, total, low), _take(builder, total, high))
        return builder.extract_element(total, _I32(0))

    return types.int64(codes, types.int64, query), codegen
