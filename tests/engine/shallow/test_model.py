"""The fused CPU engine against the PyTorch reference: losses, every gradient, every update."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hashembed.engine.labels import Labels
from hashembed.engine.protocol import LossNotFiniteError
from hashembed.engine.shallow.model import EPSILON, ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys
from hashembed.nn.ops.reference import hash_embedding_bag

LENGTHS = [3, 0, 1, 7, 40, 2, 0, 5, 1, 13]


def make_bags(spec: HashSpec, seed: int = 0) -> Bags:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 30, sum(LENGTHS)).astype(np.int64)
    keys = ids % spec.num_embeddings if spec.indexing == "identity" else id_keys(ids)
    return Bags(keys, np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64))


def visible(model: ShallowModel) -> ShallowModel:
    """Importance weights of ordinary size, so that no gradient is tiny."""
    weights = model.importance_weights
    weights[:] = np.random.default_rng(5).standard_normal(weights.shape)
    return model


class Reference:
    """The same model and optimizer in float64 PyTorch."""

    def __init__(self, model: ShallowModel):
        tables, self.model = model.tables, model
        arrays = [tables.E, model.importance_weights, tables.W, tables.bias]
        if not model.importance:
            arrays[1] = np.zeros((1, 1))
        self.parameters = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
        self.squares = [torch.zeros(len(a), 1, dtype=torch.float64) for a in arrays[:2]]
        self.squares += [torch.zeros(a.shape, dtype=torch.float64) for a in arrays[2:]]

    def logits(self, bags: Bags) -> torch.Tensor:
        E, P, W, bias = self.parameters
        h = hash_embedding_bag(
            torch.from_numpy(bags.keys),
            torch.from_numpy(bags.offsets),
            E,
            P if self.model.importance else None,
            torch.from_numpy(self.model.tables.seeds.astype(np.int64)),
            self.model.spec,
        )
        return h @ W.T + bias

    def losses(self, bags: Bags, labels: Labels) -> torch.Tensor:
        z = self.logits(bags)
        if not self.model.multilabel:
            return F.cross_entropy(z, torch.from_numpy(labels.labels), reduction="none")
        truth = torch.zeros_like(z)
        for i, (a, b) in enumerate(itertools.pairwise(labels.offsets)):
            truth[i, labels.labels[a:b]] = 1
        weight = None
        if labels.class_weights is not None:
            weight = torch.where(truth == 1, *torch.from_numpy(labels.class_weights).double())
        return F.binary_cross_entropy_with_logits(z, truth, weight, reduction="none").sum(1)

    def step(self, bags, labels, rate, weights):
        losses = self.losses(bags, labels) * torch.from_numpy(weights)
        gradients = torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True)
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
                if g is None:
                    continue
                self.squares[i] += (g * g).mean(1, keepdim=True) if i < 2 else g * g
                p -= rate * g / (self.squares[i].sqrt() + EPSILON)
        return losses.detach()

    def assert_close(self):
        tables = self.model.tables
        ours = [tables.E, self.model.importance_weights, tables.W, tables.bias]
        for i, (mine, theirs) in enumerate(zip(ours, self.parameters, strict=True)):
            if i != 1 or self.model.importance:
                mine = torch.from_numpy(np.ascontiguousarray(mine)).double()
                torch.testing.assert_close(mine, theirs.detach(), rtol=2e-4, atol=2e-5)


def multi_labels(classes: int, weighted: bool) -> Labels:
    """Documents with no label, one, or several."""
    sets = [list(range(i % 3)) for i in range(len(LENGTHS))]
    flat = np.array([(c + i) % classes for i, s in enumerate(sets) for c in s], np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
    weights = np.linspace(0, 3, 2 * classes).astype(np.float32).reshape(2, classes)
    return Labels(flat, offsets, weights if weighted else None)


# (hash, d, classes, importance); every line is compiled anew
SHAPES = [
    (HashSpec(40, 11, 2), 16, 3, True),
    (HashSpec(40, 11, 1), 1, 2, False),
    (HashSpec(7, 5, 4, seed=-3), 17, 5, True),
    (HashSpec(40, 11, 3, "shared"), 5, 21, True),
    (HashSpec(40, 11, 2, "identity"), 20, 3, True),
    (HashSpec(30, 30, 2, "identity"), 8, 2, False),  # the first bucket is the id
]


def cut_finely(monkeypatch, tokens: int) -> None:
    """Tiny shards and bins of two rows; with the real sizes there would be only one of each."""
    monkeypatch.setattr("hashembed.engine.shallow.arrays.MIN_SHARD_TOKENS", tokens)
    monkeypatch.setattr("hashembed.engine.shallow.arrays.MIN_BIN_BITS", 1)


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize(("multilabel", "weighted"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("spec", "d", "classes", "importance"), SHAPES)
def test_three_batches_like_the_reference(
    spec, d, classes, importance, multilabel, weighted, fine, monkeypatch
):
    if fine:
        cut_finely(monkeypatch, 3)
    model = visible(
        ShallowModel(
            spec, d, classes, importance=importance, multilabel=multilabel, seed=1, threads=2
        )
    )
    reference = Reference(model)
    bags = make_bags(spec)
    labels = multi_labels(classes, weighted)
    if not multilabel:
        labels = Labels.single(np.arange(len(bags)) % classes)
    weights = np.linspace(0.5, 2, len(bags)).astype(np.float32)
    order = np.random.default_rng(2).permutation(len(bags))
    rates = np.array([0.1, 0.05, 0.02], np.float32)
    torch.testing.assert_close(
        torch.from_numpy(model.scores(bags)).double(),
        reference.logits(bags).detach(),
        rtol=1e-4,
        atol=1e-4,
    )
    losses = model.train(bags, labels, order, rates, batch_size=4, weights=weights)
    for batch, rate in enumerate(rates):
        chosen = order[4 * batch : 4 * batch + 4]
        ends = np.cumsum([0, *np.diff(labels.offsets)[chosen]])
        flat = [labels.labels[labels.offsets[i] : labels.offsets[i + 1]] for i in chosen]
        part = Labels(np.concatenate(flat), ends, labels.class_weights)
        want = reference.step(bags.take(chosen), part, float(rate), weights[chosen])
        got = torch.from_numpy(losses[4 * batch : 4 * batch + 4]).double()
        torch.testing.assert_close(got, want, rtol=3e-4, atol=3e-4)
    reference.assert_close()


def test_class_weights_of_one_change_nothing():
    spec, bags = HashSpec(40, 11, 2), make_bags(HashSpec(40, 11, 2))
    plain = multi_labels(3, False)
    order, rates = np.arange(len(bags)), np.full(3, 0.1, np.float32)
    models = [visible(ShallowModel(spec, 16, 3, multilabel=True)) for _ in range(2)]
    for model, labels in zip(
        models, (plain, replace(plain, class_weights=np.ones((2, 3), np.float32))), strict=True
    ):
        model.train(bags, labels, order, rates, batch_size=4)
    for name, array in models[0].state().items():
        assert np.array_equal(array, models[1].state()[name]), name


@pytest.mark.parametrize(("multilabel", "shape"), [(False, (2, 3)), (True, (2, 4)), (True, (3,))])
def test_class_weights_that_do_not_fit_are_refused(multilabel, shape):
    spec = HashSpec(40, 11, 2)
    model, bags = ShallowModel(spec, 16, 3, multilabel=multilabel), make_bags(spec)
    labels = replace(Labels.single(np.arange(10) % 3), class_weights=np.ones(shape, np.float32))
    with pytest.raises(ValueError, match="found class weights of shape"):
        model.train(bags, labels, np.arange(4), np.ones(1, np.float32), batch_size=4)


def trained(threads: int) -> ShallowModel:
    spec = HashSpec(1000, 50, 2)
    model = ShallowModel(spec, 16, 5, threads=threads)
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 60, 500)
    keys = id_keys((rng.zipf(1.3, lengths.sum()) % 5000).astype(np.int64))
    bags = Bags(keys, np.concatenate([[0], np.cumsum(lengths)]))
    rates = np.full(8, 0.1, np.float32)
    labels = Labels.single(rng.integers(0, 5, 500))
    model.train(bags, labels, rng.permutation(500), rates, batch_size=64)
    model.probed = model.scores(bags)
    return model


def test_the_same_bits_for_any_number_of_threads_and_from_run_to_run(monkeypatch):
    cut_finely(monkeypatch, 100)  # eight shards
    one = trained(1)
    for threads in (1, 2, 3, 8):
        other = trained(threads)
        for name, array in one.state().items():
            assert np.array_equal(array, other.state()[name]), name
        assert np.array_equal(one.probed, other.probed)


def test_learned_documents_leave_the_embedding_alone(monkeypatch):
    spec = HashSpec(40, 11, 2)
    bags, order = make_bags(spec), np.arange(len(LENGTHS))
    labels, rates = Labels.single(np.zeros(len(bags))), np.full(1, 0.1, np.float32)
    before, after = (ShallowModel(spec, 16, 3) for _ in range(2))
    for model in (before, after):
        model.tables.bias[:] = [5, 0, 0]  # all errors are about 0.013
    monkeypatch.setattr("hashembed.engine.shallow.model.MARGIN", 0.02)
    after.train(bags, labels, order, rates, batch_size=16)
    assert np.array_equal(before.tables.E, after.tables.E)
    assert np.array_equal(before.importance_weights, after.importance_weights)
    assert not np.array_equal(before.tables.bias, after.tables.bias)
    monkeypatch.setattr("hashembed.engine.shallow.model.MARGIN", 0.01)
    after.train(bags, labels, order, rates, batch_size=16)
    assert not np.array_equal(before.tables.E, after.tables.E)


def test_snippets_restrict_a_document_to_a_run_of_its_keys():
    spec = HashSpec(40, 11, 2)
    bags = make_bags(spec)
    starts, lengths = bags.snippets(rng_seed=1, epoch=0, minimum=2, maximum=5)
    cut = Bags(
        np.concatenate([bags.keys[s : s + n] for s, n in zip(starts, lengths, strict=True)]),
        np.concatenate([[0], np.cumsum(lengths)]),
    )
    labels, order = Labels.single(np.arange(len(bags)) % 3), np.arange(len(bags))
    rates = np.full(2, 0.1, np.float32)
    whole, part = (ShallowModel(spec, 16, 3) for _ in range(2))
    whole.train(bags, labels, order, rates, batch_size=5, snippets=(starts, lengths))
    part.train(cut, labels, order, rates, batch_size=5)
    assert np.array_equal(whole.tables.E, part.tables.E)


@pytest.mark.parametrize("multilabel", [False, True])
def test_probabilities(multilabel):
    spec = HashSpec(40, 11, 2)
    model = visible(ShallowModel(spec, 16, 3, multilabel=multilabel))
    model.tables.W[:] *= 1e4  # logits far apart
    p = model.probabilities(make_bags(spec))
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert (p <= 1).all()
    if not multilabel:
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)


def test_a_loss_that_is_not_finite_stops_before_the_update():
    spec = HashSpec(40, 11, 2)
    bags, order = make_bags(spec), np.arange(len(LENGTHS))
    labels = Labels.single(np.zeros(len(bags)))
    weights = np.ones(len(bags), np.float32)
    weights[6] = np.nan  # in the second batch
    one_batch, stopped = (ShallowModel(spec, 16, 3) for _ in range(2))
    one_batch.train(bags, labels, order[:5], np.full(1, 0.1, np.float32), batch_size=5)
    with pytest.raises(LossNotFiniteError, match="after 1 of 2 batches"):
        stopped.train(
            bags, labels, order, np.full(2, 0.1, np.float32), batch_size=5, weights=weights
        )
    assert np.array_equal(one_batch.tables.E, stopped.tables.E)
    assert np.array_equal(one_batch.importance_weights, stopped.importance_weights)


def test_no_documents_and_no_bags():
    model = ShallowModel(HashSpec(40, 11, 2), 16, 3)
    empty = Bags(np.empty(0, np.int64), np.zeros(1, np.int64))
    assert model.scores(empty).shape == (0, 3)
    none = np.empty(0, np.int64)
    assert len(model.train(empty, Labels.single(none), none, np.empty(0, np.float32))) == 0


def test_as_many_rates_as_batches():
    spec = HashSpec(40, 11, 2)
    bags = make_bags(spec)
    labels, order = Labels.single(np.zeros(len(bags))), np.arange(len(bags))
    with pytest.raises(ValueError, match="there are 3 batches, but 2 rates"):
        ShallowModel(spec, 16, 3).train(bags, labels, order, np.zeros(2, np.float32), batch_size=4)
