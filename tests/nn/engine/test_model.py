"""The torch engine against the same network written plainly, and against the CPU engine."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hashembed.cli.demo_task import load_task
from hashembed.engine.defaults import TrainConfig
from hashembed.engine.labels import Labels
from hashembed.engine.loop import Hooks, evaluate, fit
from hashembed.engine.protocol import LossNotFiniteError
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import load_tensors, save_tensors
from hashembed.engine.training_state import TrainingState
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys
from hashembed.nn.engine.model import DeepModel
from hashembed.nn.engine.network import EPSILON, KEPT, BatchNorm
from hashembed.text.config import TextConfig

CLASSES = 3
LENGTHS = [3, 0, 1, 7, 40, 2, 0, 5, 1, 13, 6, 6]
SPEC = HashSpec(40, 11, 2)
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def make_bags(spec: HashSpec = SPEC) -> Bags:
    ids = np.random.default_rng(0).integers(0, 30, sum(LENGTHS))
    keys = ids % spec.num_embeddings if spec.indexing == "identity" else id_keys(ids)
    return Bags(keys, np.concatenate([[0], np.cumsum(LENGTHS)]))


def some_labels(multilabel: bool, weighted: bool = False) -> Labels:
    n = len(LENGTHS)
    if not multilabel:
        return Labels.single(np.arange(n) % CLASSES)
    sets = [list(range(i % 4)) for i in range(n)]  # none to all three
    flat, offsets = np.concatenate(sets).astype(np.int64), np.cumsum([0, *map(len, sets)])
    weights = np.linspace(0, 3, 2 * CLASSES).astype(np.float32).reshape(2, CLASSES)
    return Labels(flat, offsets, weights if weighted else None)


def visible(model: DeepModel) -> DeepModel:
    """Importance weights of ordinary size, so that every gradient is."""
    if model.network.bag.importance is not None:
        with torch.no_grad():
            model.network.bag.importance.normal_(generator=torch.Generator().manual_seed(5))
    return model


def same(a, b) -> bool:
    one, two = a.state(), b.state()
    return one.keys() == two.keys() and all(np.array_equal(one[n], two[n]) for n in one)


class Plain(nn.Module):
    """The network as one would write it, document by document, in float64."""

    def __init__(self, model: DeepModel, widths, options):
        super().__init__()
        t = {name: torch.tensor(a, dtype=torch.float64) for name, a in model.tensors().items()}
        self.spec, self.options = model.spec, options
        self.E = nn.Parameter(t["E"].clone())
        self.P = nn.Parameter(t["P"].clone()) if "P" in t else None
        layers = []
        for i, width in enumerate(widths):
            before = t[f"hidden.{i}.weight"].shape[1]
            linear = nn.Linear(before, width)
            linear.load_state_dict({n: t[f"hidden.{i}.{n}"] for n in ("weight", "bias")})
            layers += [*self.norm(before), linear, nn.ReLU()]
        if widths:
            layers += self.norm(widths[-1])
        output = nn.Linear(t["W"].shape[1], t["W"].shape[0])
        output.load_state_dict({"weight": t["W"], "bias": t["bias"]})
        self.layers = nn.Sequential(*layers, output).double()

    def norm(self, width):
        return [nn.BatchNorm1d(width, eps=EPSILON)] if self.options.get("batch_norm", True) else []

    def document(self, keys):
        rows, buckets = self.spec(keys)
        k = buckets.shape[1]
        P = torch.ones(len(keys), k) if self.P is None else self.P[torch.from_numpy(rows)]
        parts = P.unsqueeze(-1) * self.E[torch.from_numpy(buckets)]  # (n, k, d)
        concat = self.options.get("aggregation") == "concat"
        vectors = parts.flatten(1) if concat else parts.sum(1)
        if self.options.get("append_importance"):
            vectors = torch.cat([vectors, P], dim=1)
        total = vectors.sum(0)
        return total / max(len(keys), 1) if self.options.get("mode") == "mean" else total

    def forward(self, bags: Bags):
        return self.layers(torch.stack([self.document(bags[i]) for i in range(len(bags))]))


def plain_losses(z, labels: Labels, multilabel: bool):
    if not multilabel:
        return F.cross_entropy(z, torch.from_numpy(labels.labels), reduction="none")
    truth = torch.from_numpy(labels.matrix(CLASSES)).double()
    weight = None
    if labels.class_weights is not None:
        weight = torch.where(truth == 1, *torch.from_numpy(labels.class_weights).double())
    return F.binary_cross_entropy_with_logits(z, truth, weight, reduction="none").sum(1)


MODELS = [
    (SPEC, (), {}),
    (SPEC, (9,), {}),
    (SPEC, (9, 8, 7), {"mode": "mean"}),
    (SPEC, (9, 8), {"batch_norm": False}),
    (SPEC, (), {"mode": "mean", "append_importance": True}),
    (HashSpec(20, 7, 3, "shared", seed=4), (6,), {"aggregation": "concat"}),
    (HashSpec(30, 30, 1, "identity"), (9,), {"importance": False}),
    (HashSpec(23, 23, 1), (), {"importance": False}),
]


@pytest.mark.parametrize(("multilabel", "weighted"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("spec", "widths", "options"), MODELS)
def test_adam_steps_like_a_plain_network(spec, widths, options, multilabel, weighted):
    model = visible(DeepModel(spec, 5, CLASSES, widths, multilabel=multilabel, seed=1, **options))
    plain = Plain(model, widths, options)
    optimizer = torch.optim.Adam(plain.parameters())
    bags, labels = make_bags(spec), some_labels(multilabel, weighted)
    weights = np.linspace(0.5, 2, len(bags)).astype(np.float32)
    for number, rate in enumerate([0.01, 0.005, 0.02, 0.01, 0.01, 0.002]):
        order = np.random.default_rng(number).permutation(len(bags))[:6]
        got = model.train(
            bags, labels, order, np.array([rate], np.float32), batch_size=6, weights=weights
        )
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        losses = plain_losses(plain(bags.take(order)), labels.take(order), multilabel)
        losses = losses * torch.from_numpy(weights[order])
        losses.mean().backward()
        optimizer.step()
        np.testing.assert_allclose(got, losses.detach(), rtol=1e-3, atol=1e-3)
        if number in (0, 5):
            assert_same_weights(model, plain)


def assert_same_weights(model: DeepModel, plain: Plain):
    ours = model.tensors()
    hidden = [layer for layer in plain.layers[:-1] if isinstance(layer, nn.Linear)]
    norms = [layer for layer in plain.layers if isinstance(layer, nn.BatchNorm1d)]
    theirs = {"E": plain.E, "W": plain.layers[-1].weight, "bias": plain.layers[-1].bias}
    theirs |= {} if plain.P is None else {"P": plain.P}
    for kind, layers in (("hidden", hidden), ("norms", norms)):
        for i, layer in enumerate(layers):
            theirs |= {f"{kind}.{i}.{n}": getattr(layer, n) for n in ("weight", "bias")}
    statistics = {n for n in ours if n.rpartition(".")[2] in ("mean", "variance", "documents")}
    assert theirs.keys() == ours.keys() - statistics
    for name, value in theirs.items():
        np.testing.assert_allclose(
            ours[name], value.detach(), rtol=1e-4, atol=1e-4, err_msg=name
        )  # a step is about 0.01


@pytest.mark.parametrize(("multilabel", "weighted"), [(False, False), (True, False), (True, True)])
def test_without_hidden_layers_it_is_the_shallow_model(multilabel, weighted, monkeypatch):
    monkeypatch.setattr("hashembed.engine.shallow.model.MARGIN", 0.0)
    deep = visible(DeepModel(SPEC, 5, CLASSES, multilabel=multilabel, optimizer="adagrad"))
    shallow = ShallowModel.from_tensors(SPEC, deep.tensors(), multilabel=multilabel)
    bags, labels = make_bags(), some_labels(multilabel, weighted)
    assert deep.num_parameters == shallow.num_parameters
    np.testing.assert_allclose(deep.scores(bags), shallow.scores(bags), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(deep.probabilities(bags), shallow.probabilities(bags), atol=1e-6)
    order, rates = np.arange(len(bags))[::-1].copy(), np.array([0.1, 0.05, 0.03], np.float32)
    losses = [m.train(bags, labels, order, rates, batch_size=5) for m in (deep, shallow)]
    np.testing.assert_allclose(*losses, rtol=3e-4, atol=3e-4)
    theirs = shallow.tensors()
    for name, array in deep.tensors().items():
        np.testing.assert_allclose(array, theirs[name], rtol=2e-4, atol=2e-5, err_msg=name)
    back = DeepModel.from_tensors(SPEC, theirs, multilabel=multilabel)
    np.testing.assert_allclose(back.scores(bags), shallow.scores(bags), rtol=1e-5, atol=1e-5)


def test_a_standard_embedding_is_an_embedding_bag():
    spec = HashSpec(30, 30, 1, "identity")
    model = DeepModel(spec, 5, CLASSES, importance=False)
    t, bags = {n: torch.from_numpy(a) for n, a in model.tensors().items()}, make_bags(spec)
    starts = torch.from_numpy(bags.offsets[:-1])
    h = F.embedding_bag(torch.from_numpy(bags.keys), t["E"], starts, mode="sum")
    np.testing.assert_allclose(model.scores(bags), h @ t["W"].T + t["bias"], rtol=1e-5, atol=1e-6)
    assert model.num_parameters == 30 * 5 + CLASSES * 6


def test_the_paper_s_deep_model_has_its_parameters():
    model = DeepModel(HashSpec(2000, 500, 2), 200, 4, (1000, 1000, 1000))
    dense = 200 * 1000 + 1000 + 2 * 1001 * 1000 + 1001 * 4
    norms = 2 * (200 + 3 * 1000)
    assert model.num_parameters == 2000 * 2 + 500 * 200 + dense + norms
    assert model.learning_rate == 0.001


# --- batch normalisation ---------------------------------------------------------------------


def test_statistics_are_averages_over_documents_from_the_first_batch_on():
    norm = BatchNorm(4)
    norm.reset_parameters()
    norm.train()
    g = torch.Generator().manual_seed(0)
    batches = [torch.randn(n, 4, generator=g) * 7 + 100 for n in (256, 256, 2)]
    total = mean = variance = 0
    for x in batches:
        norm(x)
        norm.accept()
        total = KEPT * total + len(x)
        mean = mean + (x.mean(0) - mean) * len(x) / total
        variance = variance + (x.var(0) - variance) * len(x) / total
        torch.testing.assert_close(norm.mean, mean)
        torch.testing.assert_close(norm.variance, variance)
    assert (norm.variance - 49).abs().max() < 10  # two documents have not spoilt it


def test_evaluation_is_right_after_very_few_steps():
    """Where `nn.BatchNorm1d` would still half believe in a mean of 0 and a variance of 1."""
    bags, labels = task(600, 0)
    model = DeepModel(HashSpec(2000, 200, 2), 16, CLASSES, (32,))
    with torch.no_grad():
        model.network.bag.importance.normal_(0, 5)  # sums far from 0 and 1
    model.train(bags, labels, np.arange(400), np.full(4, 1e-4, np.float32), batch_size=100)
    keys, offsets = torch.from_numpy(bags.keys), torch.from_numpy(bags.offsets)
    with torch.no_grad():
        by_batch = model.network.train()(keys, offsets).numpy()
    by_statistics = model.scores(bags)
    spread = by_batch.std()
    assert np.abs(by_batch - by_statistics).mean() < 0.1 * spread


@pytest.mark.parametrize("batch_size", [11, 1])
def test_a_last_batch_of_one_document(batch_size):
    bags, labels = make_bags(), some_labels(False)
    model = DeepModel(SPEC, 5, CLASSES, (6, 6))
    steps = -(-len(bags) // batch_size)
    rates = np.full(steps, 0.001, np.float32)
    losses = model.train(bags, labels, np.arange(len(bags)), rates, batch_size=batch_size)
    assert np.isfinite(losses).all()
    assert np.isfinite(model.scores(bags)).all()
    assert all(np.isfinite(array).all() for array in model.state().values())


# --- the protocol ----------------------------------------------------------------------------


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


def model(hidden=(16,), **options) -> DeepModel:
    return DeepModel(HashSpec(2000, 200, 2), 16, CLASSES, hidden, **options)


def test_the_seed_decides_and_torch_s_own_random_state_is_left_alone():
    config = TrainConfig(passes=2, batch_size=32)
    before = torch.get_rng_state()
    one, two, other = model(dropout=0.3), model(dropout=0.3), model(dropout=0.3, seed=1)
    for engine in (one, two, other):
        fit(engine, *TRAIN, config)
    assert torch.equal(before, torch.get_rng_state())
    assert same(one, two)
    assert not same(one, other)


def trained_with(threads: int, optimizer: str) -> DeepModel:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        engine = model((), optimizer=optimizer)
        fit(engine, *TRAIN, TrainConfig(passes=2, batch_size=64, learning_rate=0.01))
        engine.probed = engine.scores(VALID[0])
    finally:
        torch.set_num_threads(before)
    return engine


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_any_number_of_threads(optimizer):
    """Bit-identical if matrix products are small, because PyTorch then uses one thread."""
    one = trained_with(1, optimizer)
    for threads in (2, 3):
        other = trained_with(threads, optimizer)
        assert same(one, other)
        assert np.array_equal(one.probed, other.probed)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adagrad"}, {"dropout": 0.4}])
@pytest.mark.parametrize("stop_after", [1, 3])
def test_resuming_gives_the_same_bits(stop_after, options, tmp_path):
    config = TrainConfig(passes=4, batch_size=32, snippets=(4, 20), patience=2)
    whole = model(**options)
    full = fit(whole, *TRAIN, config, validation=VALID)

    class Killed(Exception):
        pass

    kept: list[TrainingState] = []

    def keep(run: TrainingState):
        kept.append(run)
        if len(run.history.epochs) == stop_after:
            raise Killed

    with pytest.raises(Killed):
        fit(model(**options), *TRAIN, config, validation=VALID, hooks=Hooks(state=keep))
    path = tmp_path / "state.safetensors"
    save_tensors(path, "state", kept[-1].state, {})
    kept[-1].state = load_tensors(path, "state")[0]
    options.setdefault("seed", 0)
    resumed = model(**options)
    history = fit(resumed, *TRAIN, config, validation=VALID, resume=kept[-1])
    assert same(whole, resumed)
    assert [e.loss for e in history.epochs] == [e.loss for e in full.epochs]


def test_a_state_is_a_copy():
    engine = model()
    fit(engine, *TRAIN, TrainConfig(passes=1))
    state = engine.state()
    before = {name: array.copy() for name, array in state.items()}
    fit(engine, *TRAIN, TrainConfig(passes=1))
    assert all(np.array_equal(before[name], array) for name, array in state.items())
    engine.load_state(state)
    fit(engine, *TRAIN, TrainConfig(passes=1))
    assert all(np.array_equal(before[name], array) for name, array in state.items())


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("through", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_learns_on_as_the_original(through, optimizer):
    engine = model(optimizer=optimizer)
    fit(engine, *TRAIN, TrainConfig(passes=1, batch_size=64))
    other = through(engine)
    for one in (engine, other):
        fit(one, *TRAIN, TrainConfig(passes=1, batch_size=64, seed=3))
    assert same(engine, other)


def test_chunks_change_nothing(monkeypatch):
    whole, parts = model(dropout=0.2), model(dropout=0.2)
    config = TrainConfig(passes=1, batch_size=32)
    fit(whole, *TRAIN, config)
    monkeypatch.setattr("hashembed.nn.engine.model.CHUNK", 1)
    fit(parts, *TRAIN, config)
    assert same(whole, parts)


def test_the_paper_s_protocol_stops_early_and_restores_the_best():
    engine = model((24, 24))
    config = TrainConfig.paper(patience=3, batch_size=64, monitor="loss")
    history = fit(engine, *TRAIN, config, validation=VALID)
    assert history.epochs[0].learning_rate == 0.001  # the engine's own
    assert history.stopped == "no better validation loss for 3 passes"
    assert len(history.epochs) == history.best.number + 4
    got = evaluate(engine, *VALID)
    assert got["validation_loss"] == history.best.validation_loss
    assert got["validation_accuracy"] == history.best.validation_accuracy > 0.95


def test_snippets_restrict_a_document_to_a_run_of_its_keys():
    bags, labels = TRAIN
    starts, lengths = bags.snippets(rng_seed=1, epoch=0, minimum=2, maximum=9)
    runs = [bags.keys[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    cut = Bags(np.concatenate(runs), np.concatenate([[0], np.cumsum(lengths)]))
    order, rates = np.arange(len(bags)), np.full(6, 0.01, np.float32)
    whole, part = model(), model()
    whole.train(bags, labels, order, rates, batch_size=100, snippets=(starts, lengths))
    part.train(cut, labels, order, rates, batch_size=100)
    assert same(whole, part)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adagrad"}])
@pytest.mark.parametrize("device", DEVICES)
def test_every_device_trains_like_the_cpu(device, options):
    here, there = model(**options), model(device=device, **options)
    for engine in (here, there):
        fit(engine, *TRAIN, TrainConfig(passes=2, batch_size=100, snippets=(4, 20)))
    np.testing.assert_allclose(there.scores(VALID[0]), here.scores(VALID[0]), rtol=1e-2, atol=1e-2)
    again = model(device=device, **options)
    again.load_state(there.state())
    assert same(again, there)


def test_a_loss_that_is_not_finite_stops_before_the_update():
    bags, labels = TRAIN
    weights = np.ones(len(bags), np.float32)
    weights[250] = np.nan  # in the third batch
    order = np.arange(len(bags))
    two_batches, stopped = model(), model()
    two_batches.train(bags, labels, order[:200], np.full(2, 0.01, np.float32), batch_size=100)
    rates = np.full(6, 0.01, np.float32)
    with pytest.raises(LossNotFiniteError, match="after 2 of 6 batches"):
        stopped.train(bags, labels, order, rates, batch_size=100, weights=weights)
    np.testing.assert_array_equal(two_batches.scores(VALID[0]), stopped.scores(VALID[0]))
    assert same(two_batches, stopped)


def test_statistics_that_are_not_finite_are_not_kept():
    bags, labels = TRAIN
    engine = model()
    with torch.no_grad():
        engine.network.bag.weight[3] = torch.inf
    before = engine.state()
    with pytest.raises(LossNotFiniteError, match="no longer a finite number"):
        fit(engine, bags, labels, TrainConfig(passes=2, batch_size=256))
    after = engine.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert np.isfinite(after["norms.0.mean"]).all()
    # and training goes on from there, even with a batch that has no statistics of its own
    with torch.no_grad():
        engine.network.bag.weight[3] = 0
    engine.train(bags, labels, np.arange(1), np.full(1, 0.01, np.float32))
    assert np.isfinite(engine.state()["norms.0.mean"]).all()
    fit(engine, bags, labels, TrainConfig(passes=1))
    assert np.isfinite(engine.scores(VALID[0])).all()


def test_documents_that_weigh_nothing_teach_nothing():
    engine = model(())
    fit(engine, *TRAIN, TrainConfig(passes=1), weights=np.zeros(600, np.float32))
    fresh = model(()).tensors()
    assert all(np.array_equal(array, fresh[name]) for name, array in engine.tensors().items())


def test_dropout_leaves_out_its_part_of_the_n_grams_in_training_alone():
    engine, without = model((), dropout=0.25), model(())
    visible(engine), visible(without)
    assert np.array_equal(engine.scores(VALID[0]), without.scores(VALID[0]))
    ones = Bags(np.full(20_000, id_keys(7)), np.array([0, 20_000]))
    keys, offsets = torch.from_numpy(ones.keys), torch.from_numpy(ones.offsets)
    with torch.no_grad():
        dropped = engine.network.train()(
            keys, offsets, engine.dropout_mask(20_000, torch.tensor(0))
        )
        whole = without.network.train()(keys, offsets)
    ratio = (dropped / whole).flatten()  # the biases are zero
    assert (ratio - 1).abs().max() < 0.02
    assert (ratio - 1).abs().max() > 0
    engine.train(*TRAIN, np.arange(600), np.full(3, 0.01, np.float32), batch_size=200)
    without.train(*TRAIN, np.arange(600), np.full(3, 0.01, np.float32), batch_size=200)
    assert not np.array_equal(engine.scores(VALID[0]), without.scores(VALID[0]))


def test_scoring_in_parts(monkeypatch):
    engine = visible(model())
    bags = Bags.concat([make_bags(), VALID[0]])
    whole = engine.scores(bags)
    monkeypatch.setattr("hashembed.nn.engine.scoring.NGRAMS_AT_ONCE", 30)  # one document has 40
    monkeypatch.setattr("hashembed.nn.engine.scoring.DOCUMENTS_AT_ONCE", 3)
    np.testing.assert_allclose(engine.scores(bags), whole, rtol=1e-5, atol=1e-5)


def test_no_documents_and_no_bags():
    engine = model()
    empty = Bags(np.empty(0, np.int64), np.zeros(1, np.int64))
    assert engine.scores(empty).shape == engine.probabilities(empty).shape == (0, CLASSES)
    none = np.empty(0, np.int64)
    assert len(engine.train(empty, Labels.single(none), none, np.empty(0, np.float32))) == 0
    hollow = Bags(np.empty(0, np.int64), np.zeros(6, np.int64))
    labels = Labels.single(np.arange(5) % CLASSES)
    losses = engine.train(hollow, labels, np.arange(5), np.full(1, 0.01, np.float32))
    assert np.isfinite(losses).all()
    assert np.isfinite(engine.scores(hollow)).all()


def test_keys_that_may_not_be_written_to():
    bags, labels = TRAIN
    keys = bags.keys.copy()
    keys.flags.writeable = False
    one, two = model(), model()
    fit(one, bags, labels, TrainConfig(passes=1))
    fit(two, Bags(keys, bags.offsets), labels, TrainConfig(passes=1))
    assert same(one, two)


# --- files, and a real task ------------------------------------------------------------------


def test_save_and_load(tmp_path):
    options = {"mode": "mean", "aggregation": "concat", "append_importance": True}
    engine = model((12, 7), **options)
    fit(engine, *TRAIN, TrainConfig(passes=2, batch_size=32))
    path = tmp_path / "model.safetensors"
    save_tensors(path, "deep", engine.tensors(), {})
    tensors, _ = load_tensors(path, "deep")
    loaded = DeepModel.from_tensors(engine.spec, tensors, **options)
    assert np.array_equal(engine.scores(VALID[0]), loaded.scores(VALID[0]))
    assert loaded.num_parameters == engine.num_parameters
    half = {n: a.astype(np.float16) if n in "EP" else a for n, a in tensors.items()}
    rounded = DeepModel.from_tensors(engine.spec, half, **options)
    np.testing.assert_allclose(rounded.scores(VALID[0]), loaded.scores(VALID[0]), atol=0.05)


def test_tensors_are_those_that_scores_are_made_of():
    """Rows that have not been read for a while catch up before they are saved."""
    engine = model(())
    fit(engine, *TRAIN, TrainConfig(passes=3, batch_size=32, learning_rate=0.01))
    scores = ShallowModel.from_tensors(engine.spec, engine.tensors()).scores(VALID[0])
    np.testing.assert_allclose(engine.scores(VALID[0]), scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden": (16, 0)}, "hidden_layers .* found 0"),
        ({"dropout": 1.0}, r"dropout must be from 0 to below 1, found 1\.0"),
        ({"optimizer": "sgd"}, "optimizer must be one of 'adam', 'adagrad', found 'sgd'"),
        ({"mode": "max"}, "mode must be one of"),
    ],
)
def test_bad_settings_get_a_sentence(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model(**options)


def test_bad_calls_get_a_sentence():
    bags, labels = TRAIN
    with pytest.raises(ValueError, match="there are 6 batches, but 2 rates"):
        model().train(bags, labels, np.arange(600), np.zeros(2, np.float32), batch_size=100)
    tensors = model().tensors()
    del tensors["norms.0.mean"]
    with pytest.raises(ValueError, match=r"missing or unknown: norms\.0\.mean"):
        DeepModel.from_tensors(HashSpec(2000, 200, 2), tensors)
    with pytest.raises(ValueError, match=r"E must have the shape \(100, 16\), found \(200, 16\)"):
        DeepModel.from_tensors(HashSpec(2000, 100, 2), model().tensors())


@pytest.mark.parametrize(("hidden", "accuracy"), [((), 0.95), ((100,), 0.92)])
def test_learns_languages(hidden, accuracy):
    sentences = load_task(TextConfig(ngrams=(1, 1), subwords=(2, 4)))
    engine = DeepModel(HashSpec(20_000, 2_000), 16, len(sentences.languages), hidden, seed=3)
    train = sentences.train, Labels.single(sentences.train_labels)
    fit(engine, *train, TrainConfig(passes=2, batch_size=128, learning_rate=0.02, decay=True))
    test = evaluate(engine, sentences.test, Labels.single(sentences.test_labels))
    assert test["validation_accuracy"] > accuracy
