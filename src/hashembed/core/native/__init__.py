"""Kernels compiled ahead of time: C functions that Python calls without Numba.

`signature` turns the annotations of a kernel into a layout of 64-bit words. When the package is
built, `entry` makes a C function that reads its arguments from these words, `runtime` the allocator
that it needs, and `build` the libraries; only these use Numba. In use, `library` chooses a library,
`packing` fills in the words, and `call` calls the function. `docs/how-it-works/kernels.md` explains
the whole.
"""
