"""The layers with the rest of PyTorch: compile, export, autocast, DDP."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.cases.ranks import leave_together
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hashembed import HashEmbedding, HashEmbeddingBag

IDS = torch.tensor([[0, 1, -1, 5], [2**63 - 1, -(2**63), 10**15, 5]])
OFFSETS = torch.tensor([0, 2, 2])

LAYERS = {
    "plain": lambda: HashEmbedding(300, 4),
    "padding": lambda: HashEmbedding(300, 4, padding_idx=5, append_importance=True),
    "bag": lambda: HashEmbeddingBag(300, 4, padding_idx=5),
    "mean": lambda: HashEmbeddingBag(300, 4, mode="mean", indexing="shared"),
    "identity": lambda: HashEmbedding(8, 4, num_buckets=8, indexing="identity"),
}


def inputs(name):
    if name == "identity":
        return (IDS % 8,)
    return (IDS.view(-1), OFFSETS) if name in ("bag", "mean") else (IDS,)


def gradients(module, args):
    module.zero_grad()
    out = module(*args)
    out.square().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in module.parameters())]


# TorchInductor compiles C++; without a compiler on the machine only the tracing can be tested. Two
# forms have all the operations, and each costs seconds.
NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
COMPILED = [("aot_eager", name) for name in LAYERS]
COMPILED += [pytest.param("inductor", name, marks=NEEDS_COMPILER) for name in ("padding", "mean")]


@pytest.mark.parametrize(("backend", "name"), COMPILED)
def test_compile_without_graph_breaks(backend, name):
    torch._dynamo.reset()
    layer = LAYERS[name]()
    want = gradients(layer, inputs(name))
    got = gradients(torch.compile(layer, fullgraph=True, backend=backend), inputs(name))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", LAYERS)
def test_export(name):
    layer = LAYERS[name]()
    batch = torch.export.Dim("batch", min=2, max=4096)
    shapes = (
        {"ids": {0: batch}, "offsets": None} if name in ("bag", "mean") else {"ids": {0: batch}}
    )
    program = torch.export.export(layer, inputs(name), dynamic_shapes=shapes)
    ids, *rest = inputs(name)
    more = torch.cat([ids, ids])
    torch.testing.assert_close(program.module()(more, *rest), layer(more, *rest))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_torchscript_traces():
    layer = HashEmbedding(300, 4, padding_idx=5)
    traced = torch.jit.trace(layer, (IDS,))
    torch.testing.assert_close(traced(IDS + 7), layer(IDS + 7))


def test_autocast_leaves_the_look_up_in_full_precision():
    model = nn.Sequential(HashEmbedding(300, 4), nn.Linear(4, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model[0](IDS)
        logits = model[1](vectors)
    assert vectors.dtype == torch.float32
    assert torch.equal(vectors, model[0](IDS))
    assert logits.dtype == torch.bfloat16
    logits.float().sum().backward()
    assert model[0].weight.grad.dtype == torch.float32


def test_vmap_and_functional_call():
    layer = HashEmbedding(300, 4)
    assert torch.equal(torch.vmap(layer)(IDS), layer(IDS))
    doubled = {name: p * 2 for name, p in layer.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(layer, doubled, (IDS,)), layer(IDS) * 4)


def _train_rank(rank: int, folder: str, seeds: tuple[int, int], device: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    layer = HashEmbedding(300, 4, seed=seeds[rank])
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 2)).to(device)
    model = DistributedDataParallel(network)
    with torch.no_grad():
        model.module[0].importance.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        ids = torch.arange(8).view(2, 4) * (rank + 2) + step  # each process sees its own rows
        model(ids.to(device)).square().sum().backward()
        optimizer.step()
    torch.save(model.module.cpu().state_dict(), Path(folder) / f"rank{rank}.pt")
    leave_together(folder, rank, 2)


GPU_CASE = pytest.param(
    (3, 4),
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    ],
)


# Different seeds: DDP must bring the hash functions into step along with the weights.
@pytest.mark.parametrize(("seeds", "device"), [((0, 0), "cpu"), ((3, 4), "cpu"), GPU_CASE])
def test_ddp_with_two_processes(seeds, device):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_train_rank, (folder, seeds, device), nprocs=2)
        first, second = (torch.load(Path(folder) / f"rank{r}.pt") for r in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    fresh = HashEmbedding(300, 4, seed=seeds[0])
    assert torch.equal(first["0.hash_seeds"], fresh.hash_seeds)
    assert not torch.equal(first["0.weight"], fresh.weight)
