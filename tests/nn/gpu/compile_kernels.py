"""Compile the Triton kernels for a GPU, without one: `python compile_kernels.py` names them.

Triton's interpreter runs code that its compiler refuses. Here the library calls its kernels as it
would on a GPU, with the same sizes of tiles; each is compiled instead of launched. Results are
whatever memory holds.
"""

import inspect
import re
import sys

import torch
import triton
from tests.cases.layer_calls import Case
from tests.cases.triton import call_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from hashembed.hashing.spec import HashSpec
from hashembed.nn.cpu.row_kernels import record_width
from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine import fused, head, prepare
from hashembed.nn.engine.model import DeepModel
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu import rows as cuda_rows
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.direct import DirectKernel
from hashembed.nn.gpu.kernels import layout
from hashembed.nn.gpu.kernels.layout import RuleKind
from hashembed.nn.optim import gpu_steps
from hashembed.nn.optim import optimizers as optim

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
    torch.uint8: "u8",
}
compiled: set[str] = set()


def compile_kernel(kernel, *args, grid, warmup, num_warps=4, **kwargs):
    """Takes the place of a launch."""
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
    assert not fused_sums(made.asm["ptx"]), f"{kernel.__name__}: sums of threads; see `product`"
    compiled.add(kernel.__name__)


def fused_sums(ptx):
    """Products that were fused with the addition of another thread's number."""
    copies = dict(re.findall(r"mov\.b32\s+(%\w+), (%\w+);", ptx))
    others = set(re.findall(r"shfl\.sync\.bfly\.b32\s+(%\w+)", ptx))
    found = []
    for line, addend in re.findall(r"(fma\.rn\.f\d+\s.*, (%\w+);)", ptx):
        sources = {addend}
        while (addend := copies.get(addend, addend)) not in sources:  # loops copy in circles
            sources.add(addend)
        if sources & others:
            found.append(line)
    return found


def layers():
    """Forward and backward pass, all forms, prepared calls and others."""
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
        bags = torch.zeros(len(call.keys), dtype=torch.int32)
        cuda_places.prepare(call, cuda_places.make_term_buffers(call), bags)
    cuda.id_keys(torch.zeros(5, dtype=torch.int64))


def rules():
    """All updates, each for one width and precision; with `all`, for several."""
    for kind in RuleKind:
        forms = [(20, torch.float32), (5, torch.float32)]
        if kind in (RuleKind.STORE, RuleKind.ADAM):
            forms = [(40, torch.bfloat16), (2, torch.float32), (20, torch.float32)]
        for d, dtype in forms if "all" in sys.argv else forms[:1]:
            updates(rule_of(kind, torch.zeros(30, d, dtype=dtype)))


def rule_of(kind, table):
    """A rule with all that it needs in memory."""
    d = table.shape[1]
    if kind == RuleKind.STORE:
        return cuda_rows.Rule(kind, table)
    width = 1 if kind == RuleKind.ADAGRAD_ROWWISE else d
    if kind.is_lazy:
        width = record_width(d, 1 if kind == RuleKind.MOMENTUM else 2)
    history = torch.zeros(layout.HISTORY_ROWS, cuda_rows.RING, dtype=torch.float64)
    return cuda_rows.Rule(
        kind,
        table,
        None if kind == RuleKind.SGD else torch.zeros(30, width),
        cuda_rows.make_numbers("cpu"),
        torch.zeros((), dtype=torch.int64),
        history if kind.is_lazy else None,
    )


def updates(rule):
    """All ways to update rows by this rule."""
    d, lazy, stores = rule.table.shape[1], rule.kind.is_lazy, rule.kind == RuleKind.STORE
    rows, values = torch.arange(30), torch.zeros(30, d)
    for behind in (False, True):
        terms = cuda_rows.GradientTerms(values, 30, 30, keys=rows, order=rows)
        cuda_rows.sum_rows(terms, rule, behind=behind)
        if not stores:
            cuda_rows.update_rows(rule, rows, values, behind=behind)
    if not stores:
        for nesterov in (False, True):
            cuda_rows.begin_step(rule, 0.1, cuda_rows.Numbers(nesterov=nesterov))
    if lazy:
        for move in (False, True):
            cuda_rows.catch_up(rule, rows, move=move)
        cuda_rows.end_step(rule)
    longs = torch.zeros(5000, dtype=torch.int64)
    ints = longs.int()
    known = cuda_rows.Distinct(ints, ints, ints, longs, ints, longs, longs, ints)
    terms = cuda_rows.GradientTerms(torch.zeros(5000, d), 5000, 30)
    cuda_rows.sum_rows(terms._replace(keys=longs, order=longs), rule, behind=lazy)
    for cursor in (None, torch.zeros(layout.CURSOR.value, dtype=torch.int64)):
        several = terms._replace(distinct=known, cursor=cursor)
        cuda_rows.update_terms(several, rule, behind=lazy)


def training():
    """What surrounds the layers in a step."""
    longs, floats = torch.zeros(64, dtype=torch.int64), torch.zeros(64)
    step, finite = torch.zeros((), dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    triton_batches.begin[(1,)](floats, step, finite, floats, MEMBERS=3, num_warps=1)
    for labels in (longs, None):
        triton_batches.assemble[(2,)](
            *(longs, longs, labels, floats, longs, longs, longs, floats, 3, 8),
            T=4096,
            num_warps=16,
        )
    ints = torch.zeros(64, dtype=torch.int32)
    arrays = (longs, longs, longs, longs, ints)
    triton_batches.gather_keys[(8, 2, 2)](*arrays, 64, 8, 2, T=prepare.KEYS)
    triton_batches.record_losses[(1,)](floats, step, finite, floats, floats, 8, 8, T=1024)
    counters = (floats, step, finite, floats)
    triton_batches.advance[(1,)](*counters, longs, 7, MEMBERS=3, num_warps=1)
    for tensor in (longs, floats, ints, ints.to(torch.uint8)):
        triton_batches.copy_batch[(1,)](longs, tensor, tensor, 4, 2**40, 32, 32, T=prepare.COPIED)
    triton_batches.set_cursor[(1,)](longs, 4, 2**40, num_warps=1)
    for width, classes in ((20, 4), (100, 300)):
        x, W = torch.zeros(64, width), torch.zeros(classes, width)
        head.softmax_head(x, W, torch.zeros(classes), longs, floats, 0.5)


def shallow():
    """The kernel of shallow models: documents that fit into a tile, and longer ones."""
    whole, parts = (100, True), (1000, False)  # the longest document, and whether there is a cursor
    plain = {"mode": "mean", "importance": False}
    for d, optimizer, options, documents_of in (
        (20, "adam", {}, (whole, parts)),
        (5, "adam", {}, ((7, True),)),
        (20, "adagrad", plain, (whole,)),
    ):
        model = DeepModel(HashSpec(50, 9, 2), d, 3, optimizer=optimizer, **options)
        bag, n = model.network.bag, 8
        longs = torch.zeros(64, dtype=torch.int64)
        tensors = (bag.weight, bag.importance, longs, bag.hash_seeds, longs[: n + 1], None, None)
        call = Call(*tensors, 50, 0, False, False, False, False)
        places = cuda_places.prepared(call, cuda_places.make_term_buffers(call))
        for longest, has_cursor in documents_of:
            documents = fused.Documents(longs, longs, torch.zeros(n), n, longest)
            record = fused.LossRecord(longs, torch.zeros(n), longs[0].int())
            here = places._replace(cursor=longs[:3] if has_cursor else None)
            rule_of = model.optimizers[0].rule_of
            fused.learn(model.network, documents, record, call, here, rule_of, 0.5)


def main():
    for module in (gpu_steps, optim):  # without a GPU they do not import it
        module.cuda_rows = cuda_rows
    JITFunction.run = compile_kernel
    for part in (layers, rules, training, shallow):
        part()
    print(*sorted(compiled))


if __name__ == "__main__":
    assert isinstance(cuda.triton_kernels.id_keys, DirectKernel), "unset TRITON_INTERPRET"
    main()
