"""Layers that leave Python: ONNX, saved programs of torch.export, AOTInductor.

Each is compared with the layer itself: any int64, empty bags, no ids, no bags, sizes that were not
those of the export.
"""

import io
import itertools
import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.optim import RowAdam

ANY = torch.export.Dim.DYNAMIC
EXTREME = [0, 1, -1, 5, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 10**15, 5]
LENGTHS = [(3, 0, 7), (10,), (1,), (0, 0), (0,), (), (0, 4, 0, 0, 5, 0), (1, 1)]

FORMS = {
    "k = 1": {"num_hashes": 1},
    "k = 2": {},
    "k = 3": {"num_hashes": 3},
    "concat": {"num_hashes": 3, "aggregation": "concat", "append_importance": True},
    "append": {"append_importance": True, "indexing": "shared"},
    "no importance": {"importance": False, "num_hashes": 1},
    "padding, sparse gradients": {"padding_idx": 5, "sparse": True},
}


def filled(layer):
    """With weights that are large enough to see."""
    if layer.importance is not None:
        with torch.no_grad():
            layer.importance.normal_(generator=torch.Generator().manual_seed(1))
    return layer


def bag_inputs(lengths, weights=False):
    """Ids of bags of these lengths, offsets, and a weight for each id."""
    count = sum(lengths)
    generator = torch.Generator().manual_seed(count)
    drawn = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator)
    ids = torch.where(torch.rand(count, generator=generator) < 0.5, drawn, drawn % 9)
    ids[: len(EXTREME)] = torch.tensor(EXTREME)[:count]
    offsets = torch.tensor([0, *itertools.accumulate(lengths)][: len(lengths)], dtype=torch.int64)
    more = (torch.randn(count, generator=generator),) if weights else ()
    return ids, offsets, *more


def onnx_session(module, inputs, shapes):
    """-> a function that runs the module in onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    program = torch.onnx.export(
        module.eval(), inputs, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
    file = io.BytesIO()
    program.save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options)
    names = [i.name for i in session.get_inputs()]

    def run(*tensors):
        given = {name: t.numpy() for name, t in zip(names, tensors, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run


# torch 2.13's exporter pickles a tree specification the old way.
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")


# Each export takes a second or more.
@pytest.mark.parametrize(
    ("mode", "form"),
    [
        ("sum", "k = 1"),
        ("mean", "k = 2"),
        ("sum", "k = 3"),
        ("mean", "concat"),
        ("sum", "append"),
        ("mean", "no importance"),
        ("mean", "padding, sparse gradients"),
    ],
)
def test_bags_in_onnxruntime(mode, form):
    layer = filled(HashEmbeddingBag(300, 4, mode=mode, **FORMS[form]))
    shapes = {"ids": {0: ANY}, "offsets": {0: ANY}}
    run = onnx_session(layer, bag_inputs(LENGTHS[0]), shapes)
    for lengths in LENGTHS:
        inputs = bag_inputs(lengths)
        torch.testing.assert_close(run(*inputs), layer(*inputs).detach())


@pytest.mark.parametrize("last", [False, True])
def test_weighted_bags_in_onnxruntime(last):
    layer = filled(HashEmbeddingBag(300, 4, include_last_offset=last, append_importance=True))

    def inputs(lengths):
        ids, offsets, weights = bag_inputs(lengths, weights=True)
        return ids, torch.cat([offsets, torch.tensor([len(ids)])]) if last else offsets, weights

    shapes = {"ids": {0: ANY}, "offsets": {0: ANY}, "per_sample_weights": {0: ANY}}
    run = onnx_session(layer, inputs(LENGTHS[0]), shapes)
    for lengths in LENGTHS:
        torch.testing.assert_close(run(*inputs(lengths)), layer(*inputs(lengths)).detach())


def test_bags_of_equal_length_in_onnxruntime():
    layer = filled(HashEmbeddingBag(300, 4))
    run = onnx_session(layer, (torch.tensor(EXTREME).view(5, 2),), {"ids": {0: ANY, 1: ANY}})
    for shape in [(2, 5), (1, 1), (0, 3), (3, 0), (7, 4)]:
        ids = torch.randint(-(2**63), 2**63 - 1, shape)
        torch.testing.assert_close(run(ids), layer(ids).detach())


@pytest.mark.parametrize("form", ["k = 3", "concat", "padding, sparse gradients"])
def test_look_ups_in_onnxruntime(form):
    layer = filled(HashEmbedding(300, 4, **FORMS[form]))
    run = onnx_session(layer, (torch.tensor(EXTREME).view(5, 2),), {"ids": {0: ANY, 1: ANY}})
    for ids in (torch.tensor(EXTREME).view(2, 5), torch.empty(0, 3, dtype=torch.int64)):
        torch.testing.assert_close(run(ids), layer(ids).detach())


class Classifier(nn.Module):
    """What one deploys: bags with weights, then a dense layer."""

    def __init__(self, **form):
        super().__init__()
        self.bag = filled(HashEmbeddingBag(300, 4, **form))
        self.out = nn.Linear(self.bag.output_dim, 3, dtype=form.get("dtype"))

    def forward(self, ids, offsets, weights=None):
        return self.out(self.bag(ids, offsets, weights))


def export(model, weights=False, **options):
    inputs = bag_inputs(LENGTHS[0], weights)
    shapes = {name: {0: ANY} for name in ("ids", "offsets", "weights")[: len(inputs)]}
    return torch.export.export(model, inputs, dynamic_shapes=shapes, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize("how", ["export", "trace"])
def test_an_exported_model_has_the_pending_updates_of_its_optimizer(how):
    model = filled(HashEmbedding(300, 4, seed=1))
    optimizer = RowAdam(model.parameters(), lr=0.1)
    for ids in torch.arange(20).view(5, 4):
        optimizer.zero_grad()
        model(ids).sum().backward()
        optimizer.step()
    before = model.weight.detach().clone()
    ids = torch.arange(20)
    if how == "export":
        program = torch.export.export(model, (ids,)).module()
    else:
        program = torch.jit.trace(model, (ids,), check_trace=False)
    assert (model.weight - before).abs().max() > 0.01  # momentum of rows that missed steps
    torch.testing.assert_close(program(ids), model(ids))


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_can_be_saved_while_a_row_optimizer_lives(strict, tmp_path):
    """Even that of another model, whose pending updates are applied, too."""
    other = HashEmbedding(300, 4)
    optimizer = RowAdam(other.parameters())
    other(torch.arange(9)).sum().backward()
    optimizer.step()
    model = Classifier(mode="sum", **FORMS["k = 3"])
    program = export(model, strict=strict)
    assert not [node.name for node in program.graph.nodes if "grad" in node.name]
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for inputs, wanted in cases_of(model):
        torch.testing.assert_close(loaded(*inputs), wanted)


# What runs without this package: it must neither be imported nor be found.
FRESH = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hashembed":
            raise ImportError("hashembed is hidden")

sys.meta_path.insert(0, Hidden())
import torch

kind, folder = sys.argv[1:]
for name, cases in torch.load(f"{folder}/cases.pt").items():
    file = f"{folder}/{name}.pt2"
    if kind == "program":
        run = torch.export.load(file).module()
    else:
        run = torch._inductor.aoti_load_package(file)
    for inputs, wanted in cases:
        torch.testing.assert_close(run(*inputs), wanted, msg=f"{name}: {inputs}")
        print("same")
assert not [name for name in sys.modules if name.startswith("hashembed")]
"""


def cases_of(model, weights=False):
    inputs = [bag_inputs(lengths, weights) for lengths in LENGTHS]
    with torch.no_grad():
        return [(given, model(*given)) for given in inputs]


def run_without_hashembed(kind, folder, cases):
    torch.save(cases, folder / "cases.pt")
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", FRESH, kind, str(folder)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["same"] * sum(map(len, cases.values()))


def test_saved_programs_run_without_hashembed(tmp_path):
    cases = {}
    for i, form in enumerate(("k = 3", "concat", "padding, sparse gradients")):
        weights = i == 0
        model = Classifier(mode="sum" if weights else "mean", **FORMS[form])
        torch.export.save(export(model, weights, strict=i == 1), tmp_path / f"model{i}.pt2")
        cases[f"model{i}"] = cases_of(model, weights)
    run_without_hashembed("program", tmp_path, cases)


@pytest.mark.slow  # a C++ compiler runs for half a minute
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_compiled_programs_run_without_hashembed(tmp_path):
    cases = {}
    for name, weights, form in (
        ("weighted", True, {"num_hashes": 3, "append_importance": True}),
        ("mean", False, {"mode": "mean", "padding_idx": 5, "aggregation": "concat"}),
    ):
        model = Classifier(**form)
        program = export(model, weights)
        path = tmp_path / f"{name}.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        cases[name] = cases_of(model, weights)
    run_without_hashembed("compiled", tmp_path, cases)
