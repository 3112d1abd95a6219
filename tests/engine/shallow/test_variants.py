"""Every kernel against the one for every model, bit for bit, and against plain NumPy."""

import itertools

import numpy as np
import pytest

from hashembed.engine.labels import Labels
from hashembed.engine.shallow import kernel, model
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, Indexing, id_keys

WIDTHS = [1, 3, 15, 16, 17, 31, 32, 33, 64, 100]
DOCUMENTS, CLASSES = 60, 5
KERNELS = [kernel.FOR_16, kernel.FOR_32, kernel.FOR_ANY]


def make_bags(spec: HashSpec) -> Bags:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 30, DOCUMENTS)
    ids = rng.integers(0, 50, lengths.sum()).astype(np.int64)
    keys = ids % spec.num_embeddings if spec.indexing == "identity" else id_keys(ids)
    return Bags(keys, np.concatenate([[0], np.cumsum(lengths)]))


def vectors(made: ShallowModel, bags: Bags) -> np.ndarray:
    """Sums of hash vectors, in float64."""
    rows, buckets = made.spec(bags.keys)
    parts = made.tables.E[buckets].astype(np.float64)
    if made.importance:
        parts *= made.importance_weights[rows][..., None]
    ends = bags.offsets
    tokens = parts.sum(axis=1)
    return np.stack([tokens[a:b].sum(axis=0) for a, b in itertools.pairwise(ends)])


def step(made: ShallowModel, bags: Bags, labels: Labels, rate: float) -> np.ndarray:
    """The tensor W after one batch of all documents, in float64: it sees every phase before it."""
    h, W = vectors(made, bags), made.tables.W.astype(np.float64)
    z = h @ W.T + made.tables.bias
    if made.multilabel:
        p = 1 / (1 + np.exp(-z))
    else:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
    gradient = (p - labels.matrix(CLASSES)).T @ h
    return W - rate * gradient / (np.abs(gradient) + model.EPSILON)


def train(spec: HashSpec, d: int, importance: bool, multilabel: bool) -> ShallowModel:
    made = ShallowModel(
        spec, d, CLASSES, importance=importance, multilabel=multilabel, seed=1, threads=2
    )
    if importance:
        made.importance_weights[:] = np.random.default_rng(5).standard_normal((40, spec.num_hashes))
    bags, order = make_bags(spec), np.arange(DOCUMENTS)
    np.testing.assert_allclose(made.vectors(bags), vectors(made, bags), rtol=1e-4, atol=1e-4)
    labels = Labels.single(np.arange(DOCUMENTS) % CLASSES)
    want = step(made, bags, labels, 0.1)
    rates = np.full(1, 0.1, np.float32)
    made.train(bags, labels, order, rates, batch_size=DOCUMENTS)
    np.testing.assert_allclose(made.tables.W, want, rtol=1e-3, atol=1e-3)
    made.train(bags, labels, order, np.full(4, 0.1, np.float32), batch_size=16)
    for table in (made.memory.E, made.memory.W, made.memory.W_square):
        assert table.shape[1] % 16 == 0
        assert not table[:, d:].any()  # the padding
    made.probed = made.scores(bags)
    return made


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("multilabel", [False, True])
def test_usual_models(d, multilabel, monkeypatch):
    """Those that have a kernel of their own get the same bits from the one for every model."""
    spec = HashSpec(40, 11, 2)
    own = train(spec, d, True, multilabel)
    monkeypatch.setattr(kernel, "FOR_16", kernel.FOR_ANY)
    monkeypatch.setattr(kernel, "FOR_32", kernel.FOR_ANY)
    other = train(spec, d, True, multilabel)
    for name, array in own.state().items():
        assert array.tobytes() == other.state()[name].tobytes(), name
    assert own.probed.tobytes() == other.probed.tobytes()


@pytest.mark.parametrize("d", [3, 33])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("indexing", ["independent", "shared", "identity", "direct"])
@pytest.mark.parametrize("importance", [False, True])
@pytest.mark.parametrize("multilabel", [False, True])
def test_other_models(d, k, indexing: Indexing, importance, multilabel):
    buckets = 40 if indexing == "direct" else 11
    spec = HashSpec(40, buckets, k, "identity" if indexing == "direct" else indexing)
    train(spec, d, importance, multilabel)


def test_which_kernels():
    def chosen(d, k=2, indexing: Indexing = "independent", importance=True):
        return kernel.kernels_for(HashSpec(40, 11, k, indexing), d, importance)

    assert [KERNELS.index(chosen(d)) for d in WIDTHS] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    others = [chosen(16, k=3), chosen(16, indexing="shared"), chosen(16, importance=False)]
    assert all(other is kernel.FOR_ANY for other in others)


def test_padding_is_zero_after_going_back():
    """Weights that are not finite spoil the padding too."""
    made = ShallowModel(HashSpec(40, 11, 2), 5, 3)
    before = made.state()
    for table in (made.memory.E, made.memory.W, made.memory.W_square):
        table.fill(np.nan)
    made.load_state(before)
    assert np.isfinite(made.scores(make_bags(made.spec))).all()
