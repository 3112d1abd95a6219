"""Recorded steps beside ordinary ones, in Triton's interpreter.

Without a GPU there are no graphs: here a graph launches its kernels anew. So this compares what the
host does; `tests/nn/gpu/test_recorded.py` has real graphs.
"""

import gc
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from tests.cases.interpreted import use_triton_on_the_cpu
from tests.cases.optimizers import Model, batches
from tests.cases.triton import DEVICE

from hashembed.nn.ops import recorded
from hashembed.nn.optim import RowAdagrad, RowAdam

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="a GPU has real graphs")


class LaunchedGraphs(recorded.Graphs):
    """Graphs that launch their kernels anew, and count that."""

    replays = 0

    def _record(self, owned):
        def replaying(record):
            def replay():
                type(self).replays += 1
                record(owned)

            return SimpleNamespace(replay=replay)

        self.forward = replaying(self._record_forward)
        self.backward = replaying(self._record_backward)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    use_triton_on_the_cpu(monkeypatch)
    monkeypatch.setattr(recorded, "Graphs", LaunchedGraphs)
    monkeypatch.setattr(recorded, "_stream", lambda _: 7)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(LaunchedGraphs, "replays", 0)
    yield
    gc.collect()  # graphs here refer to their optimizers, whose finalizers run kernels


def trained(make, records, event, monkeypatch, steps=10):
    """The bits of a model and its optimizer after some steps."""

    def recorder_of(call, owned):
        return owned[0][1].recorder_of(owned[0][0], recorded.Recorder) if records else None

    monkeypatch.setattr(recorded, "recorder_of", recorder_of)
    model = Model(K=40, B=12, d=3)
    optimizer = make(model.parameters())
    for number, (ids, labels) in enumerate(batches(steps, 4, 3)):
        optimizer.zero_grad()
        vectors = model.bag(ids)
        if event == "used twice" and number == 6:
            vectors = vectors * model.bag(ids + 1)
        F.cross_entropy(model.out(vectors), labels).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
            if event == "other numbers" and number == 5:
                group["eps"] = 0.1
        if event == "written" and number == 6:
            with torch.no_grad():
                model.bag.weight.mul_(0.5)
        if event == "loaded" and number == 5:
            optimizer.load_state_dict(optimizer.state_dict())
    found = dict(model.state_dict())
    for i, state in optimizer.state_dict()["state"].items():
        found |= {f"{i} {name}": value for name, value in state.items()}
    return {name: torch.as_tensor(value) for name, value in found.items()}


EVENTS = ["nothing", "used twice", "other numbers", "written", "loaded"]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("cls", [RowAdam, RowAdagrad])
def test_the_same_bits_as_ordinary_steps(cls, event, monkeypatch):
    def make(parameters):
        return cls(parameters, lr=0.05, in_backward=True)

    want = trained(make, False, event, monkeypatch)
    assert LaunchedGraphs.replays == 0
    got = trained(make, True, event, monkeypatch)
    assert LaunchedGraphs.replays >= 6
    assert want.keys() == got.keys()
    for name, value in want.items():
        assert torch.equal(value, got[name]), name


def test_several_backward_passes_before_a_step_are_refused(monkeypatch):
    monkeypatch.setattr(
        recorded,
        "recorder_of",
        lambda _, owned: owned[0][1].recorder_of(owned[0][0], recorded.Recorder),
    )
    model = Model(K=40, B=12, d=3)
    optimizer = RowAdam(model.parameters(), lr=0.05, in_backward=True)
    data = list(batches(8, 4, 3))
    for ids, _ in data:
        model(ids).sum().backward()
        optimizer.step()
    assert LaunchedGraphs.replays > 0
    model(data[0][0]).sum().backward()
    with pytest.raises(RuntimeError, match="2 passes before one step"):
        model(data[1][0]).sum().backward()
