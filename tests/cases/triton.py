"""What the tests of the Triton kernels share: the kernels on a GPU, or interpreted without one."""

from importlib.util import find_spec

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from tests.cases.layer_calls import Case

from hashembed.hashing.locate import indexing_code
from hashembed.nn.cpu import launch as cpu
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu.call import Call
from hashembed.nn.ops import reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

__all__ = ["DEVICE", "Case", "assert_same", "call_of", "kernels_on"]


def call_of(case, *, bag=True, keep=False, weights=False):
    def here(tensor):
        return None if tensor is None else tensor.to(DEVICE)

    form = case.form
    return Call(
        here(case.E),
        here(case.P),
        here(case.keys),
        here(case.seeds),
        here(case.offsets) if bag else None,
        here(case.keep) if keep else None,
        here(case.weights).to(cpu.ACCUMULATION[case.E.dtype]) if weights else None,
        case.spec.num_embeddings,
        indexing_code(case.spec),
        False,
        form.get("mode") == "mean" and bag,
        form.get("aggregation") == "concat",
        form["append_importance"],
    )


def upstream(out, dtype):
    g = torch.Generator().manual_seed(2)
    return torch.randn(out.shape, generator=g, dtype=torch.float64).to(dtype)


def kernels_on(case, sink=cuda.dense, **options):
    """-> output, then the gradients of E, P and the weights, those that there are; on the CPU."""
    call = call_of(case, **options)
    out = cuda.forward(call)
    grad = upstream(out, case.E.dtype).to(DEVICE)
    sinks = sink(call.weight), None if call.importance is None else sink(call.importance)
    of_E, of_P, of_weights = cuda.backward(call, grad, sinks, options.get("weights", False))
    tables = [_cpu(g) for g in (of_E, of_P) if g is not None]
    return [out.cpu(), *tables, *([] if of_weights is None else [of_weights.cpu()])]


def _cpu(gradient):
    if gradient.rows is None:
        return gradient.values.cpu()
    return gradient.rows.cpu(), gradient.values.cpu()


def assert_same(case, rtol, **options):
    """The kernels' output and gradients are the reference's."""
    want = case(reference, **options)
    got = kernels_on(case, **options)
    for mine, wanted in zip(got, want, strict=True):
        torch.testing.assert_close(mine.to(wanted.dtype), wanted, rtol=rtol, atol=rtol)
