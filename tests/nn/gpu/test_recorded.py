"""Recorded calls: the same bits as without CUDA graphs, whatever happens between the steps."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from tests.cases.optimizers import Model
from tests.cases.triton import DEVICE

from hashembed.nn.ops import recorded
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA GPU"),
]

NEVER = 10**9
MAKERS = {
    "adam": lambda p: RowAdam(p, lr=0.01, in_backward=True),
    "adamw": lambda p: RowAdamW(p, lr=0.01, in_backward=True),
    "adagrad": lambda p: RowAdagrad(p, lr=0.01, in_backward=True),
    "rowwise": lambda p: RowAdagrad(p, lr=0.01, rowwise=True, in_backward=True),
    "sgd": lambda p: RowSGD(p, lr=0.01, in_backward=True),
    "nesterov": lambda p: RowSGD(p, lr=0.01, momentum=0.9, nesterov=True, in_backward=True),
}


def data(count, bags=12, length=7):
    g = torch.Generator().manual_seed(3)
    ids = (1e5 ** torch.rand(count, bags, length, generator=g, dtype=torch.float64)).long()
    return [(some.cuda(), (torch.arange(bags) % 3).cuda()) for some in ids]


class Training:
    """A model that trains, and what has become of it."""

    def __init__(self, make, dtype=torch.float32, **options):
        torch.manual_seed(1)
        self.model = Model(K=200, B=40, d=5, **options).cuda().to(dtype)
        self.optimizer = make(self.model.parameters())

    def step(self, ids, labels, vectors=None):
        self.optimizer.zero_grad()
        vectors = self.model.bag(ids) if vectors is None else vectors
        F.cross_entropy(self.model.out(vectors).float(), labels).backward()
        self.optimizer.step()

    @property
    def recorder(self):
        return self.optimizer._tracked[id(self.model.bag.weight)].recorder

    def result(self):
        found = dict(self.model.state_dict())
        for i, state in self.optimizer.state_dict()["state"].items():
            found |= {f"{i} {name}": value for name, value in state.items()}
        return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def assert_same_bits(scenario, monkeypatch, min_graphs=1):
    """Run a scenario with records and without."""
    monkeypatch.setattr(recorded, "REPEATS", NEVER)
    want = scenario().result()
    monkeypatch.undo()
    made = []
    init = recorded.Graphs.__init__
    monkeypatch.setattr(
        recorded.Graphs, "__init__", lambda self, *a: (made.append(1), init(self, *a))[1]
    )
    got = scenario().result()
    monkeypatch.undo()
    assert len(made) >= min_graphs
    assert want.keys() == got.keys()
    for name, value in want.items():
        assert torch.equal(value, got[name]), name


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_as_without_graphs(name, dtype, monkeypatch):
    def scenario():
        training = Training(MAKERS[name], dtype)
        for ids, labels in data(12):
            training.step(ids, labels)
        return training

    assert_same_bits(scenario, monkeypatch)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "mean", "padding_idx": 1},
        {"aggregation": "concat"},
        {"append_importance": True},
        {"importance": False},
        {"indexing": "shared", "num_hashes": 3},
    ],
    ids=str,
)
def test_every_form(options, monkeypatch):
    def scenario():
        training = Training(MAKERS["adam"])
        bag = type(training.model.bag)
        torch.manual_seed(2)
        layer = bag(200, 5, num_buckets=40, seed=1, device="cuda", **options)
        training.model.bag = layer
        training.model.out = torch.nn.Linear(layer.output_dim, 3, device="cuda")
        training.optimizer = MAKERS["adam"](training.model.parameters())
        for ids, labels in data(10):
            training.step(ids, labels)
        return training

    assert_same_bits(scenario, monkeypatch)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_rates_follow_a_schedule(name, monkeypatch):
    def scenario():
        training = Training(MAKERS[name])
        scheduler = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.7)
        for ids, labels in data(12):
            training.step(ids, labels)
            scheduler.step()
        return training

    assert_same_bits(scenario, monkeypatch)


def test_a_rate_on_the_gpu(monkeypatch):
    def scenario():
        rate = torch.tensor(0.01, device="cuda")
        training = Training(lambda p: RowAdam(p, lr=rate, in_backward=True))
        for number, (ids, labels) in enumerate(data(12)):
            rate.fill_(0.01 / (1 + number))
            training.step(ids, labels)
        return training

    assert_same_bits(scenario, monkeypatch)


def test_offsets_and_weights_that_change(monkeypatch):
    def scenario():
        training = Training(MAKERS["adam"])
        g = torch.Generator().manual_seed(5)
        for ids, labels in data(12):
            flat = ids.reshape(-1)
            offsets = torch.randint(0, len(flat), (len(labels),), generator=g).sort().values
            offsets[0] = 0
            weights = torch.rand(len(flat), generator=g).cuda()
            training.step(ids, labels, training.model.bag(flat, offsets.cuda(), weights))
        return training

    assert_same_bits(scenario, monkeypatch)


EVENTS = {}


def event(function):
    EVENTS[function.__name__] = function
    return function


@event
def evaluation(training, ids, labels):
    with torch.no_grad():
        training.model.bag(ids.flip(0) + 1)


@event
def another_size(training, ids, labels):
    training.step(ids[:5], labels[:5])


@event
def another_stream(training, ids, labels):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        training.step(ids, labels)
    torch.cuda.current_stream().wait_stream(stream)


@event
def a_layer_used_twice(training, ids, labels):
    bag = training.model.bag
    training.step(ids, labels, bag(ids) * bag(ids + 1))


@event
def a_graph_that_is_never_used(training, ids, labels):
    training.model.bag(ids)


@event
def a_graph_that_stays(training, ids, labels):
    training.kept = training.model.bag(ids)
    training.optimizer.flush()


@event
def weights_that_are_written(training, ids, labels):
    with torch.no_grad():
        training.model.bag.weight.mul_(0.5)


@event
def a_table_that_moves(training, ids, labels):
    bag = training.model.bag
    training.optimizer.flush()
    bag.weight.data = bag.weight.data.clone()


@event
def a_state_that_is_loaded(training, ids, labels):
    training.optimizer.load_state_dict(training.optimizer.state_dict())


@event
def betas_that_change(training, ids, labels):
    for group in training.optimizer.param_groups:
        group["betas"] = (0.8, 0.99)


@event
def frozen_weights(training, ids, labels):
    training.model.bag.weight.requires_grad_(False)
    training.step(ids, labels)
    training.model.bag.weight.requires_grad_(True)


@event
def one_gradient_only(training, ids, labels):
    bag = training.model.bag
    loss = training.model.out(bag(ids)).sum()
    torch.autograd.grad(loss, bag.importance, allow_unused=True)
    training.optimizer.step()


@pytest.mark.parametrize("name", EVENTS)
def test_what_happens_between_the_steps(name, monkeypatch):
    def scenario():
        training = Training(MAKERS["adam"])
        batches = data(24)
        for number, (ids, labels) in enumerate(batches):
            training.step(ids, labels)
            if number in (7, 8, 14):
                EVENTS[name](training, *batches[(number * 5) % 24])
        return training

    assert_same_bits(scenario, monkeypatch)


def test_calls_that_never_repeat_are_not_recorded():
    training = Training(MAKERS["adam"])
    for number, (ids, labels) in enumerate(data(12)):
        training.step(ids[: 5 + number % 2], labels[: 5 + number % 2])
    assert training.recorder.graphs is None


def test_sizes_that_alternate_are_recorded_ever_more_rarely(monkeypatch):
    made = []
    init = recorded.Graphs.__init__
    monkeypatch.setattr(
        recorded.Graphs, "__init__", lambda self, *a: (made.append(1), init(self, *a))[1]
    )
    training = Training(MAKERS["sgd"])
    for number, (ids, labels) in enumerate(data(160)):
        size = 5 + number // 10 % 2
        training.step(ids[:size], labels[:size])
    assert len(made) <= 3


def test_graphs_go_with_their_optimizer():
    left = []
    for _ in range(2):  # the first training makes buffers of cuBLAS
        training = Training(MAKERS["adam"])
        for ids, labels in data(8):
            training.step(ids, labels)
        graphs = weakref.ref(training.recorder.graphs)
        assert graphs() is not None
        del training, ids, labels
        gc.collect()
        assert graphs() is None
        left.append(torch.cuda.memory_allocated())
    assert left[0] == left[1]
