"""On a real GPU: all shapes and precisions, layers and optimizers as users have them."""

import copy
import itertools
import math
import random
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.cases.optimizers import BOUNDS, LAZY, PAIRS, Model, batches, distance, train
from tests.cases.triton import DEVICE, Case, assert_same, kernels_on
from torch import nn

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.hashing.spec import HashSpec
from hashembed.nn.cpu.row_kernels import record_width
from hashembed.nn.gpu import rows as cuda_rows
from hashembed.nn.gpu.kernels.layout import HISTORY_ROWS, RuleKind
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops import reference
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA GPU"),
]
SEED = random.randrange(2**31)  # fresh inputs in every run; a failure names them


@pytest.fixture(autouse=True)
def poisoned_memory():
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def zipf(*shape, vocabulary=1e6):
    return (vocabulary ** torch.rand(shape, dtype=torch.float64)).long()


WIDTHS = [1, 2, 3, 7, 16, 20, 31, 64, 100, 128, 200, 256, 300, 512, 777, 1024]


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_widths(d, dtype):
    case = Case(HashSpec(101, 13, 2), d, dtype=dtype)
    rtol = 1e-12 if dtype == torch.float64 else 1e-4
    assert_same(case, rtol, keep=True, weights=True)
    assert_same(case, rtol, bag=False)


FORMS = itertools.product((1, 2, 3, 8), ("sum", "concat"), ("off", "on", "append"))
INDEXINGS = itertools.cycle(["independent", "shared", "identity", "identity", "independent"])


@pytest.mark.parametrize(
    ("k", "aggregation", "importance", "indexing"),
    [(*form, indexing) for form, indexing in zip(FORMS, INDEXINGS, strict=False)],
)
def test_forms(k, aggregation, importance, indexing):
    form = {"importance": importance, "aggregation": aggregation, "mode": "mean"}
    case = Case(HashSpec(40, 9, k, indexing), 5, **form)
    assert_same(case, 1e-11, keep=True)
    assert_same(case, 1e-11, bag=False, keep=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [1, 20, 33, 256, 1024])
def test_half_precision_is_rounded_once(dtype, d):
    case = Case(HashSpec(101, 13, 2), d, dtype=dtype, importance="append")
    got = kernels_on(case, keep=True)
    exact = case(reference, keep=True, dtype=torch.float64)
    half, single = torch.finfo(dtype), torch.finfo(torch.float32)
    for mine, want in zip(got, exact, strict=True):
        size = max(1.0, want.abs().max().item())
        bound = want.abs() * half.eps / 2 + 100 * single.eps * size + half.tiny * half.eps
        assert ((mine.double() - want).abs() <= bound).all()


@pytest.mark.parametrize(
    ("bags", "length"), [(1, 1), (1, 100_000), (5000, 3), (3000, 100), (200_000, 1)]
)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_layers_against_the_reference_on_fresh_inputs(bags, length, mode):
    layer = HashEmbeddingBag(5000, 20, num_buckets=500, mode=mode, padding_idx=3, device="cuda")
    layer = layer.double()
    nn.init.normal_(layer.importance)
    ids = zipf(bags, length).cuda()
    weights = torch.rand(bags, length).cuda().double() if mode == "sum" else None
    out = layer(ids, per_sample_weights=weights)
    upstream = torch.randn(out.shape, dtype=torch.float64).cuda()
    got = [out, *torch.autograd.grad(out, list(layer.parameters()), upstream)]
    parameters = [p.detach().requires_grad_() for p in layer.parameters()]
    want_out = reference.hash_embedding_bag(
        ops.id_keys(ids.reshape(-1)),
        torch.arange(bags + 1, device="cuda") * length,
        *parameters,
        layer.hash_seeds,
        layer.spec,
        per_sample_weights=None if weights is None else weights.reshape(-1),
        keep=(ids != 3).reshape(-1),
        mode=mode,
    )
    want = [want_out, *torch.autograd.grad(want_out, parameters, upstream)]
    for mine, wanted in zip(got, want, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9 * wanted.abs().max().item())


def test_bags_of_any_length():
    lengths = torch.cat([torch.randint(0, 300, (50,)), torch.zeros(5, dtype=torch.int64)])
    case = Case(HashSpec(999, 77, 3), 20, lengths=lengths[torch.randperm(55)].tolist())
    assert_same(case, 1e-11, keep=True, weights=True)


def test_the_same_bits_in_every_run():
    layer = HashEmbeddingBag(100_000, 20, device="cuda")
    ids = zipf(2000, 100).cuda()
    results = []
    for _ in range(3):
        layer.zero_grad()
        layer(ids).square().sum().backward()
        results.append([p.grad.clone() for p in layer.parameters()])
        torch.cuda.empty_cache()
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_compile_without_graph_breaks(cls):
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()
    layer = cls(300, 4, padding_idx=5, device="cuda")
    ids = zipf(6, 9).cuda()
    results = []
    for module in (layer, torch.compile(layer, fullgraph=True)):
        layer.zero_grad()
        module(ids).square().sum().backward()
        results.append([p.grad.clone() for p in layer.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_more_than_2_to_the_31_numbers():
    """Rows that lie far behind the reach of 32-bit addresses."""
    layer = HashEmbeddingBag(
        1_150_000_000,
        20,
        num_buckets=110_000_000,
        device="cuda",
        generator=torch.Generator("cuda"),
        sparse=True,
    )
    nn.init.normal_(layer.importance)
    assert min(p.numel() for p in layer.parameters()) > 2**31
    ids = torch.randint(-(2**62), 2**62, (500, 40), device="cuda")
    out = layer(ids)
    upstream = torch.randn(out.shape, device="cuda")
    got = [out, *torch.autograd.grad(out, list(layer.parameters()), upstream)]
    want_out = reference.hash_embedding_bag(
        ops.id_keys(ids.reshape(-1)),
        torch.arange(501, device="cuda") * 40,
        layer.weight,
        layer.importance,
        layer.hash_seeds,
        layer.spec,
        sparse=True,
    )
    want = [want_out, *torch.autograd.grad(want_out, list(layer.parameters()), upstream)]
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
    for mine, wanted in zip(got[1:], want[1:], strict=True):
        wanted = wanted.coalesce()
        assert torch.equal(mine.indices(), wanted.indices())
        assert int(mine.indices().max()) * mine.shape[1] > 2**31
        torch.testing.assert_close(mine.values(), wanted.values(), rtol=1e-5, atol=1e-5)


OPTIMIZERS = {
    "sgd": RowSGD,
    "adagrad": RowAdagrad,
    "rowwise": lambda p, **options: RowAdagrad(p, rowwise=True, **options),
    "adam": RowAdam,
    "adamw": lambda p, **options: RowAdamW(p, weight_decay=0.3, **options),
    "momentum": lambda p, **options: RowSGD(p, momentum=0.9, **options),
    "nesterov": lambda p, **options: RowSGD(p, momentum=0.9, nesterov=True, **options),
}


def here(data):
    return [(ids.cuda(), labels.cuda()) for ids, labels in data]


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("padding", [None, 2])
def test_row_optimizers_train_as_on_the_cpu(name, in_backward, padding):
    make = OPTIMIZERS[name]
    cpu_model, gpu_model = Model(padding_idx=padding), Model(padding_idx=padding).cuda()
    on_cpu = make(cpu_model.parameters(), lr=0.05)
    on_gpu = make(gpu_model.parameters(), lr=0.05, in_backward=in_backward)
    train(cpu_model, on_cpu, batches(40))
    train(gpu_model, on_gpu, here(batches(40)))
    assert (gpu_model.bag.weight.grad is None) == in_backward
    # The CPU lets the rows of padding catch up, too: under Adam at other times than the GPU, and
    # its approximation of eps is as good as this.
    bound = 1e-5 if padding is not None and name in ("adam", "adamw") else 1e-9
    ids = torch.arange(200).view(40, 5)
    assert distance([gpu_model(ids.cuda()).cpu()], [cpu_model(ids)]) < bound
    on_cpu.flush()
    on_gpu.flush()
    assert distance([p.cpu() for p in gpu_model.parameters()], cpu_model.parameters()) < bound
    assert distance(cpu_model.parameters(), Model().parameters()) > 0.05


def test_adam_stays_close_to_dense_adam():
    mine, dense = Model().cuda(), Model()
    optimizer = RowAdam(mine.parameters(), lr=0.01, in_backward=True)
    train(mine, optimizer, here(batches(300)))
    train(dense, torch.optim.Adam(dense.parameters(), lr=0.01), batches(300))
    ids = torch.arange(200).view(40, 5)
    assert distance([mine(ids.cuda()).cpu()], [dense(ids)]) < 1e-3


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(["cpu", "cuda"], repeat=2)))
def test_state_moves_between_devices(name, first, second):
    make, data = OPTIMIZERS[name], list(batches(30))
    whole = Model()
    uninterrupted = make(whole.parameters(), lr=0.05)
    train(whole, uninterrupted, data[:15])
    uninterrupted.flush()  # as saving does
    train(whole, uninterrupted, data[15:])
    model = Model().to(first)
    optimizer = make(model.parameters(), lr=0.05)
    train(model, optimizer, [(i.to(first), y.to(first)) for i, y in data[:15]])
    saved = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    model = Model().to(second)
    model.load_state_dict(saved[1])
    optimizer = make(model.parameters(), lr=0.05)
    optimizer.load_state_dict(saved[0])
    train(model, optimizer, [(i.to(second), y.to(second)) for i, y in data[15:]])
    ids = torch.arange(200).view(40, 5)
    assert distance([model(ids.to(second)).cpu()], [whole(ids)]) < 1e-9
    uninterrupted.flush()


def history_of(now):
    """A history in which betas were 0.9 and 0.999 all the time."""
    history = torch.zeros(HISTORY_ROWS, cuda_rows.RING, dtype=torch.float64).cuda()
    for row, beta in ((2, 0.9), (3, 0.999)):
        history[row, : now + 1] = torch.arange(now + 1) * math.log2(beta)
    return history


@pytest.mark.parametrize("d", [1, 2, 6, 16, 20, 40, 100])
def test_rows_that_many_tokens_read_catch_up_once(d):
    """If several threads find a row behind, exactly one moves it."""
    rows, now = 3000, 5
    table = torch.randn(rows, d).cuda()
    records = torch.zeros(rows, record_width(d)).cuda()
    records[:, : 2 * d].uniform_()
    then = torch.randint(0, now + 1, (rows,)).cuda()
    records.view(torch.int32)[:, 2 * d] = then.int()
    history = history_of(now)
    history[0, :now].uniform_()
    history[1] = 1e-3
    keys = zipf(200_000, vocabulary=rows - 1).int().cuda()
    read = torch.zeros(rows, dtype=torch.bool).cuda()
    read[keys.long()] = True
    m, v = records[:, :d].clone(), records[:, d : 2 * d].clone()
    tail, eps = history[:2, then].float().unsqueeze(-1)
    want = torch.where(((then > 0) & read)[:, None], table - tail * m / (v.sqrt() + eps), table)
    numbers, step = cuda_rows.make_numbers("cuda"), torch.tensor(now).cuda()
    rule = cuda_rows.Rule(RuleKind.ADAM, table, records, numbers, step, history)
    cuda_rows.catch_up(rule, keys)
    torch.testing.assert_close(table, want)
    skipped = torch.where((then > 0) & read, now - then, 0)[:, None]
    torch.testing.assert_close(records[:, :d], m * 0.9**skipped)
    torch.testing.assert_close(records[:, d : 2 * d], v * 0.999**skipped)
    stamps = records.view(torch.int32)[:, 2 * d]
    assert torch.equal(stamps.long(), torch.where(read, now, then))


@pytest.mark.parametrize("d", [2, 20, 100, 300])
def test_rows_that_are_behind_catch_up_in_the_update_itself(d):
    """Threads that share a row agree about how far it was behind."""
    size, now = 300_000, 5
    rows = torch.randperm(size)[: size // 2].sort().values.cuda()
    values = torch.randn(len(rows), d).cuda()
    table, records = torch.randn(size, d).cuda(), torch.rand(size, record_width(d)).cuda()
    stamps = torch.randint(0, now + 1, (size,), dtype=torch.int32)
    records[stamps == 0] = 0  # a row that was never touched has no momentum
    records.view(torch.int32)[:, 2 * d] = stamps.cuda()
    history = history_of(now)
    history[:2].uniform_()
    history[0, now] = 0  # of rows that are up to date
    history[1] += 0.1
    results = []
    for behind in (True, False):
        numbers, step = cuda_rows.make_numbers("cuda"), torch.tensor(now).cuda()
        state = table.clone(), records.clone(), numbers, step, history
        rule = cuda_rows.Rule(RuleKind.ADAM, *state)
        if not behind:
            cuda_rows.catch_up(rule, rows)
        cuda_rows.begin_step(rule, 0.1, cuda_rows.Numbers(1e-8, math.log2(0.9), math.log2(0.999)))
        cuda_rows.update_rows(rule, rows, values, behind=behind)
        results.append((rule.table, rule.state))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert torch.equal(*(state.view(torch.int32)[:, 2 * d] for _, state in results))


def test_dense_gradients_after_sparse_ones():
    mine, dense = Model().cuda(), Model()
    optimizer, data = RowAdam(mine.parameters(), lr=0.01), list(batches(20))
    train(mine, optimizer, here(data[:10]))
    for ids, labels in here(data[10:]):
        optimizer.zero_grad()
        F.cross_entropy(mine(ids), labels).backward()
        for p in (mine.bag.weight, mine.bag.importance):
            p.grad = p.grad.to_dense()
        optimizer.step()
    train(dense, torch.optim.Adam(dense.parameters(), lr=0.01), data)
    assert distance([p.cpu() for p in mine.parameters()], dense.parameters()) < 1e-3


@pytest.mark.parametrize("make", [RowSGD, RowAdagrad, RowAdam])
def test_a_step_in_a_cuda_graph(make):
    torch.use_deterministic_algorithms(False)
    data = here(batches(12, size=64))
    models = [Model(torch.float32).cuda() for _ in range(2)]
    rate = torch.tensor(0.05, device="cuda")
    optimizers = [make(model.bag.parameters(), lr=rate, in_backward=True) for model in models]

    def step(model, ids, labels):
        F.cross_entropy(model(ids), labels).backward()

    ids, labels = (t.clone() for t in data[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(models[1], ids, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(models[1], ids, labels)
    for _ in range(2):
        step(models[0], ids, labels)
    for i, (new_ids, new_labels) in enumerate(data):
        rate.fill_(0.05 / (i + 1))
        step(models[0], new_ids, new_labels)
        ids.copy_(new_ids)
        labels.copy_(new_labels)
        graph.replay()
    for optimizer in optimizers:
        optimizer.flush()
    for a, b in zip(models[0].bag.parameters(), models[1].bag.parameters(), strict=True):
        assert torch.equal(a, b)


def graph_of_the_documentation() -> str:
    """The step in a CUDA graph as docs/guides/gpu.md shows it, with a smaller table."""
    page = (Path(__file__).parents[3] / "docs" / "guides" / "gpu.md").read_text()
    found = re.search(r"^model = .*?graph\.replay\(\)", page, re.M | re.S)
    assert found
    return found[0].replace("10_000_000", "10_000")


def test_the_graph_of_the_documentation():
    torch.use_deterministic_algorithms(False)
    data = here([(zipf(4096, 100), torch.randint(0, 4, (4096,))) for _ in range(6)])
    names = {"torch": torch, "nn": nn, "F": F, "batches": data}
    names |= {"HashEmbeddingBag": HashEmbeddingBag, "RowAdam": RowAdam}
    torch.manual_seed(0)
    exec(compile(graph_of_the_documentation(), "docs/guides/gpu.md", "exec"), names)
    torch.manual_seed(0)
    plain = nn.Sequential(HashEmbeddingBag(10_000, 20), nn.Linear(20, 4)).cuda()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.001)
    for ids, labels in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(ids), labels)
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(names["loss"], loss, rtol=1e-4, atol=1e-5)
    names["tables"].flush()
    for a, b in zip(names["model"].parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize("name", LAZY)
def test_schedules_of_betas_and_momentum(name, in_backward):
    ours, theirs = PAIRS[name]
    mine, dense = Model().cuda(), Model()
    optimizer = ours(mine.parameters(), lr=0.01, in_backward=in_backward)
    other = theirs(dense.parameters(), lr=0.01)
    for model, steps, data in (
        (mine, optimizer, here(batches(64))),
        (dense, other, batches(64)),
    ):
        schedule = torch.optim.lr_scheduler.OneCycleLR(steps, max_lr=0.05, total_steps=64)
        for batch in data:
            train(model, steps, [batch])
            schedule.step()
    state = {key: value.cpu() for key, value in mine.state_dict().items()}  # without a flush
    wanted = dense.state_dict()
    assert all(distance([state[k]], [wanted[k]]) < min(BOUNDS[name], 2e-4) for k in wanted)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("clip", [clip_grad_norm_, torch.nn.utils.clip_grad_norm_])
def test_clipping_of_sparse_gradients(clip, norm_type):
    mine, dense = Model().cuda(), Model().cuda()
    optimizers = [RowSGD(mine.parameters(), lr=1.0), torch.optim.SGD(dense.parameters(), lr=1.0)]
    norms = []
    for model, clipping in ((mine, clip), (dense, torch.nn.utils.clip_grad_norm_)):
        for ids, labels in here(batches(2)):
            F.cross_entropy(model(ids), labels).backward()
        norms.append(clipping(model.parameters(), 0.01, norm_type=norm_type))
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.001)
    assert mine.bag.weight.grad.is_sparse
    torch.testing.assert_close(*norms)
    for optimizer in optimizers:
        optimizer.step()
    assert distance(mine.parameters(), dense.parameters()) < 1e-12


def test_grad_scaler_and_sparse_gradients():
    models = [Model(torch.float32).cuda() for _ in range(2)]
    for model, make in zip(models, (RowSGD, torch.optim.SGD), strict=True):
        optimizer, scaler = make(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
        for ids, labels in here(batches(5)):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(ids), labels)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert distance(*(m.parameters() for m in models)) < 1e-4


def test_a_layer_used_twice_in_a_cuda_graph():
    torch.use_deterministic_algorithms(False)
    data = here(batches(10, size=64))
    models = [Model(torch.float32).cuda() for _ in range(2)]
    optimizers = [RowAdam(m.bag.parameters(), lr=0.01, in_backward=True) for m in models]

    def step(model, ids, labels):
        F.cross_entropy(model.out(model.bag(ids) + model.bag(ids + 1)), labels).backward()

    ids, labels = (t.clone() for t in data[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(models[1], ids, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(models[1], ids, labels)
    for _ in range(2):
        step(models[0], ids, labels)
    for new_ids, new_labels in data:
        step(models[0], new_ids, new_labels)
        ids.copy_(new_ids)
        labels.copy_(new_labels)
        graph.replay()
    states = [model.bag.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert len(optimizers) == 2


@pytest.mark.parametrize("in_backward", [False, True])
def test_restored_weights_and_an_optimizer_that_takes_over(in_backward):
    mine, dense = Model().cuda(), Model().cuda()
    for model, make in (
        (mine, lambda p: RowAdam(p, lr=0.05, in_backward=in_backward)),
        (dense, lambda p: torch.optim.Adam(p, lr=0.05)),
    ):
        optimizer = make(model.parameters())
        train(model, optimizer, here(batches(10)))
        best = copy.deepcopy(model.state_dict())
        train(model, optimizer, here(batches(10, seed=1)))
        model.load_state_dict(best)
        model(torch.arange(200, device="cuda").view(40, 5))
        assert all(torch.equal(p, best[name]) for name, p in model.named_parameters())
        train(model, optimizer, here(batches(10, seed=2)))
        if not in_backward:
            later = torch.optim.AdamW(model.parameters(), lr=0.05)  # while the old one lives
            train(model, later, here(batches(5, seed=3)))
        model.state_dict()
    assert distance(mine.parameters(), dense.parameters()) < 1e-3


def test_a_table_that_was_updated_meanwhile_is_refused():
    model = Model().cuda()
    optimizer = RowAdam(model.parameters(), in_backward=True)
    ids = zipf(8, 5).cuda()
    first, second = model(ids).sum(), model(ids).square().sum()
    first.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.backward()
    assert optimizer.state[model.bag.weight]["step"] == 1


def test_in_backward_refuses_weight_decay():
    model = Model().cuda()
    optimizer = RowSGD(model.parameters(), weight_decay=0.1, in_backward=True)
    with pytest.raises(ValueError, match="weight_decay does not work with row gradients"):
        model(zipf(8, 5).cuda()).sum().backward()
    assert optimizer is not None


def test_wide_tables_go_to_the_reference():
    layer = HashEmbedding(50, 1025, num_buckets=9, device="cuda")
    ids = zipf(20).cuda()
    out = layer(ids)
    torch.testing.assert_close(out, layer.cpu()(ids.cpu()).cuda())
