"""What people put around a training step, against plain PyTorch.

The plain side is the definition of the layers in plain PyTorch (`reference.py`), with dense
gradients and an optimizer of torch.optim.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.cases.optimizers import PAIRS, Model, batches, distance, train
from torch import nn

from hashembed import HashEmbeddingBag
from hashembed.nn.ops import indexing, reference
from hashembed.nn.optim import RowAdam, RowSGD


class Plain(nn.Module):
    """The same model without any kernel."""

    def __init__(self, model):
        super().__init__()
        bag = model.bag
        self.E, self.P = (nn.Parameter(t.detach().clone()) for t in (bag.weight, bag.importance))
        self.out = copy.deepcopy(model.out)
        self.seeds, self.spec = bag.hash_seeds.clone(), bag.spec

    def forward(self, ids):
        bags, length = ids.shape
        offsets = torch.arange(bags + 1) * length
        keys = indexing.id_keys(ids.reshape(-1))
        return self.out(
            reference.hash_embedding_bag(keys, offsets, self.E, self.P, self.seeds, self.spec)
        )


def both(name, rate=0.05, dtype=torch.float64, **options):
    """A model with a row optimizer, and the plain one with its dense counterpart."""
    model = Model(dtype)
    plain = Plain(model)
    ours, theirs = PAIRS[name]
    pairs = tuple(
        (m, make(m.parameters(), lr=rate, **options))
        for m, make in ((model, ours), (plain, theirs))
    )
    return pairs, [p.detach().clone() for p in plain.parameters()]


def compare(pairs, start, bound):
    (model, optimizer), (plain, _) = pairs
    if hasattr(optimizer, "flush"):
        optimizer.flush()
    for mine, theirs, first in zip(model.parameters(), plain.parameters(), start, strict=True):
        assert (theirs - first).abs().max() > 20 * bound
        assert (mine - theirs).abs().max() < bound


NAMES = ["sgd", "adagrad", "adam", "adamw", "momentum"]
NO_IDS = torch.empty(0, 5, dtype=torch.int64), torch.empty(0, dtype=torch.int64)


@pytest.mark.parametrize("empty", [(), (0,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_add_up_over_passes(name, empty):
    """Three passes a step; those in `empty` have no ids."""
    pairs, start = both(name)
    for model, optimizer in pairs:
        data = list(batches(24))
        for step in range(8):
            optimizer.zero_grad()
            for part, batch in enumerate(data[3 * step : 3 * step + 3]):
                ids, labels = NO_IDS if part in empty and step % 2 else batch
                (F.cross_entropy(model(ids), labels, reduction="sum") / 24).backward()
            optimizer.step()
    compare(pairs, start, 1e-3 if name.startswith("adam") else 1e-9)


CLIPS = {
    "norm": lambda p: nn.utils.clip_grad_norm_(p, 0.05),
    "largest": lambda p: nn.utils.clip_grad_norm_(p, 0.01, norm_type=float("inf")),
    "value": lambda p: nn.utils.clip_grad_value_(p, 0.003),
    "not foreach": lambda p: nn.utils.clip_grad_norm_(p, 0.05, foreach=False),
}


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_clipping_is_that_of_dense_gradients(name, clip):
    """Row Adam approximates eps, which shows in small gradients: the difference grows with eps."""
    options = {"rate": 0.5} if name == "sgd" else {"eps": 1e-12}
    pairs, start = both(name, **options)
    for model, optimizer in pairs:
        for step, (ids, labels) in enumerate(batches(12)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids), labels)
            if step == 3:  # gradients without rows
                loss = loss * 0 + model(NO_IDS[0]).sum()
            loss.backward()
            CLIPS[clip](list(model.parameters()))
            optimizer.step()
    compare(pairs, start, 1e-6 if name == "adam" else 1e-9)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_gradients_without_rows_can_be_clipped(norm):
    layer = HashEmbeddingBag(30, 4)
    optimizer = RowAdam(layer.parameters())
    layer(NO_IDS[0]).sum().backward()
    assert nn.utils.clip_grad_norm_(layer.parameters(), 1.0, norm) == 0
    optimizer.step()


def test_autocast_in_bfloat16():
    """The dense layer computes in bfloat16 on both sides, the look-up in float32."""
    pairs, start = both("sgd", rate=0.5, dtype=torch.float32)
    for model, optimizer in pairs:
        for ids, labels in batches(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(ids)
                assert logits.dtype == torch.bfloat16
                loss = F.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
    compare(pairs, start, 2e-3)  # one step of bfloat16 is 4e-3 of a number


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_grad_scaler_unscales_clips_and_skips(name):
    pairs, start = both(name, rate=0.5 if name == "sgd" else 0.05)
    for model, optimizer in pairs:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step, (ids, labels) in enumerate(batches(12)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids), labels)
            if step in (4, 7):
                loss = loss * float("inf")  # this step must not happen
            scaler.scale(loss).backward()
            if step % 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2.0**8
    compare(pairs, start, 1e-3 if name == "adam" else 1e-9)


@pytest.mark.parametrize("compile_step", [False, True])
def test_model_and_loss_compile_without_a_graph_break(compile_step):
    """PyTorch's optimizers break the graph of their step.

    Its compiled Adam rounds more coarsely (3e-6 here), so both sides compile the step, or none.
    """
    torch._dynamo.reset()
    model = Model()
    plain = Plain(model)
    start = [p.detach().clone() for p in plain.parameters()]
    optimizer, other = (torch.optim.Adam(m.parameters(), lr=0.05) for m in (model, plain))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled_loss(ids, labels):
        return F.cross_entropy(model(ids), labels)

    def plain_loss(ids, labels):
        return F.cross_entropy(plain(ids), labels)

    for loss_of, steps in ((compiled_loss, optimizer), (plain_loss, other)):
        step = torch.compile(steps.step, backend="aot_eager") if compile_step else steps.step
        for ids, labels in batches(6):
            steps.zero_grad()
            loss_of(ids, labels).backward()
            step()
    compare([(model, optimizer), (plain, other)], start, 1e-9)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_compiled_model_trains_with_a_row_optimizer(name):
    """Its layer stays outside of the graph, as do all sparse gradients of PyTorch."""
    torch._dynamo.reset()
    pairs, start = both(name)
    (model, optimizer), (plain, other) = pairs
    train(torch.compile(model, backend="aot_eager"), optimizer, batches(6))
    train(plain, other, batches(6))
    compare(pairs, start, 1e-3 if name == "adam" else 1e-9)


def test_no_warning_of_sparse_invariants():
    """The whole run treats warnings as errors; here is one step of every kind, for the record."""
    for make in (RowAdam, RowSGD):
        model = Model()
        before = [p.detach().clone() for p in model.parameters()]
        train(model, make(model.parameters(), lr=0.1), batches(2))
        assert distance(model.parameters(), before) > 0.01
