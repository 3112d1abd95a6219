"""What kernels compute, as digests: each way to run them must give the same bits.

A module here has `cases()`, which yields (name, result). A result is anything made of arrays,
numbers, strings, Arrow columns, and lists, tuples and dicts of these. `ROOMS` lists the modules;
`python -m tests.cases.same_bits ROOM` prints the digests and the heavy modules that were imported.
Inputs must be the same in each process: draw them from a generator with a fixed seed.
"""

ROOMS = ("core", "text", "readers", "engine", "vectors", "classify")
HEAVY = ("numba", "llvmlite")
