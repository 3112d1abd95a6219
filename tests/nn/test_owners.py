"""Tables that row optimizers owe updates: saved, copied, averaged, written to, taken over."""

import copy
import gc
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from tests.cases.optimizers import BOUNDS, LAZY, PAIRS, Model, batches, distance, train
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hashembed.nn import owners
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops import reference
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam, RowAdamW, RowSGD

IDS = torch.arange(200).view(40, 5)


def pair(name, steps=20):
    """Two models after the same steps, the first with rows that are behind."""
    models = [nn.Sequential(Model()) for _ in PAIRS[name]]
    optimizers = [
        make(m.parameters(), lr=0.05) for make, m in zip(PAIRS[name], models, strict=True)
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, batches(steps))
    stale = models[0][0].bag.importance.detach()
    assert distance([stale], [models[1][0].bag.importance]) > 100 * BOUNDS["momentum"]
    return models, optimizers


def assert_close(name, found, model):
    wanted = model.state_dict()
    for key in ("0.bag.weight", "0.bag.importance", "0.out.weight"):
        assert distance([found[key]], [wanted[key]]) < BOUNDS[name], key


@pytest.mark.parametrize("name", LAZY)
def test_a_state_dict_has_all_updates(name):
    (mine, dense), _ = pair(name)
    assert_close(name, mine.state_dict(), dense)


@pytest.mark.parametrize("name", LAZY)
def test_a_copy_has_all_updates(name):
    (mine, dense), _ = pair(name)
    assert_close(name, dict(copy.deepcopy(mine).named_parameters()), dense)


def test_pickles_and_files_have_all_updates():
    (mine, dense), _ = pair("adam")
    again = pickle.loads(pickle.dumps(mine))
    assert_close("adam", dict(again.named_parameters()), dense)
    train(mine, RowAdam(mine.parameters()), batches(1))
    file = io.BytesIO()
    torch.save(mine, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again(IDS), mine(IDS))
    assert distance(again.parameters(), mine.parameters()) == 0


@pytest.mark.parametrize("buffers", [False, True])
def test_averages_are_those_of_the_dense_rule(buffers):
    averages = []
    for make in PAIRS["adam"]:
        model = nn.Sequential(Model())
        optimizer = make(model.parameters(), lr=0.05)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=buffers)
        for batch in batches(20):
            train(model, optimizer, [batch])
            average.update_parameters(model)
        averages.append(average)
    start = nn.Sequential(Model()).parameters()
    assert distance(averages[1].module.parameters(), start) > 0.05
    assert distance(*(a.module.parameters() for a in averages)) < BOUNDS["adam"]


def test_a_copy_of_a_model_that_is_gone_is_a_model_like_any():
    model = Model()
    twin = copy.deepcopy(model)
    del model
    gc.collect()
    optimizer = RowAdam(twin.parameters(), lr=0.05)
    train(twin, optimizer, batches(3))
    assert len(list(twin.parameters())) == 4


def test_a_model_and_its_optimizer_are_copied_together():
    for order in (lambda m, o: (m, o), lambda m, o: (o, m)):
        model = Model()
        optimizer = RowAdam(model.parameters(), lr=0.05)
        train(model, optimizer, batches(10))
        made = copy.deepcopy(order(model, optimizer))
        twin, other = made if isinstance(made[0], Model) else made[::-1]
        data = list(batches(10, seed=1))
        train(model, optimizer, data)
        train(twin, other, data)
        optimizer.flush()
        other.flush()
        assert distance(model.parameters(), twin.parameters()) < 1e-12


def test_it_does_not_matter_what_is_saved_first():
    for model_first in (True, False):
        model = Model()
        optimizer = RowAdam(model.parameters(), lr=0.05)
        train(model, optimizer, batches(10))
        if model_first:
            weights = copy.deepcopy(model.state_dict())
            state = copy.deepcopy(optimizer.state_dict())
        else:
            state = copy.deepcopy(optimizer.state_dict())
            weights = copy.deepcopy(model.state_dict())
        other = Model()
        again = RowAdam(other.parameters(), lr=0.05)
        if model_first:
            again.load_state_dict(state)
            other.load_state_dict(weights)
        else:
            other.load_state_dict(weights)
            again.load_state_dict(state)
        data = list(batches(10, seed=1))
        train(model, optimizer, data)
        train(other, again, data)
        assert all(
            torch.equal(a, b)
            for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
        )


def vectors(model, weights):
    """What the layer should give, from these weights, and nothing else."""
    bag = model.bag
    offsets = torch.arange(0, IDS.numel() + 1, 5)
    return reference.hash_embedding_bag(
        ops.id_keys(IDS.view(-1)),
        offsets,
        weights["bag.weight"],
        weights["bag.importance"],
        bag.hash_seeds,
        bag.spec,
    )


def restore(model, best):
    model.load_state_dict(best)


def restore_whole(model, best):
    nn.Sequential(model).load_state_dict({f"0.{name}": value for name, value in best.items()})


@torch.no_grad()
def restore_by_hand(model, best):
    for name, p in model.named_parameters():
        p.copy_(best[name])


@pytest.mark.parametrize("write", [restore, restore_whole, restore_by_hand])
@pytest.mark.parametrize("name", LAZY)
def test_restored_weights_are_the_restored_weights(name, write):
    """And from then on training is as under the dense rule, with its momentum."""
    models = [Model(), Model()]
    for model, make in zip(models, PAIRS[name], strict=True):
        optimizer = make(model.parameters(), lr=0.05)
        train(model, optimizer, batches(15))
        best = copy.deepcopy(model.state_dict())
        train(model, optimizer, batches(10, seed=1))
        write(model, best)
        torch.testing.assert_close(model.bag(IDS), vectors(model, best), rtol=1e-12, atol=1e-12)
        assert all(torch.equal(p, best[name]) for name, p in model.named_parameters())
        assert all(torch.equal(v, best[name]) for name, v in model.state_dict().items())
        train(model, optimizer, batches(10, seed=2))
        model.state_dict()
    assert distance(models[1].parameters(), Model().parameters()) > 0.05
    assert distance(*(m.parameters() for m in models)) < BOUNDS[name]


@torch.no_grad()
def zero(model):
    model.bag.weight.zero_()
    model.bag.importance.zero_()


def reset(model):
    model.bag.reset_parameters()


@pytest.mark.parametrize("write", [zero, reset])
@pytest.mark.parametrize("name", LAZY)
def test_tables_that_are_written_stay_as_written(name, write):
    model = Model()
    optimizer = PAIRS[name][0](model.parameters(), lr=0.05)
    train(model, optimizer, batches(15))
    write(model)
    written = [model.bag.weight.detach().clone(), model.bag.importance.detach().clone()]
    model(IDS)
    optimizer.flush()
    assert distance(written, [model.bag.weight, model.bag.importance]) == 0


def test_rows_written_after_a_flush_cost_the_others_nothing():
    models = [Model(), Model()]
    for model, make in zip(models, PAIRS["adam"], strict=True):
        optimizer = make(model.parameters(), lr=0.05)
        for batch in batches(15):
            train(model, optimizer, [batch])
            if hasattr(optimizer, "flush"):
                optimizer.flush()
            with torch.no_grad():
                model.bag.weight[5] = 0
    assert distance(*(m.parameters() for m in models)) < BOUNDS["adam"]


def test_a_second_row_optimizer_finds_all_updates_of_the_first():
    (mine, dense), (first, _) = pair("adam")
    second = RowAdam(mine.parameters(), lr=0.05)
    assert distance(mine.parameters(), dense.parameters()) < BOUNDS["adam"]
    other = torch.optim.Adam(dense.parameters(), lr=0.05)
    train(mine, second, batches(10, seed=1))
    train(dense, other, batches(10, seed=1))
    assert_close("adam", mine.state_dict(), dense)
    assert first.state


def test_row_optimizers_take_turns():
    """Whoever steps has the rows; the other one is owed nothing then."""
    models = [Model(), Model()]
    for model, makers in zip(
        models, ((RowAdam, RowSGD), (torch.optim.Adam, torch.optim.SGD)), strict=True
    ):
        optimizers = [make(model.parameters(), lr=0.05) for make in makers]
        for i, batch in enumerate(batches(12)):
            train(model, optimizers[i // 4 % 2], [batch])
        model.state_dict()
    # Under dense Adam momentum waits while the other one steps, and so it does here.
    assert distance(*(m.parameters() for m in models)) < BOUNDS["adam"]


@pytest.mark.parametrize("later", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
def test_another_kind_of_optimizer_takes_over_while_the_old_one_lives(later):
    (mine, dense), old = pair("adam")
    for model in (mine, dense):
        optimizer = later(model.parameters(), lr=0.05)
        train(model, optimizer, batches(10, seed=1))
    assert not mine[0].bag.weight.grad.is_sparse
    assert distance(mine.parameters(), dense.parameters()) < BOUNDS["adam"]
    for model, optimizer in zip((mine, dense), old, strict=True):
        train(model, optimizer, batches(10, seed=2))  # and the old one can take it back
    assert mine[0].bag.weight.grad.is_sparse
    assert_close("adam", mine.state_dict(), dense)


def test_a_closure_makes_gradients_for_whom_it_is_called():
    """As in Lightning, where the backward pass is part of the step."""
    (mine, dense), _ = pair("adam", steps=5)
    for model in (mine, dense):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        for ids, labels in batches(5, seed=1):

            def closure(model=model, optimizer=optimizer, ids=ids, labels=labels):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(ids), labels)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert distance(mine.parameters(), dense.parameters()) < BOUNDS["adam"]


def test_layers_that_are_sparse_by_wish_stay_so():
    model = Model(sparse=True)
    old = RowAdam(model.bag.parameters())
    (ids, labels), *_ = batches(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(ids), labels).backward()
        optimizer.step()
        assert model.bag.weight.grad.is_sparse
    assert owners.owner_of(model.bag.weight) is None
    assert old is not None


def test_optimizers_of_other_models_change_nothing():
    model, other = Model(), Model()
    rows = RowAdam(model.parameters())
    train(other, torch.optim.Adam(other.parameters()), batches(1))
    (ids, labels), *_ = batches(1)
    F.cross_entropy(model(ids), labels).backward()
    assert model.bag.weight.grad.is_sparse
    assert owners.owner_of(model.bag.weight) is rows


@pytest.mark.parametrize("make", [RowSGD, RowAdagrad, RowAdam, RowAdamW])
def test_nothing_keeps_tables_or_optimizers_alive(make):
    model = Model()
    optimizer = make(model.parameters(), lr=0.01)
    train(model, optimizer, batches(2))
    table = model.bag.weight
    assert owners.owner_of(table) is optimizer
    del optimizer
    gc.collect()
    assert owners.owner_of(table) is None


@pytest.mark.parametrize("name", LAZY)
def test_an_optimizer_that_is_gone_leaves_nothing_undone(name):
    (mine, dense), optimizers = pair(name)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizers[0])  # a cycle of references
    del optimizers[0], schedule
    gc.collect()
    assert owners.owner_of(mine[0].bag.weight) is None
    assert_close(name, dict(mine.named_parameters()), dense)


def test_compiled_steps_of_other_optimizers_do_not_notice():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    layer(torch.ones(4, 3)).sum().backward()
    before = layer.weight.detach().clone()
    torch.compile(optimizer.step, backend="eager")()
    assert not torch.equal(layer.weight, before)
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert all("torch._dynamo.graph_break()" in reason for reason in breaks)  # PyTorch's own


def test_states_saved_before_betas_could_change_are_understood():
    """They had `tails` (2, n), without the logarithms of betas."""
    data = list(batches(30))
    model, other = Model(), Model()
    optimizer = RowAdam(model.parameters(), lr=0.05)
    train(model, optimizer, data[:15])
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = copy.deepcopy(torch.optim.Optimizer.state_dict(optimizer))  # rows are behind
    for entries in state["state"].values():
        if "history" in entries:
            entries["tails"] = entries.pop("history")[:2]
    train(model, optimizer, data[15:])
    with torch.no_grad():
        for name, p in other.named_parameters():
            p.copy_(weights[name])
    again = RowAdam(other.parameters(), lr=0.05)
    again.load_state_dict(state)
    train(other, again, data[15:])
    model.state_dict()
    other.state_dict()
    assert distance(model.parameters(), other.parameters()) < 1e-12
