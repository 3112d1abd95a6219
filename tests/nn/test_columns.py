"""Several columns of ids in one table."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from hashembed import HashEmbedding, HashEmbeddingBag, HashSpec
from hashembed.hashing.spec import id_keys
from hashembed.nn.optim import RowAdagrad, RowAdam

C = 5
IDS = torch.randint(0, 50, (7, C), generator=torch.Generator().manual_seed(0))
SIZES = [50, 60, 50, 70, 51]


def layer(cls=HashEmbedding, *, indexing="independent", dtype=None, **options):
    columns = SIZES if indexing == "identity" else C
    given = {"num_buckets": 23, "indexing": indexing, "columns": columns, "init": 1.0, "seed": 3}
    made = cls(sum(SIZES), 4, dtype=dtype, **{**given, **options})
    if made.importance is not None:
        with torch.no_grad():
            made.importance.normal_(generator=torch.Generator().manual_seed(9))
    return made


def keys(indexing):
    if indexing == "identity":
        return IDS.numpy() + np.cumsum([0, *SIZES])[:-1]
    return id_keys(IDS.numpy(), np.arange(C))


def by_hand(made, indexing):
    """The definition, one id at a time."""
    rows, buckets = made.spec(keys(indexing))
    E, P = made.weight, made.importance
    parts = E[torch.from_numpy(buckets)]  # (7, C, k, d)
    if P is not None:
        parts = P[torch.from_numpy(rows)].unsqueeze(-1) * parts
    return parts.sum(-2)


INDEXINGS = ["independent", "shared", "identity"]


@pytest.mark.parametrize("importance", [True, False])
@pytest.mark.parametrize("indexing", INDEXINGS)
def test_vectors_and_gradients_are_those_of_salted_keys(indexing, importance):
    made = layer(indexing=indexing, importance=importance, dtype=torch.float64)
    upstream = torch.randn(7, C, 4, dtype=torch.float64)
    results = []
    for out in (made(IDS), by_hand(made, indexing)):
        assert out.shape == (7, C, 4)
        results.append([out, *torch.autograd.grad(out, list(made.parameters()), upstream)])
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("indexing", INDEXINGS)
def test_columns_may_be_given_for_each_id(indexing):
    made = layer(indexing=indexing)
    want = made(IDS)
    for column in range(C):
        assert torch.equal(made(IDS[:, column], columns=column), want[:, column])
    order = torch.tensor([3, 0, 4])
    assert torch.equal(made(IDS[:, order], columns=order), want[:, order])
    flat = made(IDS.reshape(-1), columns=torch.arange(C).repeat(7))
    assert torch.equal(flat.view(7, C, 4), want)
    assert torch.equal(made(IDS[0]), want[0])
    assert torch.equal(made(IDS.expand(2, 7, C))[1], want)
    assert torch.equal(made(IDS.T.contiguous().T), want)


@pytest.mark.parametrize("indexing", INDEXINGS)
def test_a_bag_adds_the_vectors_of_all_columns(indexing):
    single, bag = layer(indexing=indexing), layer(HashEmbeddingBag, indexing=indexing)
    bag.load_state_dict(single.state_dict())
    torch.testing.assert_close(bag(IDS), single(IDS).sum(1))
    # field, id and value of each entry, as libffm has them
    fields = torch.tensor([0, 3, 3, 1, 4])
    ids, values = IDS[0, fields], torch.tensor([1.0, 0.5, -2.0, 3.0, 1.0])
    got = bag(ids, torch.tensor([0, 2, 2]), values, columns=fields)
    vectors = single(ids, columns=fields) * values.unsqueeze(1)
    want = torch.stack([vectors[:2].sum(0), torch.zeros(4), vectors[2:].sum(0)])
    torch.testing.assert_close(got, want)
    with pytest.raises(ValueError, match="1-D ids do not say which column"):
        bag(ids, torch.tensor([0, 2]))


def test_equal_ids_of_different_columns_are_independent():
    spec = HashSpec(1000, 100, 2, seed=1)
    ids = np.arange(20_000)
    rows, buckets = zip(*(spec(id_keys(ids, c)) for c in range(4)), strict=True)
    for a in range(4):
        for b in range(a):
            for x, y, n in (
                (rows[a], rows[b], 1000),
                (buckets[a][:, 0], buckets[b][:, 0], 100),
                (buckets[a][:, 0], buckets[b][:, 1], 100),
            ):
                agree, expected = (x == y).sum(), len(ids) / n
                assert abs(agree - expected) < 6 * expected**0.5


def test_column_0_has_the_vectors_of_a_layer_without_columns():
    plain = HashEmbedding(sum(SIZES), 4, num_buckets=23, seed=3)
    with torch.no_grad():
        made = layer()
        plain.weight.copy_(made.weight)
        plain.importance.copy_(made.importance)
    assert torch.equal(plain(IDS[:, 0]), made(IDS)[:, 0])
    assert not torch.equal(plain(IDS[:, 1]), made(IDS)[:, 1])


@pytest.mark.parametrize("indexing", INDEXINGS)
def test_padding_is_padding_in_every_column(indexing):
    made = layer(indexing=indexing, padding_idx=2)
    ids = IDS.clone()
    ids[0], ids[1, 3] = 2, 2
    out = made(ids)
    assert not out[0].any()
    assert not out[1, 3].any()
    assert out[1, 4].any()
    bag = layer(HashEmbeddingBag, indexing=indexing, padding_idx=2, mode="mean")
    torch.testing.assert_close(bag(ids)[1], made(ids)[1, ids[1] != 2].mean(0))


@pytest.mark.parametrize("indexing", INDEXINGS)
@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_the_state_carries_the_columns(cls, indexing, tmp_path):
    source, target = layer(cls, indexing=indexing), layer(cls, indexing=indexing, seed=8)
    assert not torch.equal(source(IDS), target(IDS))
    target.load_state_dict(source.state_dict())
    assert torch.equal(source(IDS), target(IDS))
    torch.save(source.state_dict(), tmp_path / "state.pt")
    target.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for twin in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert torch.equal(twin(IDS), source(IDS))
        assert repr(twin) == repr(source)
    assert f"columns={SIZES if indexing == 'identity' else C}" in repr(source)
    meta = layer(cls, indexing=indexing, device="meta")
    meta.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(meta(IDS), source(IDS))


def test_a_state_with_other_columns_is_refused():
    made = layer()
    others = [
        (layer(columns=None), r"columns None \(this layer: 5\)"),
        (layer(columns=6), r"columns 6 \(this layer: 5\)"),
    ]
    for other, words in others:
        with pytest.raises(RuntimeError, match=words):
            made.load_state_dict(other.state_dict())
        with pytest.raises(RuntimeError, match="columns 5"):
            other.load_state_dict(made.state_dict())
    ranks, turned = layer(indexing="identity"), layer(indexing="identity", columns=SIZES[::-1])
    with pytest.raises(RuntimeError, match=r"columns \[50, 60, 50, 70, 51\] \(this layer: \[51"):
        turned.load_state_dict(ranks.state_dict())


def test_a_layer_without_columns_keeps_its_state_as_it_was():
    assert HashEmbedding(100, 4).hash_spec.shape == (5,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    made = layer(dtype=dtype)
    out = made(IDS)
    assert out.dtype == dtype
    wide = copy.deepcopy(made).double()
    torch.testing.assert_close(out, by_hand(wide, "independent").to(dtype))
    out.sum().backward()
    assert made.weight.grad is not None


@pytest.mark.parametrize("indexing", INDEXINGS)
def test_sparse_gradients(indexing):
    dense, sparse = layer(indexing=indexing), layer(indexing=indexing, sparse=True)
    for made in (dense, sparse):
        made(IDS).square().sum().backward()
    for mine, reference in zip(sparse.parameters(), dense.parameters(), strict=True):
        assert mine.grad.is_sparse
        torch.testing.assert_close(mine.grad.to_dense(), reference.grad)


@pytest.mark.parametrize("indexing", INDEXINGS)
@pytest.mark.parametrize(
    ("ours", "theirs"), [(RowAdagrad, torch.optim.Adagrad), (RowAdam, torch.optim.Adam)]
)
def test_row_optimizers_train_one_table(ours, theirs, indexing):
    pair = layer(indexing=indexing), layer(indexing=indexing)
    start = pair[0].weight.detach().clone()
    for made, kind in zip(pair, (ours, theirs), strict=True):
        optimizer = kind(made.parameters(), lr=0.05)
        for _ in range(4):
            optimizer.zero_grad()
            made(IDS).square().sum().backward()
            optimizer.step()
    assert not torch.equal(pair[0].weight, start)
    assert len(optimizer.state) == 2  # E and P, whatever the number of columns
    for mine, wanted in zip(*(made.state_dict().values() for made in pair), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("indexing", INDEXINGS)
@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_compile_without_graph_breaks(cls, indexing):
    torch._dynamo.reset()
    made = layer(cls, indexing=indexing)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    results = []
    for module in (made, compiled):
        made.zero_grad()
        out = module(IDS)
        out.square().sum().backward()
        results.append([out.detach(), made.weight.grad, made.importance.grad])
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("indexing", INDEXINGS)
def test_export_and_vmap(indexing):
    made = layer(indexing=indexing)
    program = torch.export.export(
        made, (IDS,), dynamic_shapes={"ids": {0: torch.export.Dim("batch", min=2, max=99)}}
    )
    more = torch.cat([IDS, IDS])
    torch.testing.assert_close(program.module()(more), made(more))
    torch.testing.assert_close(torch.vmap(made)(IDS), made(IDS))


@pytest.mark.parametrize("shape", [(0, C), (2, 0, C)])
def test_no_rows(shape):
    out = layer()(torch.zeros(shape, dtype=torch.int64))
    assert out.shape == (*shape, 4)
    out.sum().backward()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: layer()(IDS[:, :4]), ValueError, r"must have 5 columns.*found the shape \(7, 4\)"),
        (lambda: layer()(torch.tensor(1)), ValueError, "must have 5 columns"),
        (lambda: layer()(IDS[:, 0], columns=5), ValueError, "from 0 to 4, found 5"),
        (
            lambda: layer()(IDS[:, 0], columns=torch.full((7,), -1)),
            ValueError,
            "numbered from 0 to 4, found -1 to -1",
        ),
        (
            lambda: layer()(IDS[:, 0], columns=torch.arange(3)),
            ValueError,
            r"one number for each id, in the shape \(7,\)",
        ),
        (lambda: layer(columns=None)(IDS, columns=1), TypeError, "built without columns"),
        (lambda: layer(columns=0), ValueError, "columns must be a whole number from 1"),
        (lambda: layer(columns=[3, 4]), TypeError, 'a number with indexing="independent"'),
        (lambda: layer(indexing="identity", columns=5), TypeError, "a list of sizes"),
        (
            lambda: layer(indexing="identity", columns=[3, 4]),
            ValueError,
            "the sum of the sizes of all columns, 7, found 281",
        ),
        (
            lambda: layer(indexing="identity")(IDS + 10),
            ValueError,
            r"the size of their column minus 1, with sizes \[50",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_recommender_learns_with_one_table():
    torch.manual_seed(0)
    ids = torch.randint(0, 40, (600, 3))
    effects = torch.randn(3, 40)
    labels = effects[torch.arange(3), ids].sum(1)
    model = nn.Sequential(HashEmbeddingBag(120, 8, num_buckets=60, columns=3, init="dot", seed=0))
    model.append(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (model(ids).squeeze(1) - labels).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.1 * labels.var()
