"""Compile the Triton kernels for a GPU, without one: `python compile_kernels.py` names them.

Triton's interpreter runs code that its compiler refuses. Here the library calls its kernels as it
would on a GPU, with the same sizes of tiles; each is compiled for one instead of launched. What
would have been computed is whatever memory holds.
"""

import inspect

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from hashembed.hashing import HashSpec
from hashembed.nn import cuda, cuda_rows, steps, triton_batches
from hashembed.row_kernels import record_width
from test_cpu_op import Case
from triton_cases import call_of

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
}
compiled: set[str] = set()


def compile_kernel(kernel, *args, grid, warmup, num_warps=4, **kwargs):
    """In the place of a launch."""
    given = inspect.signature(kernel.fn).bind(*args, **kwargs).arguments
    signature, constants, aligned = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
            aligned[place,] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if abs(value) < 2**31 else "i64"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=TARGET, options={"num_warps": num_warps})
    assert "cubin" in made.asm
    compiled.add(kernel.__name__)


def layers():
    """Both directions, all forms, with what is known ahead and without."""
    spec = HashSpec(50, 9, 2)
    cases = [Case(spec, 20, dtype=torch.float32)]
    forms = {"mode": "mean", "aggregation": "concat", "importance": "append"}
    cases += [Case(spec, 20, dtype=torch.bfloat16, **forms)]
    cases += [Case(HashSpec(50, 50, 1, "identity"), 200, dtype=torch.float32, importance="off")]
    for case in cases:
        options = {"keep": True, "weights": True}
        for call in (call_of(case), call_of(case, **options), call_of(case, bag=False)):
            grad = torch.zeros(call.num_bags, call.width, dtype=call.weight.dtype)
            dense = [None if t is None else cuda.dense(t) for t in (call.weight, call.importance)]
            cuda.forward(call)
            cuda.backward(call, grad, tuple(dense), call.weights is not None)
        call = call_of(case)
        owners = torch.zeros(len(call.keys), dtype=torch.int32)
        cuda.prepare(call, cuda.make_room(call), owners)
    cuda.id_keys(torch.zeros(5, dtype=torch.int64))


def rules():
    """All updates; some of narrow rows, and of rows of 16 bits."""
    for number in range(cuda_rows.STORE, cuda_rows.ADAM + 1):
        ends = number in (cuda_rows.STORE, cuda_rows.ADAM)
        more = ((2, torch.float32), (40, torch.bfloat16)) if ends else ()
        for d, kind in ((20, torch.float32), *more):
            width = {cuda_rows.ADAM: record_width(d), cuda_rows.ADAGRAD_ROWWISE: 1}
            adam = number == cuda_rows.ADAM
            rule = cuda_rows.Rule(
                number,
                torch.zeros(30, d, dtype=kind),
                torch.zeros(30, width.get(number, d)) if number > cuda_rows.SGD else None,
                cuda_rows.make_numbers((0.9, 0.999), "cpu") if number else None,
                torch.zeros((), dtype=torch.int64) if number else None,
                torch.zeros(2, cuda_rows.RING, dtype=torch.float64) if adam else None,
            )
            rows, values = torch.arange(30), torch.zeros(30, d)
            for behind in (False, True):
                terms = cuda_rows.Terms(rows, rows, 0, 0, 30, 1, 30, values, 0, None, None)
                cuda_rows.sum_rows(terms, rule, behind=behind)
                if number:
                    cuda_rows.update_rows(rule, rows, values, behind=behind)
            if number:
                cuda_rows.begin_step(rule, 0.1, 1e-8, (0.9, 0.999))
            if adam:
                cuda_rows.catch_up(rule, rows)
                cuda_rows.end_step(rule)
    long_rows = torch.zeros(5000, dtype=torch.int64)
    found = cuda_rows.Distinct(long_rows.int(), long_rows, torch.zeros((), dtype=torch.int32))
    rest = (0, 0, 5000, 1, 30, torch.zeros(5000, 20), 0, None, None)
    terms = cuda_rows.Terms(long_rows, long_rows, *rest)
    cuda_rows.sums_of(terms, found, torch.zeros(30, 20))


def training():
    """What surrounds the layers in a step."""
    longs, floats = torch.zeros(64, dtype=torch.int64), torch.zeros(64)
    step, fine = torch.zeros((), dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    triton_batches.begin[(1,)](floats, step, fine, floats, MEMBERS=3, num_warps=1)
    for labels in (longs, None):
        triton_batches.assemble[(1,)](
            *(longs, longs, labels, floats, step, longs, longs, longs, floats, 8),
            AHEAD=1,
            T=4096,
            num_warps=16,
        )
    owners = torch.zeros(64, dtype=torch.int32)
    triton_batches.gather_keys[(8, 2)](longs, longs, longs, longs, owners, 64, 2, T=steps.KEYS)
    triton_batches.note[(1,)](floats, step, fine, floats, floats, 8, 8, T=1024)
    triton_batches.advance[(1,)](step, num_warps=1)
    for width, classes in ((20, 4), (100, 300)):
        x, W = torch.zeros(64, width), torch.zeros(classes, width)
        steps.softmax_head(x, W, torch.zeros(classes), longs, floats, 0.5)


def main():
    JITFunction.run = compile_kernel
    for part in (layers, rules, training):
        part()
    print(*sorted(compiled))


if __name__ == "__main__":
    assert isinstance(cuda.triton_kernels.id_keys, JITFunction), "unset TRITON_INTERPRET"
    main()
