"""Kernels compiled ahead of time: C functions that Python calls without Numba.

`signature` turns the annotations of a kernel into a layout of 64-bit words. `entry` compiles a C
function that reads its arguments from these words, and `runtime` the allocator that it needs; both
use Numba. `call` fills in the words and calls the function.
"""
