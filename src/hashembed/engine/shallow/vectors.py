"""Blocks of the rows of float32 tables, as vectors in registers; `vector_code.py` has their code.

LLVM vectorises a loop over columns only if it can prove that no arrays alias. Otherwise it computes
one number at a time. Here a vector is loaded and stored as a whole. Its width is a compile-time
constant, a power of two.

Every operation is rounded as IEEE 754 says, in a fixed order, so every machine computes the same
bits.

    zero_vector(width)               nothing but zeros
    load(table, row, column, width)  a part of a row; the table is contiguous
    store(table, row, column, v)     set a part of a row
    plus(a, b), times(a, b)          the sum and the product, number by number
    scaled(number, v)                number * v
    larger(a, b)                     the larger one, number by number
    size_of(v)                       absolute values
    only_first(v, count, other)      the first `count` numbers, and `other` behind them
    sum_of(v), largest_of(v)         of all numbers, in pairs: i and i + width / 2, and so on
"""

from hashembed.core.njit import Intrinsic

_CODE = "hashembed.engine.shallow.vector_code"

zero_vector = Intrinsic(_CODE, "zero_vector")
load = Intrinsic(_CODE, "load")
store = Intrinsic(_CODE, "store")
plus = Intrinsic(_CODE, "plus")
times = Intrinsic(_CODE, "times")
scaled = Intrinsic(_CODE, "scaled")
larger = Intrinsic(_CODE, "larger")
size_of = Intrinsic(_CODE, "size_of")
only_first = Intrinsic(_CODE, "only_first")
sum_of = Intrinsic(_CODE, "sum_of")
largest_of = Intrinsic(_CODE, "largest_of")
