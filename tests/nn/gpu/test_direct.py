"""Direct launches: when a launch may leave Triton out, and what the compiled kernel then gets."""

from types import SimpleNamespace

import pytest
import torch
from triton import knobs
from triton.runtime.jit import JITFunction

from hashembed.nn.gpu.direct import DirectKernel, direct

STREAM = 77


class Kernel:
    """A kernel that compiles for what Triton compiles for, and notes its launches."""

    __doc__, __name__ = "A kernel.", "kernel"
    arg_names = ("x", "y", "n", "m", "T", "D")
    params = tuple(
        SimpleNamespace(num=i, do_not_specialize=name in "nm", is_constexpr=name in "TD")
        for i, name in enumerate(arg_names)
    )

    def __init__(self, prefix=("enter", "metadata", "exit"), turned=False):
        self.by_triton, self.compiled, self.prefix, self.turned = 0, [], prefix, turned

    def __getitem__(self, grid):
        def run(*arguments, **options):
            self.by_triton += 1
            kernel = self.made(arguments, options)
            values = (*arguments, options["T"], options["D"])
            sizes = (*grid, 1, 1)[:3]
            if self.turned:
                values = values[::-1]
            kernel._run(
                *sizes, STREAM, kernel.function, kernel.packed_metadata, *self.prefix, *values
            )
            return kernel

        return run

    def made(self, arguments, options):
        kind = (self.kind_of(arguments), *sorted(options.items()))
        for known, kernel in self.compiled:
            if known == kind:
                return kernel
        number = len(self.compiled)
        calls = []
        kernel = SimpleNamespace(
            function=1000 + number,
            packed_metadata=("metadata", number),
            calls=calls,
            _run=lambda *given: calls.append(given),
        )
        self.compiled.append((kind, kernel))
        return kernel

    def kind_of(self, arguments):
        found = []
        for x in arguments:
            if isinstance(x, torch.Tensor):
                found.append((x.dtype, x.data_ptr() % 16 == 0))
            elif isinstance(x, int):
                found.append(-(2**31) <= x < 2**31)
            else:
                found.append(None)
        return tuple(found)


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: STREAM, raising=False)


def launch(kernel, x, y, n, m=5, grid=(3,), **options):
    kernel[grid](x, y, n, m, **({"T": 8, "D": 4, "num_warps": 1} | options))


def test_a_repeated_launch_gets_the_addresses_and_what_it_was_compiled_for():
    inner = Kernel()
    kernel = DirectKernel(inner)
    x, y = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    for _ in range(2):
        launch(kernel, x, y, 9)
    assert inner.by_triton == 2
    other = torch.ones(8)
    launch(kernel, other, y, 10, grid=(5, 2))
    assert inner.by_triton == 2
    ((_, compiled),) = inner.compiled
    own = (compiled.function, compiled.packed_metadata, None, None, None)
    addresses = (other.data_ptr(), y.data_ptr())
    assert compiled.calls[-1] == (5, 2, 1, STREAM, *own, *addresses, 10, 5, 8, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.zeros(4, dtype=torch.float64)},
        {"x": torch.zeros(5)[1:]},
        {"y": None},
        {"n": 2**31},
        {"n": -(2**40)},
        {"m": 2**31},
        {"n": 2**31, "m": -(2**31) - 1},
        {"T": 16},
        {"num_warps": 2},
    ],
    ids=str,
)
def test_whatever_triton_compiles_for_has_its_own_kernel(change):
    inner = Kernel()
    kernel = DirectKernel(inner)
    usual = {"x": torch.zeros(4), "y": torch.zeros(4), "n": 9}
    for arguments in (usual, usual | change):
        for _ in range(4):
            launch(kernel, **arguments)
    assert inner.by_triton == 4
    assert len(inner.compiled) == 2
    for _, compiled in inner.compiled:
        assert len(compiled.calls) == 4
        assert {call[4] for call in compiled.calls} == {compiled.function}


@pytest.mark.parametrize("other", [{"turned": True}, {"prefix": ("one more", None, None, None)}])
def test_a_triton_that_calls_its_kernels_otherwise_is_left_to_itself(other):
    inner = Kernel(**other)
    kernel = DirectKernel(inner)
    for _ in range(5):
        launch(kernel, torch.zeros(4), None, 9)
    assert inner.by_triton == 5


def test_profilers_and_others_that_watch_launches_see_all(monkeypatch):
    inner = Kernel()
    kernel = DirectKernel(inner)
    for _ in range(3):
        launch(kernel, torch.zeros(4), None, 9)
    assert inner.by_triton == 2
    hook = SimpleNamespace(calls=[print])
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", hook)
    launch(kernel, torch.zeros(4), None, 9)
    assert inner.by_triton == 3
    monkeypatch.undo()
    monkeypatch.setattr(JITFunction, "run", lambda *_, **__: None)
    launch(kernel, torch.zeros(4), None, 9)
    assert inner.by_triton == 4


def test_numbers_that_triton_specializes_are_refused():
    inner = Kernel()
    inner.params = (*inner.params[:3], SimpleNamespace(**vars(inner.params[3])), *inner.params[4:])
    inner.params[3].do_not_specialize = False
    with pytest.raises(ValueError, match="numbers that are not specialized"):
        DirectKernel(inner)


def test_interpreted_kernels_stay_as_they_are():
    inner = Kernel()
    assert direct(inner) is inner
