"""`in_backward=True` and what people do beside it: on a GPU or, without one, interpreted."""

import pytest
import torch
import torch.nn.functional as F
from tests.cases.interpreted import use_triton_on_the_cpu
from tests.cases.optimizers import Model, batches, distance, train
from tests.cases.triton import DEVICE

from hashembed.nn.optim import RowAdam, RowAdamW, RowSGD, clip_grad_norm_

MAKERS = {
    "sgd": (RowSGD, torch.optim.SGD),
    "adam": (RowAdam, torch.optim.Adam),
    "adamw": (RowAdamW, torch.optim.AdamW),
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Without a GPU layers on the CPU go to the Triton kernels, which are interpreted."""
    if DEVICE == "cuda":
        return
    use_triton_on_the_cpu(monkeypatch)


def model_and(make, **options):
    model = Model(K=40, B=12, d=3).to(DEVICE)
    return model, make(model.parameters(), lr=0.05, **options)


def data(count):
    return [(ids.to(DEVICE), labels.to(DEVICE)) for ids, labels in batches(count, 4, 3)]


@pytest.mark.parametrize("name", MAKERS)
def test_a_layer_used_twice_in_one_graph(name):
    ours, theirs = MAKERS[name]
    mine, optimizer = model_and(ours, in_backward=True)
    dense, other = model_and(theirs)
    for model, steps in ((mine, optimizer), (dense, other)):
        for ids, labels in data(6):
            steps.zero_grad()
            vectors = model.bag(ids) * model.bag(ids.flip(0) + 1) + model.bag(ids // 2)
            F.cross_entropy(model.out(vectors), labels).backward()
            steps.step()
    assert mine.bag.weight.grad is None
    assert optimizer.state[mine.bag.weight]["step"] == 6
    optimizer.flush()
    assert distance(dense.parameters(), Model(K=40, B=12, d=3).to(DEVICE).parameters()) > 0.05
    assert distance(mine.parameters(), dense.parameters()) < 1e-4


def test_a_graph_that_is_never_used_does_no_harm():
    mine, optimizer = model_and(RowSGD, in_backward=True)
    dense, other = model_and(torch.optim.SGD)
    kept = []
    for model, steps in ((mine, optimizer), (dense, other)):
        for ids, labels in data(3):
            steps.zero_grad()
            kept.append(model(ids))  # holds the table, but has no backward pass
            F.cross_entropy(model(ids), labels).backward()
            steps.step()
    assert distance(mine.parameters(), dense.parameters()) < 1e-12


def test_a_backward_pass_that_fails_leaves_nothing_behind():
    mine, optimizer = model_and(RowSGD, in_backward=True)
    start = mine.bag.weight.detach().clone()
    ids, labels = data(1)[0]

    def fail(grad):
        raise ZeroDivisionError

    first = mine.bag(ids)
    first.register_hook(fail)  # the second use has its backward pass before
    with pytest.raises(ZeroDivisionError):
        (first * 2 + mine.bag(ids + 1)).sum().backward()
    del first
    assert torch.equal(mine.bag.weight, start)
    dense, other = model_and(torch.optim.SGD)
    for model, steps in ((mine, optimizer), (dense, other)):
        steps.zero_grad()
        F.cross_entropy(model.out(model.bag(ids) + model.bag(ids + 1)), labels).backward()
        steps.step()
    assert distance(mine.parameters(), dense.parameters()) < 1e-12


def test_a_table_that_was_updated_meanwhile_is_refused_in_words():
    model, optimizer = model_and(RowAdam, in_backward=True)
    (ids, _), *_ = data(1)
    first, second = model(ids).sum(), model(ids).square().sum()
    first.backward()
    with pytest.raises(RuntimeError, match="add up all losses and call backward"):
        second.backward()
    assert optimizer.state[model.bag.weight]["step"] == 1


def test_accumulation_is_refused_in_words():
    model, optimizer = model_and(RowAdam, in_backward=True)
    (ids, labels), *_ = data(1)
    for _ in range(2):
        F.cross_entropy(model(ids), labels).backward()
    with pytest.raises(RuntimeError, match="found 2 passes before one step"):
        optimizer.step()


def test_accumulation_later_on_is_refused_at_once():
    model, optimizer = model_and(RowAdam, in_backward=True)
    train(model, optimizer, data(2))
    (ids, labels), *_ = data(1)
    F.cross_entropy(model(ids), labels).backward()
    before = model.bag.weight.detach().clone()
    with pytest.raises(RuntimeError, match="need in_backward=False"):
        F.cross_entropy(model(ids), labels).backward()
    assert torch.equal(model.bag.weight, before)


def test_steps_without_a_call_of_step_are_still_allowed():
    """Where an optimizer has nothing but tables, the backward pass is all of the step."""
    model = Model(K=40, B=12, d=3).to(DEVICE)
    optimizer = RowSGD(model.bag.parameters(), lr=0.05, in_backward=True)
    start = model.bag.weight.detach().clone()
    for ids, labels in data(3):
        F.cross_entropy(model(ids), labels).backward()
    assert not torch.equal(model.bag.weight, start)
    assert optimizer.state[model.bag.weight]["step"] == 3


def test_grad_scaler_is_refused_in_words():
    model, optimizer = model_and(RowSGD, in_backward=True)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    (ids, labels), *_ = data(1)
    scaler.scale(F.cross_entropy(model(ids), labels)).backward()
    with pytest.raises(RuntimeError, match="gradients that GradScaler had scaled"):
        scaler.step(optimizer)


def test_a_scaler_that_is_off_does_not_matter():
    mine, optimizer = model_and(RowSGD, in_backward=True)
    dense, other = model_and(torch.optim.SGD)
    for model, steps in ((mine, optimizer), (dense, other)):
        scaler = torch.amp.GradScaler(DEVICE, enabled=False)
        for ids, labels in data(2):
            steps.zero_grad()
            scaler.scale(F.cross_entropy(model(ids), labels)).backward()
            scaler.step(steps)
    assert distance(mine.parameters(), dense.parameters()) < 1e-12


def test_clipping_is_refused_in_words():
    model, optimizer = model_and(RowSGD, in_backward=True)
    (ids, labels), *_ = data(1)
    F.cross_entropy(model(ids), labels).backward()
    with pytest.raises(ValueError, match="has already updated a table by its gradient"):
        clip_grad_norm_(model.parameters(), 1.0)
    assert clip_grad_norm_(model.out.parameters(), 1e-9) > 1e-9  # the others can be
    optimizer.step()


def test_weights_that_are_written_are_noticed():
    mine, optimizer = model_and(RowAdam, in_backward=True)
    dense, other = model_and(torch.optim.Adam)
    for model, steps in ((mine, optimizer), (dense, other)):
        train(model, steps, data(5))
        with torch.no_grad():
            model.bag.weight.fill_(0.5)
        (ids, _), *_ = data(1)
        model(ids)
        assert (model.bag.weight == 0.5).all()
        train(model, steps, data(3))
    optimizer.flush()
    assert distance(mine.parameters(), dense.parameters()) < 1e-4
