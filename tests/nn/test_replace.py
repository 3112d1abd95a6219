"""replace_embeddings on models of several shapes."""

import copy
import pickle

import pytest
import torch
from torch import nn

from hashembed import HashEmbedding, HashEmbeddingBag, replace_embeddings


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(5000, 16, padding_idx=0)
        self.tags = nn.EmbeddingBag(4000, 16, mode="mean", include_last_offset=True)
        self.small = nn.Embedding(10, 16)
        self.head = nn.ModuleDict({"deep": nn.Sequential(nn.Linear(48, 8), nn.Embedding(3000, 8))})

    def forward(self, users, tags, offsets, small):
        parts = [self.users(users), self.tags(tags, offsets), self.small(small)]
        return self.head["deep"][0](torch.cat(parts, -1))


def test_swaps_the_big_tables_and_reports():
    model = Recommender().eval().to(torch.float64)
    before = sum(p.numel() for p in model.parameters())
    report = replace_embeddings(model, min_parameters=20_000)
    assert isinstance(model.users, HashEmbedding)
    assert isinstance(model.tags, HashEmbeddingBag)
    assert type(model.small) is nn.Embedding
    assert isinstance(model.head["deep"][1], HashEmbedding)
    assert (model.users.padding_idx, model.users.num_embeddings) == (0, 5000)
    assert (model.tags.mode, model.tags.include_last_offset) == ("mean", True)
    assert model.users.weight.dtype == torch.float64
    assert not model.users.training
    assert [name for name, _, _ in report.replaced] == ["users", "tags", "head.deep.1"]
    assert report.total_before == before
    assert report.total_after == sum(p.numel() for p in model.parameters()) < before
    assert "users" in str(report)
    assert f"{before:,}" in str(report)
    out = model(
        torch.tensor([0, 9]), torch.tensor([1, 2, 3]), torch.tensor([0, 1, 3]), torch.ones(2).long()
    )
    out.sum().backward()
    assert model.users.importance.grad.any()


def test_a_module_used_twice_stays_one_module():
    model = nn.Module()
    model.a = model.b = nn.Embedding(5000, 16)
    replace_embeddings(model, min_parameters=1)
    assert isinstance(model.a, HashEmbedding)
    assert model.a is model.b


class Tied(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first = nn.Embedding(3000, 16)
        self.table = nn.Embedding(2000, 16)
        self.out = nn.Linear(16, 2000)
        if how == "parameter":
            self.out.weight = self.table.weight
        else:
            self.out.weight.data = self.table.weight.data


@pytest.mark.parametrize("how", ["parameter", "storage"])
def test_tied_weights_are_refused_before_anything_changes(how):
    model = Tied(how)
    with pytest.raises(ValueError, match=r"table\.weight is tied to out\.weight"):
        replace_embeddings(model, min_parameters=1)
    assert type(model.first) is nn.Embedding


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (nn.Embedding(5000, 16, max_norm=1.0), "max_norm is set"),
        (nn.Embedding(5000, 16, scale_grad_by_freq=True), "scale_grad_by_freq is set"),
        (nn.EmbeddingBag(5000, 16, mode="max"), 'mode="max"'),
        (nn.Embedding(5000, 2), "a hash layer would have 10,998 parameters instead of 10,000"),
        (nn.Embedding(600_000, 1), "a hash layer would have 1,259,999 parameters"),
        (nn.Embedding.from_pretrained(torch.rand(5000, 16)), "its weight is frozen"),
        (type("Mine", (nn.Embedding,), {})(5000, 16), "Mine may do more than look up rows"),
    ],
)
def test_what_cannot_be_swapped_is_left_and_named(table, reason):
    model = nn.Sequential(table)
    report = replace_embeddings(model, min_parameters=1)
    assert model[0] is table
    assert report.replaced == []
    assert reason in report.skipped[0][1]
    assert f"left 0: {report.skipped[0][1]}" in str(report)


def test_options_reach_the_layers():
    model = nn.Sequential(nn.Embedding(5000, 16))
    replace_embeddings(
        model, min_parameters=1, num_buckets=77, num_hashes=3, indexing="independent", seed=4
    )
    layer = model[0]
    assert (layer.num_buckets, layer.num_hashes, layer.indexing, layer.seed) == (
        77,
        3,
        "independent",
        4,
    )
    layer(torch.tensor([10**12]))


def test_every_table_gets_a_hash_of_its_own_from_its_name():
    def swapped(torch_seed, **options):
        torch.manual_seed(torch_seed)
        tables = {"user": nn.Embedding(5000, 16), "item": nn.Embedding(5000, 16)}
        model = nn.ModuleDict(tables)
        replace_embeddings(model, min_parameters=1, **options)
        return model

    model = swapped(0)
    assert model.user.seed != model.item.seed
    assert not torch.equal(model.user.hash_seeds, model.item.hash_seeds)
    assert not torch.equal(model.user.weight, model.item.weight)
    again, other = swapped(0), swapped(1)
    for name in ("user", "item"):
        assert model[name].seed == again[name].seed == other[name].seed
        assert torch.equal(model[name].weight, again[name].weight)
        assert not torch.equal(model[name].weight, other[name].weight)
    given = swapped(0, seed=4)
    assert given.user.seed == given.item.seed == 4


def test_hash_layers_are_not_tables():
    model = nn.Sequential(HashEmbedding(5000, 16, sparse=True))
    layer = model[0]
    report = replace_embeddings(model, min_parameters=1)
    assert model[0] is layer
    assert report.replaced == report.skipped == []


@pytest.mark.parametrize("option", [{"append_importance": True}, {"aggregation": "concat"}])
def test_options_that_change_the_width_are_refused(option):
    with pytest.raises(ValueError, match="changes the width of the vectors"):
        replace_embeddings(nn.Sequential(nn.Embedding(5000, 16)), **option)


def test_a_bare_table_cannot_be_swapped_in_place():
    with pytest.raises(ValueError, match="model is itself an Embedding"):
        replace_embeddings(nn.Embedding(5000, 16))


@pytest.mark.parametrize("indexing", ["identity", "independent"])
def test_the_new_layers_have_the_scale_of_the_table(indexing):
    model = nn.Sequential(nn.Embedding(5000, 16, padding_idx=4), nn.EmbeddingBag(4000, 32))
    with torch.no_grad():
        model[0].weight.mul_(0.02).add_(0.5)
        model[0].weight[4] = 1e6  # padding does not count
        model[1].weight.uniform_(-3, 1)
    want = [(0.5, 0.02), (-1.0, 16**0.5 / 12**0.5)]
    replace_embeddings(model, min_parameters=1, indexing=indexing)
    for layer, (mean, std) in zip(model, want, strict=True):
        ids = torch.arange(10, 3000).view(-1, 1)
        vectors = layer(ids)
        assert vectors.mean().item() == pytest.approx(mean, rel=0.05)
        assert vectors.std().item() == pytest.approx(std, rel=0.05)
    other = nn.Sequential(nn.Embedding(5000, 16))
    replace_embeddings(other, min_parameters=1, init="bag")
    assert other[0](torch.arange(99)).std() < 1e-3


class Features(nn.Module):
    def __init__(self, kind, sizes=(300, 40, 5000), table=nn.Embedding):
        super().__init__()
        tables = [table(size, 8) for size in sizes]
        named = {f"f{i}": table for i, table in enumerate(tables)}
        self.tables = nn.ModuleDict(named) if kind == "dict" else nn.ModuleList(tables)

        self.names = list(named) if kind == "dict" else range(len(sizes))

    def forward(self, ids):
        found = [self.tables[name](ids[:, i]) for i, name in enumerate(self.names)]
        return torch.stack(found, 1)


@pytest.mark.parametrize("indexing", ["identity", "independent"])
@pytest.mark.parametrize("kind", ["list", "dict"])
def test_a_list_of_tables_becomes_one_layer(kind, indexing):
    model = Features(kind)
    ids = torch.stack([torch.arange(40), torch.arange(40), torch.arange(40) * 100], 1)
    assert model(ids).shape == (40, 3, 8)
    report = replace_embeddings(
        model, min_parameters=1000, num_buckets=100, indexing=indexing, one_table=True
    )
    layer = model.tables.layer
    assert isinstance(layer, HashEmbedding)
    assert [name for name, _, _ in report.replaced] == ["tables"]
    assert layer.columns == ([300, 40, 5000] if indexing == "identity" else 3)
    assert len(list(model.parameters())) == 2
    assert report.total_after == sum(p.numel() for p in model.parameters()) == 800 + 5340 * 2
    assert torch.equal(model(ids), model.tables(ids))  # column by column, or all at once
    model(ids).sum().backward()
    assert layer.weight.grad.any()
    assert model(ids).std().item() == pytest.approx(1.0, rel=0.2)
    twin = Features(kind)
    replace_embeddings(
        twin, min_parameters=1000, num_buckets=100, indexing=indexing, one_table=True
    )
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(ids), model(ids))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(ids), model(ids))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(ids), model(ids))
    if indexing == "identity":
        with pytest.raises(ValueError, match="size of their column"):
            model.tables["f1" if kind == "dict" else 1](torch.tensor([40]))


def test_columns_look_like_a_list_or_a_dictionary():
    model, named = Features("list"), Features("dict")
    for one in (model, named):
        replace_embeddings(one, min_parameters=1, num_buckets=100, one_table=True)
    ids = torch.arange(5)
    assert len(model.tables) == len(named.tables) == 3
    assert [table.num_embeddings for table in model.tables] == [300, 40, 5000]
    assert torch.equal(model.tables[-1](ids), model.tables[2](ids))
    assert list(named.tables) == named.tables.keys() == ["f0", "f1", "f2"]
    assert "f1" in named.tables
    assert [table.embedding_dim for _, table in named.tables.items()] == [8, 8, 8]
    with pytest.raises(KeyError):
        named.tables["f9"]
    with pytest.raises(IndexError):
        model.tables[3]


def test_bags_of_several_columns_in_one_table():
    model = Features("list", table=lambda n, d: nn.EmbeddingBag(n, d, mode="sum"))
    replace_embeddings(model, min_parameters=1, num_buckets=100, one_table=True)
    layer = model.tables.layer
    assert isinstance(layer, HashEmbeddingBag)
    ids, offsets = torch.arange(5), torch.tensor([0, 2])
    want = layer(ids, offsets, columns=torch.full((5,), 2))
    assert torch.equal(model.tables[2](ids, offsets), want)


def test_lists_that_cannot_be_one_table_are_replaced_one_by_one():
    model = nn.Module()
    model.tables = nn.ModuleList([nn.Embedding(5000, 16), nn.Embedding(5000, 8)])
    report = replace_embeddings(model, min_parameters=1, one_table=True)
    assert isinstance(model.tables[1], HashEmbedding)
    assert report.skipped == [
        ("tables", "its tables differ in width, type or options; its tables are treated one by one")
    ]
    mixed = nn.Module()
    mixed.tables = nn.ModuleList([nn.Embedding(5000, 16), nn.Linear(16, 16)])
    report = replace_embeddings(mixed, min_parameters=1, one_table=True)
    assert [name for name, _, _ in report.replaced] == ["tables.0"]
