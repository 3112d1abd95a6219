"""Row optimizers against those of torch.optim, and with what people do to optimizers."""

import copy
import io
import math

import pytest
import torch
import torch.nn.functional as F
from tests.cases.optimizers import (
    BOUNDS,
    LAZY,
    PAIRS,
    Model,
    batches,
    distance,
    train,
)

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.cpu import launch as cpu
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_, history

OURS = [ours for ours, _ in PAIRS.values()]


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sgd_and_adagrad_are_those_of_torch(name, dtype):
    ours, theirs = PAIRS[name]
    mine, dense = Model(dtype), Model(dtype)
    train(mine, ours(mine.parameters(), lr=0.1), batches(40))
    train(dense, theirs(dense.parameters(), lr=0.1), batches(40))
    assert distance(dense.parameters(), Model(dtype).parameters()) > 0.1
    bound = 1e-12 if dtype == torch.float64 else 1e-4
    assert distance(mine.parameters(), dense.parameters()) < bound


def test_rowwise_adagrad_keeps_one_accumulator_a_row():
    model = HashEmbeddingBag(400, 6, num_buckets=60, dtype=torch.float64)
    start = model.weight.detach().clone()
    optimizer = RowAdagrad(model.parameters(), lr=0.1, rowwise=True)
    squares = torch.zeros(60, 1, dtype=torch.float64)
    want = start.clone()
    for ids, _ in batches(5):
        optimizer.zero_grad()
        model(ids).sum().backward()
        gradient = model.weight.grad.to_dense()
        squares += gradient.square().mean(1, keepdim=True)
        want -= 0.1 * gradient / (squares.sqrt() + 1e-10)
        optimizer.step()
        torch.testing.assert_close(model.weight.detach(), want, rtol=1e-12, atol=1e-12)
    assert optimizer.state[model.weight]["sum"].shape == (60, 1)


@pytest.mark.parametrize("name", LAZY)
def test_rows_that_skip_steps_stay_close_to_the_dense_rule(name):
    """300 steps, a falling rate, rows that skip hundreds of steps: far less than one step apart."""
    models, rates = [Model(), Model()], []
    optimizers = [
        make(m.parameters(), lr=0.01) for make, m in zip(PAIRS[name], models, strict=True)
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 300)
        for batch in batches(300):
            train(model, optimizer, [batch])
            scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] == rates[1]
    mine, dense = models
    ids = torch.arange(200).view(40, 5)  # layers see rows caught up, without a flush
    assert distance([mine(ids)], [dense(ids)]) < BOUNDS[name]
    optimizers[0].flush()
    start = Model()
    for of, p in mine.named_parameters():
        moved = distance([dense.get_parameter(of)], [start.get_parameter(of)])
        assert distance([p], [dense.get_parameter(of)]) < BOUNDS[name] < 0.03 < moved, of


def scheduled(model, optimizer, scheduler_of, steps=64):
    scheduler = scheduler_of(optimizer)
    for batch in batches(steps):
        train(model, optimizer, [batch])
        scheduler.step()
    if hasattr(optimizer, "flush"):
        optimizer.flush()
    return model


SCHEDULES = {
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.05, total_steps=64),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(
        o, 0.01, 0.05, step_size_up=7, base_momentum=0.7, max_momentum=0.95
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", LAZY)
def test_each_skipped_step_has_its_own_rate_and_betas(name, schedule):
    mine, dense = (
        scheduled(model, make(model.parameters(), lr=0.01), SCHEDULES[schedule])
        for make, model in zip(PAIRS[name], (Model(), Model()), strict=True)
    )
    assert distance(dense.parameters(), Model().parameters()) > 0.05
    assert distance(mine.parameters(), dense.parameters()) < min(BOUNDS[name], 2e-4)


def test_betas_that_a_schedule_spoils_get_a_sentence():
    model = Model()
    optimizer = RowAdam(model.parameters())
    train(model, optimizer, batches(1))
    optimizer.param_groups[0]["betas"] = (0.9, 0.5)
    with pytest.raises(ValueError, match=r"beta1\^2 below beta2"):
        train(model, optimizer, batches(1))


@pytest.mark.parametrize("name", LAZY)
def test_the_memory_of_past_steps_is_bounded(name, monkeypatch):
    monkeypatch.setattr(history, "SHORTEST", 8)
    monkeypatch.setattr(history, "LONGEST", 32)
    mine, dense = Model(), Model()
    optimizer = PAIRS[name][0](mine.parameters(), lr=0.01)
    train(mine, optimizer, batches(120))
    assert optimizer.state[mine.bag.weight]["history"].shape == (5, 32)
    optimizer.flush()
    train(dense, PAIRS[name][1](dense.parameters(), lr=0.01), batches(120))
    assert distance(mine.parameters(), dense.parameters()) < BOUNDS[name]


def test_rows_that_nobody_touches_decay_under_adamw():
    model = Model()
    start = model.bag.importance.detach().clone()
    optimizer = RowAdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    touched = torch.zeros(len(start), dtype=torch.bool)
    for ids, labels in batches(7):
        optimizer.zero_grad()
        F.cross_entropy(model(ids), labels).backward()
        touched[model.bag.importance.grad.coalesce().indices()[0]] = True
        optimizer.step()
    model.state_dict()
    rest = model.bag.importance.detach()[~touched]
    torch.testing.assert_close(rest, start[~touched] * 0.95**7, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="lr times weight_decay must be below 1"):
        train(model, RowAdamW(model.parameters(), lr=2.0, weight_decay=0.5), batches(1))


def test_adam_that_ignored_skipped_steps_would_be_far_off():
    """The bound above means something: without catching up it is missed by far."""
    mine, dense = Model(), Model()
    optimizer = RowAdam(mine.parameters(), lr=0.01)
    optimizer.before_read = lambda table, rows: None
    train(mine, optimizer, batches(100))
    train(dense, torch.optim.Adam(dense.parameters(), lr=0.01), batches(100))
    assert distance(mine.parameters(), dense.parameters()) > 0.05


def accuracy_after(optimizer_of, seed):
    g = torch.Generator().manual_seed(seed)
    ids = (torch.rand(2400, 12, generator=g) ** -1.2).long()
    topics = torch.randn(ids.max() + 1, 4, generator=g)
    labels = topics[ids].sum(1).argmax(1)  # each word votes for a topic
    model = Model(torch.float32, K=20_000, B=2000, d=8, classes=4)
    optimizer = optimizer_of(model.parameters(), lr=0.02)
    for _ in range(3):
        for part, truth in zip(ids[:2000].split(50), labels[:2000].split(50), strict=True):
            train(model, optimizer, [(part, truth)])
    with torch.no_grad():
        return (model(ids[2000:]).argmax(1) == labels[2000:]).float().mean().item()


def test_adam_reaches_the_accuracy_of_dense_adam():
    for seed in (0, 1):
        mine = accuracy_after(RowAdam, seed)
        dense = accuracy_after(torch.optim.Adam, seed)
        assert dense > 0.5  # chance is 1/4
        assert abs(mine - dense) <= 0.01


@pytest.mark.parametrize("ours", OURS, ids=list(PAIRS))
def test_no_dense_gradient_and_untouched_rows_stay(ours):
    model = Model()
    before = copy.deepcopy(model.state_dict())
    optimizer = ours(model.parameters(), lr=0.1)
    ids, labels = next(batches(1))
    F.cross_entropy(model(ids), labels).backward()
    for table in (model.bag.weight, model.bag.importance):
        assert table.grad.is_sparse
    rows = model.bag.importance.grad._indices()[0]
    assert len(rows) == len(rows.unique()) < 40
    optimizer.step()
    moved = (model.bag.importance != before["bag.importance"]).any(1)
    assert moved.nonzero().squeeze(1).tolist() == rows.tolist()


@pytest.mark.parametrize("ours", OURS, ids=list(PAIRS))
def test_threads_do_not_change_a_bit(ours, monkeypatch):
    monkeypatch.setattr(cpu, "_NUMBERS_PER_WORKER", 1)
    count, results = torch.get_num_threads(), []
    for threads in (1, 2, 8, 8):
        torch.set_num_threads(threads)
        model = Model(torch.float32)
        optimizer = ours(model.parameters(), lr=0.1)
        train(model.bag, optimizer, [(ids, labels) for ids, labels in batches(12)])
        optimizer.flush()
        results.append(model.bag.state_dict())
    torch.set_num_threads(count)
    for other in results[1:]:
        assert all(torch.equal(results[0][name], other[name]) for name in other)


@pytest.mark.parametrize("name", PAIRS)
def test_a_resumed_run_is_the_same_to_the_bit(name):
    data = list(batches(30))
    ours, _ = PAIRS[name]
    model = Model(torch.float32)
    optimizer = ours(model.parameters(), lr=0.1)
    train(model, optimizer, data[:15])
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, data[15:])

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = Model(torch.float32)
    resumed.load_state_dict(saved["model"])
    again = ours(resumed.parameters(), lr=0.5)
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, data[15:])
    for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    for state, other in zip(optimizer.state.values(), again.state.values(), strict=True):
        assert {k: getattr(v, "dtype", v) for k, v in state.items()} == {
            k: getattr(v, "dtype", v) for k, v in other.items()
        }


@pytest.mark.parametrize("name", PAIRS)
def test_parameter_groups_and_weight_decay_of_dense_layers(name):
    ours, theirs = PAIRS[name]
    models = [Model(), Model()]
    for model, cls in zip(models, (ours, theirs), strict=True):
        groups = [
            {"params": model.bag.parameters()},
            {"params": model.out.parameters(), "lr": 0.02, "weight_decay": 0.1},
        ]
        optimizer = cls(groups, lr=0.05)
        train(model, optimizer, batches(20))
        if hasattr(optimizer, "flush"):
            optimizer.flush()
    assert distance(*(m.out.parameters() for m in models)) < 1e-4
    assert distance(*(m.parameters() for m in models)) < 1e-3


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_add_up_over_two_backward_calls(name):
    ours, theirs = PAIRS[name]
    models = [Model(), Model()]
    for model, cls in zip(models, (ours, theirs), strict=True):
        optimizer = cls(model.parameters(), lr=0.05)
        data = list(batches(10))
        for pair in zip(data[::2], data[1::2], strict=True):
            optimizer.zero_grad()
            for ids, labels in pair:
                F.cross_entropy(model(ids), labels).backward()
            optimizer.step()
        if hasattr(optimizer, "flush"):
            optimizer.flush()
    assert distance(*(m.parameters() for m in models)) < 1e-4


def test_closure():
    model = Model()
    optimizer = RowSGD(model.parameters(), lr=0.1)
    ids, labels = next(batches(1))

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.01, 1e9])
@pytest.mark.parametrize("clip", [clip_grad_norm_, torch.nn.utils.clip_grad_norm_])
def test_clipping_by_norm(clip, max_norm, norm_type, foreach):
    """By ours, and by PyTorch's, which Lightning, Accelerate and Hugging Face's Trainer call."""
    mine, dense = Model(), Model()
    optimizer = RowSGD(mine.parameters(), lr=1.0)
    other = torch.optim.SGD(dense.parameters(), lr=1.0)
    ids, labels = next(batches(1))
    for model in (mine, dense):
        for _ in range(2):
            F.cross_entropy(model(ids), labels).backward()
    got = clip(mine.parameters(), max_norm, norm_type=norm_type, foreach=foreach)
    options = {"norm_type": norm_type, "foreach": foreach}
    want = torch.nn.utils.clip_grad_norm_(dense.parameters(), max_norm, **options)
    torch.testing.assert_close(got, want)
    optimizer.step()
    other.step()
    assert distance(mine.parameters(), dense.parameters()) < 1e-12


@pytest.mark.parametrize("clip", [clip_grad_norm_, torch.nn.utils.clip_grad_norm_])
def test_clipping_of_one_table_and_of_gradients_that_are_not_finite(clip):
    model = Model()
    optimizer = RowSGD(model.parameters())
    ids, labels = next(batches(1))
    F.cross_entropy(model(ids), labels).backward()
    table = model.bag.weight
    before = table.grad.to_dense()
    assert before.norm() > 1e-3
    torch.testing.assert_close(clip(table, 1e-3), before.norm())
    torch.testing.assert_close(
        table.grad.to_dense().norm(), torch.tensor(1e-3).double(), rtol=1e-2, atol=0
    )
    assert clip([], 1.0) == 0
    table.grad = table.grad.coalesce() * math.inf
    assert not clip([table, model.out.weight], 1.0).isfinite()
    with pytest.raises(RuntimeError, match="non-finite"):
        clip(table, 1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="norm_type must be from 0 on for sparse gradients"):
        clip(table, 1.0, norm_type=-math.inf)
    with pytest.warns(UserWarning, match="is an empty generator"):
        clip((p for p in ()), 1.0)
    assert optimizer is not None


@pytest.mark.parametrize("foreach", [None, False])
def test_clipping_by_value(foreach):
    models = [Model(), Model()]
    for model, make in zip(models, (RowSGD, torch.optim.SGD), strict=True):
        optimizer = make(model.parameters(), lr=1.0)
        for ids, labels in batches(2):  # two backward passes: rows come twice in a gradient
            F.cross_entropy(model(ids), labels).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
        assert model.bag.weight.grad.to_dense().abs().max() == 0.01
        optimizer.step()
    assert distance(*(m.parameters() for m in models)) < 1e-12


def test_grad_scaler_and_sparse_gradients():
    models = [Model(torch.float32), Model(torch.float32)]
    for model, make in zip(models, (RowSGD, torch.optim.SGD), strict=True):
        optimizer = make(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for ids, labels in batches(5):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(ids), labels)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
    assert distance(models[1].parameters(), Model(torch.float32).parameters()) > 0.01
    assert distance(*(m.parameters() for m in models)) < 1e-5


def test_weight_decay_of_tables_is_refused_in_words():
    model = Model()
    optimizer = RowAdam(model.parameters(), weight_decay=0.1)
    with pytest.raises(ValueError, match="weight_decay does not work with row gradients"):
        train(model, optimizer, batches(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ours", OURS, ids=list(PAIRS))
def test_half_precision_tables(ours, dtype):
    table = HashEmbedding(100, 4, num_buckets=20, importance=False, dtype=dtype)
    twin = HashEmbedding(100, 4, num_buckets=20, importance=False)
    twin.load_state_dict(table.state_dict())
    for layer in (table, twin):
        layer(torch.tensor([1, 2, 2])).sum().backward()
        optimizer = ours(layer.parameters(), lr=0.1)
        optimizer.step()
    assert torch.equal(table.weight, twin.weight.to(dtype))
    state = optimizer.state[twin.weight]
    assert all(v.dtype != dtype for v in state.values() if isinstance(v, torch.Tensor))


def test_dense_gradients_in_between_are_full_steps():
    """A table may get a dense gradient now and then, as from a penalty on all of it."""
    mine, dense = Model(), Model()
    optimizers = [
        RowAdam(mine.parameters(), lr=0.05),
        torch.optim.Adam(dense.parameters(), lr=0.05),
    ]
    for step, (ids, labels) in enumerate(batches(30)):
        for model, optimizer in zip((mine, dense), optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids), labels)
            if step % 10 == 0:
                if model is mine:
                    optimizer.flush()  # the table is read past the layer
                loss = loss + model.bag.weight.square().sum()
            loss.backward()
            optimizer.step()
    optimizers[0].flush()
    assert distance(mine.parameters(), dense.parameters()) < 1e-3


def test_gradients_are_dense_again_when_the_optimizer_is_gone():
    model = Model()
    optimizer = RowSGD(model.parameters())
    ids, _ = next(batches(1))
    del optimizer
    model(ids).sum().backward()
    assert not model.bag.weight.grad.is_sparse
    assert copy.deepcopy(model)(ids).shape == (8, 3)


def test_only_the_given_parameters_have_sparse_gradients():
    model = Model()
    optimizer = RowSGD([model.bag.importance])
    ids, _ = next(batches(1))
    model(ids).sum().backward()
    assert model.bag.importance.grad.is_sparse
    assert not model.bag.weight.grad.is_sparse
    optimizer.step()


# Dynamo itself looks at the .grad of what the layer returns.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_models_break_the_graph_and_train():
    torch._dynamo.reset()
    mine, plain = Model(), Model()
    compiled = torch.compile(mine, backend="eager")
    optimizer = RowAdam(mine.parameters(), lr=0.05)
    train(compiled, optimizer, batches(3))
    assert mine.bag.weight.grad.is_sparse
    other = RowAdam(plain.parameters(), lr=0.05)
    train(plain, other, batches(3))
    optimizer.flush()
    other.flush()
    assert distance(mine.parameters(), plain.parameters()) < 1e-12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -1.0}, "lr must be a number from 0 on, found -1.0"),
        ({"betas": (0.9, 0.5)}, "beta1.2 below beta2"),
        ({"eps": float("nan")}, "eps must be"),
    ],
)
def test_bad_arguments_get_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        RowAdam(Model().parameters(), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"momentum": 1.0}, "momentum must be from 0 to below 1, found 1.0"),
        ({"nesterov": True}, "nesterov needs a momentum above 0"),
    ],
)
def test_bad_momentum_gets_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        RowSGD(Model().parameters(), **options)
