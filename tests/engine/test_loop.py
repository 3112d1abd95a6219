"""The training loop with the CPU engine: schedule, early stopping, resuming, stopping early."""

import numpy as np
import pytest

from hashembed.engine.defaults import TrainConfig, default_batch, default_passes, default_rate
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.history import Epoch, History
from hashembed.engine.labels import Labels, document_weights, split
from hashembed.engine.loop import Hooks, evaluate, fit
from hashembed.engine.protocol import LossNotFiniteError
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.training_state import (
    TrainingState,
    load_training_state,
    save_training_state,
)
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys

CLASSES = 3


def task(count: int, seed: int) -> tuple[Bags, Labels]:
    """Documents whose class shows in about half of their tokens."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    lengths = rng.integers(5, 30, count)
    of_token = np.repeat(labels, lengths)
    telling = rng.random(len(of_token)) < 0.5
    ids = rng.integers(0, 50, len(of_token)) + np.where(telling, 1000 * (of_token + 1), 0)
    return Bags(id_keys(ids), np.concatenate([[0], np.cumsum(lengths)])), Labels.single(labels)


TRAIN, VALID = task(600, 0), task(200, 1)


def model(**options) -> ShallowModel:
    return ShallowModel(HashSpec(2000, 200, 2), 16, CLASSES, threads=1, **options)


def same(a: ShallowModel, b: ShallowModel) -> bool:
    states = a.state(), b.state()
    return all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def test_learns_and_says_so():
    engine = model()
    config = TrainConfig(passes=3, batch_size=32, decay=True)
    history = fit(engine, *TRAIN, config, validation=VALID)
    assert len(history.epochs) == 3
    assert history.epochs[2].loss < history.epochs[0].loss
    assert history.epochs[2].validation_accuracy > 0.95
    assert history.epochs[2].learning_rate == 0
    assert history.stopped is None
    assert history.best.validation_loss == evaluate(engine, *VALID)["validation_loss"]


def test_the_seed_decides():
    config = TrainConfig(passes=2, batch_size=32)
    one, two, other = model(), model(), model()
    fit(one, *TRAIN, config)
    fit(two, *TRAIN, config)
    fit(other, *TRAIN, TrainConfig(passes=2, batch_size=32, seed=1))
    assert same(one, two)
    assert not same(one, other)


def test_progress_reaches_the_callbacks():
    seen = []
    fit(model(), *TRAIN, TrainConfig(passes=2, batch_size=32), hooks=Hooks(progress=[seen.append]))
    assert [p.epoch for p in seen] == sorted(p.epoch for p in seen)
    assert {p.epoch for p in seen} == {0, 1}
    assert seen[-1].documents == seen[-1].total == 600
    assert all(p.learning_rate > 0 and p.ngrams_per_second > 0 for p in seen)


def test_chunks_change_nothing(monkeypatch):
    whole, parts = model(), model()
    config = TrainConfig(passes=1, batch_size=32)
    fit(whole, *TRAIN, config)
    monkeypatch.setattr("hashembed.engine.shallow.model.CHUNK", 1)
    seen = []
    fit(parts, *TRAIN, config, hooks=Hooks(progress=[seen.append]))
    assert len(seen) == 19  # one a batch
    assert same(whole, parts)


class Scripted:
    """An engine whose validation loss follows a script; its state is the number of passes."""

    multilabel, learning_rate, chunk = False, None, 1000

    def __init__(self, logits):
        self.logits, self.passes = logits, 0  # a logit, or one for each document

    def train(self, bags, labels, order, rates, **_):
        self.passes += 1
        return np.ones(len(order), np.float32)

    def scores(self, bags):
        right = np.broadcast_to(self.logits[self.passes - 1], len(bags))
        return np.stack([right, np.zeros(len(bags))], axis=1).astype(np.float32)

    def state(self):
        return {"passes": np.array(self.passes)}

    def load_state(self, state):
        self.passes = int(state["passes"])

    keep, go_back = state, load_state


SMALL = (TRAIN[0][:4], Labels.single([0, 0, 0, 0]))


def test_early_stopping_waits_and_restores_the_best():
    engine = Scripted([1, 2, 5, 4, 3, 4.5, 9, 9])
    config = TrainConfig(passes=8, patience=3)
    history = fit(engine, *SMALL, config, validation=SMALL)
    assert len(history.epochs) == 6  # the best is the third; three more bring nothing better
    assert history.best.number == 2
    assert engine.passes == 3
    assert history.stopped == "no better validation loss for 3 passes"


def test_accuracy_may_decide_when_to_stop():
    surer_but_worse = [9, 9, -1, -1]
    better_but_less_sure = [0.1, 0.1, 0.1, -0.1]
    engine = Scripted([surer_but_worse, better_but_less_sure, [2, 2, 2, -9], [3, 3, 3, -9]])
    config = TrainConfig(passes=4, patience=2, monitor="accuracy")
    history = fit(engine, *SMALL, config, validation=SMALL)
    assert [e.validation_accuracy for e in history.epochs] == [0.5, 0.75, 0.75, 0.75]
    assert history.best.number == 1  # the first of equals
    assert engine.passes == 2
    assert history.stopped == "no better validation accuracy for 2 passes"
    assert History.from_dict(history.to_dict()) == history


def test_the_best_weights_are_kept_without_patience_too():
    engine = Scripted([1, 5, 2])
    fit(engine, *SMALL, TrainConfig(passes=3), validation=SMALL)
    assert engine.passes == 2


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_resuming_gives_the_same_bits(stop_after):
    config = TrainConfig(passes=4, batch_size=32, snippets=(4, 20), patience=2)
    whole = model()
    full_history = fit(whole, *TRAIN, config, validation=VALID)

    class Killed(Exception):
        pass

    kept: list[TrainingState] = []

    def keep(run: TrainingState):
        kept.append(run)
        if len(run.history.epochs) == stop_after:
            raise Killed

    with pytest.raises(Killed):
        fit(model(), *TRAIN, config, validation=VALID, hooks=Hooks(state=keep))
    resumed = model(seed=99)  # its weights are replaced
    history = fit(resumed, *TRAIN, config, validation=VALID, resume=kept[-1])
    assert same(whole, resumed)
    assert [e.loss for e in history.epochs] == [e.loss for e in full_history.epochs]


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("stop_at", [0, 7, 20])
def test_resuming_within_a_pass_gives_the_same_bits(monkeypatch, tmp_path, stop_at, members):
    monkeypatch.setattr("hashembed.engine.shallow.model.CHUNK", 500)  # several calls a pass

    def engine(seed=0):
        made = [
            ShallowModel(HashSpec(500, 60, seed=s), 16, CLASSES, seed=s + seed, threads=1)
            for s in range(members)
        ]
        return made[0] if members == 1 else Ensemble(made)

    config = TrainConfig(passes=2, batch_size=16, decay=True)
    kept = []
    whole = engine()
    hooks = Hooks(state=kept.append, state_seconds=0)
    complete = fit(whole, *TRAIN, config, validation=VALID, hooks=hooks)
    assert len({state.steps for state in kept}) > 10
    save_training_state(tmp_path / "state", kept[stop_at], "run")
    resumed = engine(seed=9)  # its weights are replaced
    found = load_training_state(tmp_path / "state", "run", resumed)
    history = fit(resumed, *TRAIN, config, validation=VALID, resume=found)
    assert same(whole, resumed)
    assert [e.loss for e in history.epochs] == [e.loss for e in complete.epochs]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["progress", "epoch", "state"])
def test_an_exception_is_raised_and_leaves_the_best_weights(error, where):
    engine, history = model(), History()

    def interrupt(_):
        if len(history.epochs) >= 2:
            raise error

    hooks = Hooks(**{where: [interrupt] if where == "progress" else interrupt})
    config = TrainConfig(passes=5, batch_size=32)
    with pytest.raises(error):
        fit(engine, *TRAIN, config, validation=VALID, history=history, hooks=hooks)
    assert len(history.epochs) == 2
    word = "interrupted" if error is KeyboardInterrupt else "RuntimeError"
    assert history.stopped == f"{word} in pass 3"
    assert evaluate(engine, *VALID)["validation_loss"] == history.best.validation_loss


def with_a_bad_document(value):
    weights = np.ones(600, np.float32)
    weights[17] = value
    return weights


def test_an_exploding_loss_is_raised_with_the_reason():
    engine, history = model(), History()
    config = TrainConfig(passes=2, batch_size=32)
    with pytest.raises(LossNotFiniteError, match=r"no longer a finite number.*\(pass 1\)"):
        fit(engine, *TRAIN, config, weights=with_a_bad_document(np.inf), history=history)
    assert "(pass 1)" in history.stopped
    assert np.isfinite(engine.tables.E).all()


def test_after_an_exploding_loss_a_validated_pass_is_kept():
    engine, weights = model(), with_a_bad_document(1)

    def spoil(epoch):
        weights[17] = np.inf

    config = TrainConfig(passes=3, batch_size=32)
    with pytest.warns(RuntimeWarning, match=r"kept the best pass: .*\(pass 2\)"):
        history = fit(
            engine, *TRAIN, config, validation=VALID, weights=weights, hooks=Hooks(epoch=spoil)
        )
    assert len(history.epochs) == 1
    assert evaluate(engine, *VALID)["validation_loss"] == history.best.validation_loss


def test_the_last_update_is_checked_too():
    engine = model()
    config = TrainConfig(passes=1, batch_size=600, learning_rate=1e30)  # one step, no later loss
    with pytest.raises(LossNotFiniteError, match="after 1 of 1 batches"):
        fit(engine, *TRAIN, config)


def test_the_outcome_names_the_pass_that_is_kept():
    engine = Scripted([1, 5, 4, 3])
    history = fit(engine, *SMALL, TrainConfig(passes=9, patience=2), validation=SMALL)
    best = history.best
    assert history.outcome().splitlines() == [
        "Stopped: no better validation loss for 2 passes.",
        "Kept pass 2 of 4: the best validation loss "
        f"(loss {best.validation_loss:.4f}, accuracy {best.validation_accuracy:.2%}).",
    ]
    assert fit(model(), *TRAIN, TrainConfig()).outcome() == ""


def test_weights_of_documents_and_classes():
    labels = Labels.single([0, 0, 0, 1])
    weights = document_weights(labels, np.arange(CLASSES), "balanced")
    np.testing.assert_allclose(weights, [2 / 3, 2 / 3, 2 / 3, 2])
    none = np.zeros(600, np.float32)
    engine = model()
    fit(engine, *TRAIN, TrainConfig(passes=1), weights=none)
    assert same(engine, model())  # documents that weigh nothing teach nothing


def test_multilabel_learns():
    bags, single = TRAIN
    # class 0 or not, class 1 or not; class 2 is neither
    keep = single.labels < 2
    labels = Labels(single.labels[keep], np.concatenate([[0], np.cumsum(keep)]))
    engine = ShallowModel(HashSpec(2000, 200, 2), 16, 2, multilabel=True, threads=1)
    fit(engine, bags, labels, TrainConfig(passes=4, batch_size=32))
    assert evaluate(engine, bags, labels)["validation_accuracy"] > 0.95


def test_evaluate_is_cross_entropy():
    engine = model()
    z = engine.scores(VALID[0]).astype(np.float64)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    want = -np.log(p[np.arange(200), VALID[1].labels]).mean()
    got = evaluate(engine, *VALID)
    assert got["validation_loss"] == pytest.approx(want)
    assert got["validation_accuracy"] == (z.argmax(1) == VALID[1].labels).mean()


def of_length(n, documents=10):
    return Bags(np.zeros(documents * n, np.int64), np.arange(0, documents * n + 1, n))


NOTHING = Bags(np.empty(0, np.int64), np.zeros(1, np.int64))


def test_default_rate_falls_with_length_and_stays_sensible():
    rates = [default_rate(of_length(n), 4) for n in (1, 10, 100, 1000, 100_000)]
    assert rates == sorted(rates, reverse=True)
    assert all(0.005 <= rate <= 0.5 for rate in rates)
    assert default_rate(NOTHING, 1) <= 0.5
    assert default_rate(of_length(100), 2) < default_rate(of_length(100), 50)
    assert default_rate(of_length(100), 2, passes=4) == default_rate(of_length(100), 2) / 2


def test_default_batches():
    assert default_batch(NOTHING) == 8
    assert default_batch(of_length(5, 100)) == 8
    assert default_batch(of_length(5, 4000)) == 100
    assert default_batch(of_length(5, 100_000)) == 1024
    assert default_batch(of_length(300, 100_000)) == 436
    assert default_batch(of_length(1000, 20_000)) == 256


def test_default_passes():
    bags = of_length(100, 100)
    assert default_passes(bags, 10) == default_passes(bags, 2500) == 1
    assert default_passes(bags, 4000) == 2
    assert default_passes(bags, 5000) == 4
    assert default_passes(bags, 10_000) == 10
    assert default_passes(NOTHING, 0) == 10


def test_paper_protocol():
    config = TrainConfig.paper()
    assert (config.snippets, config.patience, config.decay) == ((4, 100), 10, False)
    assert config.monitor == "accuracy"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"passes": 0}, "passes .* found 0"),
        ({"batch_size": 0}, "batch_size .* found 0"),
        ({"patience": 0}, "patience .* found 0"),
        ({"monitor": "f1"}, "monitor must be one of 'loss', 'accuracy', found 'f1'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, found 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, found nan"),
    ],
)
def test_bad_settings_get_a_sentence(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        TrainConfig(**options)


def test_split():
    train, held = split(100, 0.05, seed=3)
    assert len(held) == 5
    assert sorted([*train, *held]) == list(range(100))
    assert np.array_equal(split(100, 0.05, seed=3)[1], held)
    assert not np.array_equal(split(100, 0.05, seed=4)[1], held)
    with pytest.raises(ValueError, match=r"found 1\.5"):
        split(10, 1.5, seed=0)


def test_labels_take_and_matrix():
    labels = Labels(np.array([2, 0, 1, 1]), np.array([0, 1, 1, 3, 4]))
    taken = labels.take(np.array([3, 2, 1]))
    assert taken.labels.tolist() == [1, 0, 1]
    assert taken.offsets.tolist() == [0, 1, 3, 3]
    assert taken.matrix(3).tolist() == [
        [False, True, False],
        [True, True, False],
        [False, False, False],
    ]
    assert labels.counts(3).tolist() == [1, 2, 1]


def test_history_round_trip_and_plot(tmp_path):
    history = History([Epoch(0, 0.5, 0.1, 1.5, 0.4, 0.9), Epoch(1, 0.3, 0.0, 1.4, 0.45, 0.89)])
    assert History.from_dict(history.to_dict()) == history
    assert history.best.number == 0
    assert history.seconds == pytest.approx(2.9)
    history.plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="nothing has been trained"):
        History().best  # noqa: B018
