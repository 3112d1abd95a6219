"""LLVM code for `text/word_kernels.py`: loads of several bytes, and the kinds of bytes."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hashembed.text.word_kernels import CHUNK

# Ranges of bytes: all but the separators of ASCII; its white space; lead bytes of separators that
# are not ASCII.
_KEPT = ((0x00, 0x08), (0x0E, 0x1B), (0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x7F, 0xFF))
_SPACES = ((0x09, 0x0D), (0x1C, 0x20))
_LEADS = ((0xC2, 0xC2), (0xCD, 0xCE), (0xD5, 0xE3), (0xEA, 0xEA), (0xEF, 0xF0))


def _load(context, builder, sig, args, typ):
    array = context.make_array(sig.args[0])(context, builder, args[0])
    at = builder.gep(array.data, [args[1]])
    return builder.load(builder.bitcast(at, typ.as_pointer()), align=1)


@intrinsic
def load_u64(_, data, i):
    """Eight bytes from data[i] on."""

    def codegen(context, builder, sig, args):
        return _load(context, builder, sig, args, ir.IntType(64))

    return types.uint64(data, types.int64), codegen


@intrinsic
def classify(_, data, i):
    """The 64 bytes from data[i] on as masks: not an ASCII separator, not ASCII, of `_LEADS`,
    where characters begin, ASCII's white space.
    """

    def codegen(context, builder, sig, args):
        vector = ir.VectorType(ir.IntType(8), CHUNK)

        def all_(n):
            return ir.Constant(vector, [n] * CHUNK)

        def between(v, low, high):
            return builder.icmp_unsigned("<=", builder.sub(v, all_(low)), all_(high - low))

        v = _load(context, builder, sig, args, vector)
        kept = reduce(builder.or_, (between(v, *run) for run in _KEPT))
        leads = reduce(builder.or_, (between(v, *run) for run in _LEADS))
        chars = builder.or_(between(v, 0x00, 0x7F), between(v, 0xC0, 0xFF))
        spaces = reduce(builder.or_, (between(v, *run) for run in _SPACES))
        masks = kept, between(v, 0x80, 0xFF), leads, chars, spaces
        masks = [builder.bitcast(m, ir.IntType(CHUNK)) for m in masks]
        return context.make_tuple(builder, sig.return_type, masks)

    return types.UniTuple(types.uint64, 5)(data, types.int64), codegen
