"""The part of Numba's runtime that compiled kernels need: memory for arrays made inside of them.

Numba's code counts references to a block that begins with this header, and calls two functions.
"""

from llvmlite import ir

_I8P, _I64 = ir.IntType(8).as_pointer(), ir.IntType(64)
_HEADER = ir.LiteralStructType([_I64, _I8P, _I8P, _I8P, _I64, _I8P])  # count, ..., data, size
_HEADER_BYTES, _DATA, _SIZE = 48, 3, 4


def runtime_code() -> str:
    """LLVM code of the two functions."""
    module = ir.Module("runtime")
    malloc = ir.Function(module, ir.FunctionType(_I8P, [_I64]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I8P]), "free")
    _alloc(module, malloc)
    _destroy(module, free)
    return str(module)


def _alloc(module: ir.Module, malloc: ir.Function) -> None:
    """NRT_MemInfo_alloc_aligned(size, align) -> a header with one reference, and the memory."""
    shape = ir.FunctionType(_I8P, [_I64, ir.IntType(32)])
    function = ir.Function(module, shape, "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(function.append_basic_block())
    size, align = function.args[0], builder.zext(function.args[1], _I64)
    room = builder.add(builder.add(size, align), _I64(_HEADER_BYTES))
    block = builder.call(malloc, [room])
    with builder.if_then(builder.icmp_unsigned("==", block, _I8P(None)), likely=False):
        builder.ret(_I8P(None))
    behind = builder.add(builder.ptrtoint(block, _I64), _I64(_HEADER_BYTES))
    data = builder.add(behind, builder.sub(align, _I64(1)))
    data = builder.and_(data, builder.neg(align))
    header = builder.bitcast(block, _HEADER.as_pointer())
    values = [_I64(1), _I8P(None), _I8P(None), builder.inttoptr(data, _I8P), size, _I8P(None)]
    for i, value in enumerate(values):
        builder.store(value, builder.gep(header, [ir.IntType(32)(0), ir.IntType(32)(i)]))
    builder.ret(block)


def _destroy(module: ir.Module, free: ir.Function) -> None:
    """NRT_MemInfo_call_dtor(header): nobody refers to it any longer."""
    shape = ir.FunctionType(ir.VoidType(), [_I8P])
    function = ir.Function(module, shape, "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(free, [function.args[0]])
    builder.ret_void()
