"""Training steps on the GPU: as CUDA graphs, or without a GPU in the interpreter.

They are compared with the plain loop of the torch engine on the CPU.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hashembed.engine.ensemble import Ensemble
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import LossNotFiniteError
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys
from hashembed.nn.engine import fused, head, transfer
from hashembed.nn.engine.batches import placed
from hashembed.nn.engine.graph import rounded
from hashembed.nn.engine.model import DeepModel
from hashembed.nn.gpu import rows as cuda_rows
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops import on_gpu
from hashembed.nn.optim import gpu_steps
from hashembed.nn.optim import optimizers as optim

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
CLASSES, DOCUMENTS = 3, 29
RNG = np.random.default_rng(0)
LENGTHS = np.where(np.arange(DOCUMENTS) % 7 == 3, 0, RNG.integers(0, 12, DOCUMENTS))
BAGS = Bags(id_keys(RNG.integers(0, 30, LENGTHS.sum())), np.concatenate([[0], np.cumsum(LENGTHS)]))
SINGLE = Labels.single(RNG.integers(0, CLASSES, DOCUMENTS))
SETS = [list(range(i % 4)) for i in range(DOCUMENTS)]
SEVERAL = Labels(np.concatenate(SETS).astype(np.int64), np.cumsum([0, *map(len, SETS)]))
CLASS_WEIGHTS = np.linspace(0, 3, 2 * CLASSES).astype(np.float32).reshape(2, CLASSES)
ORDER = np.random.default_rng(1).permutation(DOCUMENTS)
BATCH = 8  # the last one is short
RATES = np.linspace(0.02, 0.01, -(-DOCUMENTS // BATCH)).astype(np.float32)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Without a GPU rows are updated by the same kernels, interpreted."""
    if not CUDA:
        for module in (gpu_steps, optim):
            monkeypatch.setattr(module, "cuda_rows", cuda_rows, raising=False)
        monkeypatch.setattr(ops, "on_gpu", on_gpu, raising=False)


@pytest.fixture
def resident(monkeypatch):
    """Keys lie on the device, even if that is the CPU."""
    monkeypatch.setattr(transfer, "place_keys", lambda keys, spec, device: placed(keys, device))


def model(hidden=(), device=DEVICE, seed=0, **options) -> DeepModel:
    made = DeepModel(HashSpec(40, 11, 2), 5, CLASSES, hidden, device=device, seed=seed, **options)
    with torch.no_grad():  # importance weights of ordinary size, so that every gradient is
        if made.network.bag.importance is not None:
            made.network.bag.importance.copy_(
                torch.empty(40, 2).normal_(generator=torch.Generator().manual_seed(5))
            )
    return made


def steps_of(models, labels=SINGLE, *, weights=None, snippets=None, passes=2):
    losses = []
    for _ in range(passes):
        found = transfer.train_members(
            models,
            BAGS,
            labels,
            ORDER,
            RATES,
            batch_size=BATCH,
            weights=weights,
            snippets=snippets,
        )
        losses.append(found)
    return losses


def plain_steps_of(one, labels=SINGLE, *, weights=None, snippets=None, passes=2):
    options = {"batch_size": BATCH, "weights": weights, "snippets": snippets}
    return [one.train(BAGS, labels, ORDER, RATES, **options) for _ in range(passes)]


CASES = [
    ((), {"optimizer": "adagrad"}, False),
    ((), {"optimizer": "adam"}, True),
    ((6,), {"optimizer": "adam"}, False),
    ((6, 7), {"optimizer": "adam", "batch_norm": False}, False),
    ((), {"optimizer": "adagrad", "multilabel": True}, True),
    ((), {"optimizer": "adam", "dropout": 0.3}, False),
    ((), {"aggregation": "concat", "append_importance": True}, False),
    ((), {"mode": "mean", "dropout": 0.3}, False),
    ((), {"importance": False}, True),
]


@pytest.mark.parametrize(("hidden", "options", "weighted"), CASES)
@pytest.mark.usefixtures("resident")
def test_as_the_plain_loop(hidden, options, weighted):
    labels = SEVERAL if options.get("multilabel") else SINGLE
    weights = np.linspace(0, 2, DOCUMENTS).astype(np.float32) if weighted else None
    mine, plain = model(hidden, **options), model(hidden, "cpu", **options)
    got = steps_of([mine], labels, weights=weights)
    want = plain_steps_of(plain, labels, weights=weights)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a[0], b, rtol=2e-4, atol=2e-5)
    assert mine.steps == plain.steps == 2 * len(RATES)
    theirs = plain.tensors()
    for name, array in mine.tensors().items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.usefixtures("resident")
def test_class_weights_as_in_the_plain_loop():
    """They may change between two calls, which makes new steps."""
    options = {"optimizer": "adagrad", "multilabel": True}
    mine, plain = model(**options), model(device="cpu", **options)
    weighted = replace(SEVERAL, class_weights=CLASS_WEIGHTS)
    other = replace(SEVERAL, class_weights=CLASS_WEIGHTS[::-1].copy())
    for labels in (SEVERAL, weighted, weighted, other, SEVERAL):
        got, want = steps_of([mine], labels, passes=1), plain_steps_of(plain, labels, passes=1)
        np.testing.assert_allclose(got[0][0], want[0], rtol=2e-4, atol=2e-5)
    theirs = plain.tensors()
    for name, array in mine.tensors().items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "options", [{"optimizer": "adagrad", "mode": "mean"}, {"optimizer": "adam"}]
)
@pytest.mark.usefixtures("resident")
def test_documents_longer_than_a_tile(options, monkeypatch):
    monkeypatch.setattr(fused, "WHOLE", 1)
    monkeypatch.setattr(fused, "PART", 64)  # four tokens
    mine, plain = model(**options), model(device="cpu", **options)
    got, want = steps_of([mine]), plain_steps_of(plain)
    np.testing.assert_allclose(got[1][0], want[1], rtol=2e-4, atol=2e-5)
    theirs = plain.tensors()
    for name, array in mine.tensors().items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.usefixtures("resident")
def test_groups_of_batches_that_need_a_larger_capacity(monkeypatch):
    """Steps 0, 1-2, 3-4 and 5 are prepared at a time; one is much larger than the others."""
    lengths = np.where(np.arange(DOCUMENTS) == ORDER[3 * BATCH + 1], 60, 3)
    keys = id_keys(np.random.default_rng(2).integers(0, 30, lengths.sum()))
    bags = Bags(keys, np.concatenate([[0], np.cumsum(lengths)]))
    one, other = model(optimizer="adam"), model(device="cpu", optimizer="adam")
    options = {"batch_size": BATCH, "weights": None, "snippets": None}
    for _ in range(2):
        got = transfer.train_members([one], bags, SINGLE, ORDER, RATES, **options)
        want = other.train(bags, SINGLE, ORDER, RATES, **options)
        np.testing.assert_allclose(got[0], want, rtol=2e-4, atol=2e-5)
    small, large = one.gpu_steps.capacities
    assert small < large
    assert one.gpu_steps.shallow


@pytest.mark.usefixtures("resident")
def test_steps_that_do_not_fit_are_made_anew():
    one = model()
    steps_of([one], snippets=transfer.draw_snippets(BAGS, DEVICE, 3, 0, 2, 4), passes=1)
    first = one.gpu_steps
    steps_of([one], snippets=transfer.draw_snippets(BAGS, DEVICE, 3, 1, 2, 4), passes=1)
    assert one.gpu_steps is first
    steps_of([one], passes=1)  # longer documents
    assert one.gpu_steps is not first


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_large_steps_give_the_same_bits_in_every_run(optimizer):
    """Several streams work on rows that few, many and very many tokens read."""
    rng, (n, length), spec = np.random.default_rng(3), (4096 * 6, 100), HashSpec(10**6, 10**5, 2)
    keys = id_keys((10 ** rng.uniform(0, 6, n * length)).astype(np.int64))
    bags, labels = Bags(keys, np.arange(n + 1) * length), Labels.single(np.arange(n) % CLASSES)
    found, rates = [], np.full(6, 0.01, np.float32)
    for _ in range(2):
        one = DeepModel(spec, 20, CLASSES, optimizer=optimizer, device=DEVICE)
        losses = one.train(bags, labels, np.arange(n), rates, batch_size=4096)
        found.append({"losses": losses, **one.tensors()})
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


@pytest.mark.usefixtures("resident")
def test_an_output_layer_of_many_classes(monkeypatch):
    monkeypatch.setattr(fused, "MAX_LAYER_GRADS", 1)
    monkeypatch.setattr(head, "MAX_LAYER_GRADS", 1)
    got, want = steps_of([model()]), plain_steps_of(model(device="cpu"))
    np.testing.assert_allclose(got[1][0], want[1], rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("resident")
def test_documents_of_the_keys_of_a_batch():
    one = model()
    steps_of([one], passes=1)
    made, capacity = one.gpu_steps._batches, one.gpu_steps.capacities[1]
    one.gpu_steps.begin(DOCUMENTS, 0)
    made._token_bags.fill_(-1)
    made.fill(1, 1, 2, capacity)  # steps 1 and 2 into the second buffer
    for number, step in enumerate((1, 2)):
        documents = ORDER[step * BATCH : (step + 1) * BATCH]
        bags = np.repeat(np.arange(BATCH), LENGTHS[documents])
        n, at = len(bags), slice(number * capacity, (number + 1) * capacity)
        assert made._token_bags[1, at].tolist() == bags.tolist() + [-1] * (capacity - n)
        keys = [BAGS.keys[BAGS.offsets[i] : BAGS.offsets[i + 1]] for i in documents]
        assert made._keys[1, at][:n].tolist() == np.concatenate(keys).tolist()
        assert made.offsets[1, number].tolist() == [0, *np.cumsum(LENGTHS[documents])]
        assert made.labels[1, number].tolist() == SINGLE.labels[documents].tolist()


@pytest.mark.usefixtures("resident")
def test_snippets_are_those_of_the_cpu():
    drawn = transfer.draw_snippets(BAGS, DEVICE, 3, 2, 2, 5)
    starts, lengths = BAGS.snippets(3, 2, 2, 5)
    np.testing.assert_array_equal(drawn.starts.cpu().numpy(), starts)
    np.testing.assert_array_equal(drawn.lengths.cpu().numpy(), lengths)
    got = steps_of([model()], snippets=drawn)
    want = plain_steps_of(model(device="cpu"), snippets=(starts, lengths))
    np.testing.assert_allclose(got[1][0], want[1], rtol=2e-4, atol=2e-5)


def test_streamed_keys_give_the_same_bits(monkeypatch):
    kept = model()
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "place_keys", lambda keys, spec, device: placed(keys, device))
        want = steps_of([kept])
    monkeypatch.setattr(transfer, "place_keys", lambda keys, spec, device: keys)
    monkeypatch.setattr(transfer, "PART", 60)  # a batch or two at a time
    streamed = model()
    got = steps_of([streamed])
    assert streamed.gpu_steps.streamed
    assert not kept.gpu_steps.streamed
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_together_as_alone(members):
    together, alone = members(), members()
    steps_of(together, passes=1)
    for one, other in zip(together, alone, strict=True):
        steps_of([other], passes=1)
        for name, array in one.tensors().items():
            np.testing.assert_allclose(array, other.tensors()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.usefixtures("resident")
def test_members_train_together_as_they_do_alone(hidden):
    def members():
        return [model(hidden, seed=s) for s in (0, 1)]

    assert_together_as_alone(members)


@pytest.mark.usefixtures("resident")
def test_members_of_different_forms_train_together_as_they_do_alone():
    def members():
        forms = [HashSpec(40, 11, 2), HashSpec(70, 9, 3), HashSpec(40, 11, 2)]
        return [
            DeepModel(spec, 5, CLASSES, importance=i < 2, device=DEVICE)
            for i, spec in enumerate(forms)
        ]

    assert_together_as_alone(members)


@pytest.mark.usefixtures("resident")
def test_large_batches_of_many_classes_go_another_way(monkeypatch):
    monkeypatch.setattr(fused, "MAX_BATCH_GRADS", BATCH * (CLASSES * 5 + CLASSES) - 1)
    one, plain = model(), model(device="cpu")
    got, want = steps_of([one]), plain_steps_of(plain)
    assert not one.gpu_steps.shallow
    np.testing.assert_allclose(got[1][0], want[1], rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("resident")
def test_documents_without_a_word():
    bags = Bags(np.empty(0, np.int64), np.zeros(DOCUMENTS + 1, np.int64))
    one, plain = model(), model(device="cpu")
    options = {"batch_size": BATCH, "weights": None, "snippets": None}
    got = transfer.train_members([one], bags, SINGLE, ORDER, RATES, **options)
    want = plain.train(bags, SINGLE, ORDER, RATES, **options)
    np.testing.assert_allclose(got[0], want, rtol=2e-4, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
def test_an_ensemble_on_a_gpu_trains_its_members_together():
    ensemble = Ensemble([model((6,), seed=s) for s in (0, 1)])
    losses = ensemble.train(BAGS, SINGLE, ORDER, RATES, batch_size=BATCH)
    assert ensemble.members[0].gpu_steps.members == ensemble.members
    assert losses.shape == (DOCUMENTS,)


@pytest.mark.usefixtures("resident")
def test_what_is_kept_can_be_gone_back_to():
    one, two = model((6,)), model((6,))
    steps_of([one])
    kept = one.keep()
    first = steps_of([one], passes=1)
    one.go_back(kept)
    again = steps_of([one], passes=1)
    np.testing.assert_array_equal(first[0], again[0])
    fresh = model((6,))
    beginning = fresh.keep()
    first = steps_of([fresh], passes=1)
    fresh.go_back(beginning)
    np.testing.assert_array_equal(first[0], steps_of([fresh], passes=1)[0])
    two.load_state(one.state())
    np.testing.assert_allclose(
        steps_of([one], passes=1)[0], steps_of([two], passes=1)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.usefixtures("resident")
def test_a_loss_that_is_not_finite_ends_learning(hidden):
    weights = np.ones(DOCUMENTS, np.float32)
    weights[ORDER[2 * BATCH + 3]] = np.nan  # in the third batch
    mine, two_batches = model(hidden), model(hidden, "cpu")
    with pytest.raises(LossNotFiniteError, match=f"after 2 of {len(RATES)} batches"):
        steps_of([mine], weights=weights)
    two_batches.train(BAGS, SINGLE, ORDER[: 2 * BATCH], RATES[:2], batch_size=BATCH)
    want = two_batches.tensors()
    for name, array in mine.tensors().items():
        np.testing.assert_allclose(array, want[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.usefixtures("resident")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of NumPy
def test_vectors_that_overflow_spoil_no_weights(hidden):
    mine = model(hidden)
    with torch.no_grad():
        mine.network.bag.weight.mul_(1e20)
        mine.network.bag.importance.mul_(1e20)
    before = {name: array.copy() for name, array in mine.tensors().items()}
    with pytest.raises(LossNotFiniteError):
        steps_of([mine], passes=1)
    for name, array in mine.tensors().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize(
    ("where", "aggregation"),
    [("output.weight", "sum"), ("bag.importance", "sum"), ("output.weight", "concat")],
)
@pytest.mark.usefixtures("resident")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of NumPy
def test_a_weight_that_is_not_finite_spoils_no_others(where, aggregation):
    mine = model(aggregation=aggregation)
    with torch.no_grad():
        mine.network.get_parameter(where).view(-1)[::7] = torch.inf
    before = {name: array.copy() for name, array in mine.tensors().items()}
    with pytest.raises(LossNotFiniteError):
        steps_of([mine], passes=1)
    for name, array in mine.tensors().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize(("n", "d", "C"), [(1, 1, 2), (33, 5, 3), (40, 16, 70), (17, 100, 300)])
def test_the_loss_and_its_gradients(n, d, C):
    generator = torch.Generator().manual_seed(n)
    x, W, bias = (torch.randn(s, generator=generator) for s in ((n, d), (C, d), (C,)))
    labels = torch.randint(0, C, (n,), generator=generator)
    weights = torch.rand(n, generator=generator)
    inputs = (t.to(DEVICE) for t in (x, W, bias, labels, weights))
    losses, x_grad, finish = head.softmax_head(*inputs, 0.25)
    got = losses, x_grad, *finish()
    x, W, bias = (t.double().requires_grad_() for t in (x, W, bias))
    logits = x @ W.t() + bias
    losses = F.cross_entropy(logits, labels, reduction="none") * weights
    gradients = torch.autograd.grad(losses.sum() * 0.25, [x, W, bias])
    for mine, want in zip(got, (losses, *gradients), strict=True):
        torch.testing.assert_close(mine.cpu().double(), want.detach(), rtol=1e-4, atol=1e-4)


def test_capacities_grow_in_steps():
    for tokens in [*range(200), 10**6 + 1, 2**30]:
        assert tokens <= rounded(tokens) <= max(1, 1.25 * tokens)
    assert len({rounded(n) for n in range(2**10, 2**11)}) <= 9
