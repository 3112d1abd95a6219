"""The compiled float32 kernels: no Numba in a process that uses them, the same bits everywhere."""

import os
import subprocess
import sys

import pytest

from hashembed.core.native.library import CHOICE, JIT, LEVELS, best_level, runtime

needs_library = pytest.mark.skipif(runtime().library is None, reason=runtime().why)

# Prints a checksum of each output, gradient and table.
LAYERS = """
import itertools, hashlib, sys
import numpy as np
import torch
from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD

def show(what, *tensors):
    found = [t.detach().coalesce() if t.is_sparse else t.detach() for t in tensors]
    parts = [p for t in found for p in ([t.indices(), t.values()] if t.is_sparse else [t])]
    whole = b"".join(p.numpy().tobytes() for p in parts)
    print(what, hashlib.sha256(whole).hexdigest())

rng = np.random.default_rng(0)

def numbers(*shape):
    return torch.from_numpy(rng.standard_normal(shape, np.float32))

def set_tables(layer):
    for p in layer.parameters():
        p.data.copy_(numbers(*p.shape))
    return layer

torch.manual_seed(0)
torch.set_num_threads(2)
ids = torch.from_numpy(rng.integers(-(2**62), 2**62, (600, 7)))
for d, mode, sparse in itertools.product((1, 20, 37), ("sum", "mean", "single"), (False, True)):
    single = mode == "single"
    make = HashEmbedding if single else HashEmbeddingBag
    options = {"sparse": sparse} if single else {"sparse": sparse, "mode": mode}
    layer = set_tables(make(5000, d, **options))
    weights = numbers(*ids.shape).requires_grad_() if mode == "sum" else None
    out = layer(ids) if weights is None else layer(ids, per_sample_weights=weights)
    out.backward(numbers(*out.shape))
    grads = [p.grad for p in layer.parameters()]
    show((d, mode, sparse), out, *grads, *([] if weights is None else [weights.grad]))

for make, options in (
    (RowSGD, {"lr": 0.1}),
    (RowSGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (RowAdagrad, {}),
    (RowAdagrad, {"rowwise": True}),
    (RowAdam, {}),
    (RowAdamW, {}),
):
    layer = set_tables(HashEmbeddingBag(5000, 20))
    optimizer = make(layer.parameters(), **options)
    for step in range(300):
        rare = 0 if step in (0, 299) else 50  # these rows miss more steps than are kept at hand
        out = layer(ids[rare : rare + 30])
        out.backward(numbers(*out.shape))
        optimizer.step()
        optimizer.zero_grad()
    optimizer.flush()
    show((make.__name__, options), *layer.parameters())
print(sorted({"numba", "llvmlite"} & set(sys.modules)), file=sys.stderr)
"""


def run(code, kernels):
    environment = {**os.environ, CHOICE: kernels}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()[-1]


@needs_library
def test_every_source_of_kernels_gives_the_same_bits_and_only_the_jit_needs_numba():
    levels = list(LEVELS)[: list(LEVELS).index(best_level()) + 1]
    want, imported = run(LAYERS, JIT)
    assert imported == "['llvmlite', 'numba']"
    assert want.count("\n") == 24
    for level in levels:
        found, imported = run(LAYERS, level)
        assert found.splitlines() == want.splitlines()
        assert imported == "[]"


DEEP = """
import sys
import numpy as np
from hashembed import HashSpec
from hashembed.core.njit import native_kernels
from hashembed.engine import Labels, TrainConfig, fit
from hashembed.hashing.bags import Bags
from hashembed.nn.engine import DeepModel
model = DeepModel(HashSpec(100, 20), 4, 2, hidden_layers=(8,))
bags = Bags(np.arange(40), np.arange(0, 41, 2))
fit(model, bags, Labels.single([0, 1] * 10), TrainConfig(passes=2))
model.scores(bags)
own = [kernel for kernel in native_kernels if kernel.symbol.startswith("hashembed_nn_")]
assert own
print([kernel.symbol for kernel in own if "dispatcher" in vars(kernel)], file=sys.stderr)
"""


@needs_library
def test_numba_compiles_no_kernel_of_this_room_for_hidden_layers():
    _, compiled = run(DEEP, "")
    assert compiled == "[]"


NO_NUMBA = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import torch
from hashembed import HashEmbedding
from hashembed.core.njit import NoNumbaError
HashEmbedding(100, 4)(torch.arange(5)).sum().backward()
try:
    HashEmbedding(100, 4).to(torch.bfloat16)(torch.arange(5))
except NoNumbaError as error:
    print(error)
print(file=sys.stderr)
"""


@needs_library
def test_other_precisions_say_that_they_need_numba():
    said, _ = run(NO_NUMBA, "")
    assert "forward for arguments" in said
    assert "compiled for float32; other precisions need Numba" in said
    assert 'pip install "hashembed[jit]"' in said


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import hashembed.nn.cpu.bag_kernels, hashembed.nn.cpu.row_kernels
try:
    from hashembed.nn import HashEmbedding
except ImportError as error:
    print(error)
print(sorted({"numba", "llvmlite"} & set(sys.modules)), file=sys.stderr)
"""


def test_kernels_are_imported_without_torch():
    said, imported = run(WITHOUT_TORCH, "")
    assert said == 'this part of hashembed needs PyTorch: pip install "hashembed[torch]"\n'
    assert imported == "[]"
