"""Ensembles: how they vote, one loop for all members, files."""

import numpy as np
import pytest

from hashembed.engine.defaults import TrainConfig
from hashembed.engine.ensemble import VOTES, Ensemble, Votes, _order_of, mean_logits, member_seeds
from hashembed.engine.labels import Labels
from hashembed.engine.loop import evaluate, fit
from hashembed.engine.protocol import LossNotFiniteError, to_probabilities
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import load_tensors, save_tensors
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys
from hashembed.nn.engine.model import DeepModel

CLASSES = 3


def task(count: int, seed: int, multilabel: bool = False) -> tuple[Bags, Labels]:
    """Documents whose classes show in about half of their tokens."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    lengths = rng.integers(5, 30, count)
    of_token = np.repeat(labels, lengths)
    telling = rng.random(len(of_token)) < 0.5
    ids = rng.integers(0, 50, len(of_token)) + np.where(telling, 1000 * (of_token + 1), 0)
    bags = Bags(id_keys(ids), np.concatenate([[0], np.cumsum(lengths)]))
    if not multilabel:
        return bags, Labels.single(labels)
    keep = labels > 0  # a document of class 0 has no label at all
    return bags, Labels(labels[keep], np.concatenate([[0], np.cumsum(keep)]))


def specs(count: int = 3) -> list[HashSpec]:
    return [HashSpec(2000, 100, 2, seed=seed) for seed in member_seeds(7, count)]


def shallow(multilabel: bool = False, votes: Votes = "logits", threads: int = 1) -> Ensemble:
    return Ensemble(
        [
            ShallowModel(s, 16, CLASSES, seed=s.seed & 0xFF, multilabel=multilabel, threads=threads)
            for s in specs()
        ],
        votes,
    )


def deep(multilabel: bool = False, votes: Votes = "logits") -> Ensemble:
    return Ensemble(
        [
            DeepModel(s, 16, CLASSES, (8,) * i, seed=i, multilabel=multilabel)
            for i, s in enumerate(specs())
        ],
        votes,
    )


MAKERS = [shallow, deep]


@pytest.mark.parametrize("votes", VOTES)
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_learns_and_votes(make, multilabel, votes):
    train, test = task(600, 0, multilabel), task(200, 1, multilabel)
    ensemble = make(multilabel, votes)
    rate = 0.01 if make is deep else None
    config = TrainConfig(passes=4, batch_size=32, learning_rate=rate)
    history = fit(ensemble, *train, config, validation=test)
    assert history.best.validation_accuracy > 0.95
    members = [member.probabilities(test[0]).astype(np.float64) for member in ensemble.members]
    p = np.mean(members, axis=0)
    if votes == "logits":
        z = np.mean([m.scores(test[0]).astype(np.float64) for m in ensemble.members], axis=0)
        np.testing.assert_allclose(ensemble.scores(test[0]), z, rtol=1e-6, atol=1e-7)
        p = to_probabilities(z, multilabel)
    np.testing.assert_allclose(ensemble.probabilities(test[0]), p, rtol=1e-5, atol=1e-7)
    assert not np.allclose(members[0], members[1], atol=1e-3)
    truth = test[1].matrix(CLASSES)
    right = (p > 0.5) == truth if multilabel else p.argmax(1) == test[1].labels
    accuracy = right.all(axis=1).mean() if multilabel else right.mean()
    assert evaluate(ensemble, *test)["validation_accuracy"] == accuracy


def test_the_mean_of_logits_is_rounded_once():
    """In float32 the sum of the first two would swallow the third."""
    z = [np.array([[value]], np.float32) for value in (1e8, 1.0, -1e8)]
    assert mean_logits(z) == np.float32(1 / 3)
    rng = np.random.default_rng(0)
    z = list(rng.normal(size=(5, 50, 7)).astype(np.float32))
    exact = np.array(z, np.float64).sum(axis=0) / 5
    found = mean_logits(iter(z))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-7)
    with pytest.raises(ValueError, match=r"logits of shape \(2, 3\) and of shape \(2, 1\)"):
        mean_logits([np.zeros((2, 1), np.float32), np.zeros((2, 3), np.float32)])


def test_the_same_bits_for_any_number_of_threads():
    found = []
    for threads in (1, 2):
        ensemble = shallow(threads=threads)
        fit(ensemble, *task(600, 0), TrainConfig(passes=2, batch_size=32))
        bags = task(1000, 1)[0]
        assert len(bags.keys) > 10_000  # fewer are scored by one thread
        found.append(ensemble.scores(bags))
    assert np.array_equal(*found)


def test_unknown_votes():
    with pytest.raises(ValueError, match="votes must be one of 'logits', 'probabilities'"):
        shallow(votes="medians")


@pytest.mark.parametrize("votes", VOTES)
@pytest.mark.parametrize("multilabel", [False, True])
def test_scores_are_finite_however_sure_the_members_are(multilabel, votes):
    ensemble = shallow(multilabel, votes)
    for member in ensemble.members:
        member.importance_weights[:] = 1e4
    bags = task(50, 0)[0]
    assert np.abs(ensemble.members[0].scores(bags)).max() > 1e3
    assert np.isfinite(ensemble.scores(bags)).all()
    assert np.isfinite(ensemble.probabilities(bags)).all()


class OwnOrder:
    """A member that sees the documents in the order that it has in an ensemble."""

    def __init__(self, member, number):
        self._member, self._number = member, number

    def __getattr__(self, name):
        return getattr(self._member, name)

    def train(self, bags, labels, order, rates, **options):
        return self._member.train(bags, labels, _order_of(self._number, order), rates, **options)


def test_members_have_their_own_order_unless_it_is_that_of_a_stream():
    drawn, stream = np.random.default_rng(0).permutation(50), np.arange(50)
    orders = [_order_of(member, drawn).tolist() for member in (1, 2, 3)]
    assert orders[0] == drawn.tolist() != orders[1] != orders[2]
    assert all(sorted(order) == stream.tolist() for order in orders)
    assert all(_order_of(member, stream) is stream for member in (1, 2, 3))
    assert _order_of(2, drawn).tolist() == orders[1]


@pytest.mark.parametrize("make", MAKERS)
def test_members_train_as_they_would_alone(make):
    train, config = task(300, 0), TrainConfig(passes=2, batch_size=32, learning_rate=0.01)
    together, apart = make(), make()
    history = fit(together, *train, config)
    histories = [fit(OwnOrder(m, i), *train, config) for i, m in enumerate(apart.members, 1)]
    ours, theirs = together.state(), apart.state()
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    mean = np.mean([h.epochs[-1].loss for h in histories])
    assert history.epochs[-1].loss == pytest.approx(mean, rel=1e-6)
    assert together.num_parameters == sum(m.num_parameters for m in apart.members)


@pytest.mark.parametrize("make", MAKERS)
def test_early_stopping_restores_all_members(make):
    ensemble, train, test = make(), task(300, 0), task(100, 1)
    config = TrainConfig.paper(patience=2, passes=40, learning_rate=0.02, batch_size=32)
    history = fit(ensemble, *train, config, validation=test)
    assert history.stopped is not None
    assert history.best.number < len(history.epochs) - 1
    assert evaluate(ensemble, *test)["validation_loss"] == history.best.validation_loss


@pytest.mark.parametrize("make", MAKERS)
def test_save_and_load(make, tmp_path):
    ensemble, bags = make(), task(50, 2)[0]
    fit(ensemble, *task(300, 0), TrainConfig(passes=1))
    path = tmp_path / "ensemble.safetensors"
    save_tensors(path, "ensemble", ensemble.tensors(), {})
    kind = type(ensemble.members[0])
    loaded = Ensemble.from_tensors(
        lambda i, tensors: kind.from_tensors(specs()[i], tensors), load_tensors(path, "ensemble")[0]
    )
    assert np.array_equal(ensemble.scores(bags), loaded.scores(bags))


def test_more_than_ten_members_keep_their_places():
    members = [ShallowModel(s, 4, 2, seed=i) for i, s in enumerate(specs(12))]
    ensemble, bags = Ensemble(members), task(20, 0)[0]

    def make(i, tensors):
        assert tensors.keys() == {"E", "P", "W", "bias"}
        return ShallowModel.from_tensors(specs(12)[i], tensors)

    loaded = Ensemble.from_tensors(make, ensemble.tensors())
    for one, two in zip(ensemble.members, loaded.members, strict=True):
        assert np.array_equal(one.scores(bags), two.scores(bags))


def test_a_member_whose_loss_is_not_finite_is_named():
    ensemble, (bags, labels) = shallow(), task(100, 0)
    ensemble.members[1].tables.E[:] = np.inf
    with pytest.raises(LossNotFiniteError, match=r"member 2 of 3: .* after 0 of 2 batches"):
        ensemble.train(bags, labels, np.arange(100), np.full(2, 0.1, np.float32), batch_size=50)


def test_member_seeds():
    seeds = member_seeds(5, 100)
    assert seeds[0] == 5
    assert len(set(seeds)) == 100
    assert seeds[:10] == member_seeds(5, 10)
    assert not set(seeds[1:]) & set(member_seeds(6, 100))
    assert member_seeds(-(2**63), 2)[0] == -(2**63)


def test_members_must_fit_together():
    with pytest.raises(ValueError, match="at least one member"):
        Ensemble([])
    spec = HashSpec(100, 10)
    with pytest.raises(ValueError, match="same multilabel, found False and True"):
        Ensemble([ShallowModel(spec, 4, 2), ShallowModel(spec, 4, 2, multilabel=True)])
    with pytest.raises(ValueError, match=r"same learning_rate, found 0\.001 and None"):
        Ensemble([ShallowModel(spec, 4, 2), DeepModel(spec, 4, 2)])
    assert Ensemble([ShallowModel(spec, 4, 2), DeepModel(spec, 4, 2, optimizer="adagrad")])
