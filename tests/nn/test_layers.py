"""The layers as a user meets them: arguments, inputs, padding, initialisation, state."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import hashembed
from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.hashing.spec import id_keys

IDS = torch.tensor([[0, 1, -1], [2**63 - 1, -(2**63), 10**15]])


def trained(layer):
    """A layer whose importance weights are large enough to see."""
    with torch.no_grad():
        if layer.importance is not None:
            layer.importance.normal_(generator=torch.Generator().manual_seed(9))
    return layer


@pytest.mark.parametrize("indexing", ["independent", "shared"])
def test_any_int64_is_a_valid_id(indexing):
    layer = trained(HashEmbedding(1000, 4, indexing=indexing))
    out = layer(IDS)
    assert out.shape == (2, 3, 4)
    assert torch.isfinite(out).all()
    assert len(out.view(-1, 4).unique(dim=0)) == 6


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3, 4, 5)])
def test_any_shape_forward_and_backward(shape):
    layer = HashEmbedding(100, 6)
    out = layer(torch.zeros(shape, dtype=torch.int64))
    assert out.shape == (*shape, 6)
    out.sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 8),
        ({"aggregation": "concat"}, 16),
        ({"append_importance": True}, 10),
        ({"aggregation": "concat", "append_importance": True, "num_hashes": 3}, 27),
        ({"importance": False}, 8),
        ({"importance": False, "aggregation": "concat"}, 16),
    ],
)
@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_output_dim_is_the_width_of_the_output(cls, options, width):
    layer = cls(100, 8, **options)
    assert layer.output_dim == width == layer(torch.arange(6).view(2, 3)).shape[-1]


def test_parameters_are_what_the_paper_counts():
    layer = HashEmbedding(10_000, 20, num_buckets=1000, num_hashes=2)
    assert layer.weight.shape == (1000, 20)
    assert layer.importance.shape == (10_000, 2)
    assert sum(p.numel() for p in layer.parameters()) == 1000 * 20 + 10_000 * 2


@given(st.integers(1, 10_000), st.integers(1, 4))
def test_default_buckets_keep_the_rule_of_the_paper(K, k):
    layer = HashEmbedding(K, 1, num_hashes=k, device="meta")
    assert layer.num_buckets >= k
    assert 10 * layer.num_buckets < K or layer.num_buckets == k


def test_initial_values_follow_the_authors_code():
    layer = HashEmbedding(200_000, 20, num_buckets=20_000, seed=0)
    for table, std in ((layer.weight, 0.1), (layer.importance, 0.0005)):
        n = table.numel()
        assert abs(table.mean().item()) < 5 * std / n**0.5
        assert abs(table.std().item() / std - 1) < 5 / (2 * n) ** 0.5


def same_start(a, b):
    return torch.equal(a.weight, b.weight) and torch.equal(a.importance, b.importance)


def test_without_a_seed_values_and_hash_come_from_torch_as_in_every_module():
    torch.manual_seed(5)
    first, second = HashEmbedding(1000, 8), HashEmbedding(1000, 8)
    assert not same_start(first, second)
    assert first.seed != second.seed
    buckets = [layer.spec(np.arange(1000))[1] for layer in (first, second)]
    assert (buckets[0] == buckets[1]).mean() < 0.1  # other collisions
    torch.manual_seed(5)
    again = HashEmbedding(1000, 8)
    assert same_start(first, again)
    assert first.seed == again.seed
    torch.manual_seed(6)
    assert not same_start(first, HashEmbedding(1000, 8))
    seed = first.seed
    first.reset_parameters()
    assert not same_start(first, again)
    assert first.seed == seed


def test_a_seed_gives_the_values_and_the_hash_and_leaves_the_global_state_alone():
    before = torch.random.get_rng_state()
    layer, again = HashEmbedding(300, 4, seed=42), HashEmbedding(300, 4, seed=42)
    assert torch.equal(before, torch.random.get_rng_state())
    assert layer.hash_seeds.tolist() == [2962212646, 842373064, 351293394]
    assert same_start(layer, again)
    g = torch.Generator().manual_seed(42)
    assert torch.equal(layer.weight, torch.empty(29, 4).normal_(0, 0.1, generator=g))
    assert torch.equal(layer.importance, torch.empty(300, 2).normal_(0, 0.0005, generator=g))
    assert not same_start(layer, HashEmbedding(300, 4, seed=1))
    drawn = HashEmbedding(300, 4, seed=42, generator=torch.Generator().manual_seed(5))
    assert not same_start(layer, drawn)
    assert torch.equal(layer.hash_seeds, drawn.hash_seeds)
    layer.reset_parameters(torch.Generator().manual_seed(5))
    assert same_start(layer, drawn)
    layer.reset_parameters()
    assert same_start(layer, again)


def test_bags_take_two_forms_and_agree():
    layer = trained(HashEmbeddingBag(100, 5))
    ids = torch.arange(12)
    flat = layer(ids, torch.tensor([0, 4, 8]))
    assert torch.equal(flat, layer(ids.view(3, 4)))
    closed = HashEmbeddingBag(100, 5, include_last_offset=True)
    closed.load_state_dict(layer.state_dict())
    assert torch.equal(flat, closed(ids, torch.tensor([0, 4, 8, 12])))
    assert torch.equal(flat, layer(ids.int(), torch.tensor([0, 4, 8], dtype=torch.int32)))


def test_a_bag_is_the_sum_of_its_tokens():
    bag = trained(HashEmbeddingBag(100, 5))
    single = HashEmbedding(100, 5)
    single.load_state_dict(bag.state_dict())
    ids = torch.randint(-100, 100, (4, 7), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(bag(ids), single(ids).sum(1))
    bag.mode = "mean"
    torch.testing.assert_close(bag(ids), single(ids).mean(1))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_empty_bags_and_empty_batches(mode, sparse):
    layer = HashEmbeddingBag(100, 5, mode=mode, sparse=sparse)
    out = layer(torch.tensor([7, 8]), torch.tensor([0, 0, 2]))
    assert torch.equal(out[0], torch.zeros(5))
    assert torch.equal(out[2], torch.zeros(5))
    out.sum().backward()
    none = torch.zeros(0, dtype=torch.int64)
    for ids, offsets, bags in (
        (none, none, 0),
        (none, torch.tensor([0, 0]), 2),
        (none.view(0, 4), None, 0),
        (none.view(3, 0), None, 3),
    ):
        out = layer(ids, offsets)
        assert out.shape == (bags, 5)
        assert not out.any()
        out.sum().backward()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("indexing", ["independent", "shared", "identity"])
def test_padding_contributes_nothing_and_never_trains(indexing, append, sparse):
    options = {"padding_idx": 3, "append_importance": append, "indexing": indexing}
    layer = trained(HashEmbedding(1000, 5, sparse=sparse, **options))
    out = layer(torch.tensor([[3, 4], [5, 3]]))
    assert not out[0, 0].any()
    assert not out[1, 1].any()
    assert out[0, 1].any()
    layer(torch.tensor([3, 3, 3])).sum().backward()
    for p in layer.parameters():
        if sparse:
            assert p.grad.coalesce().indices().numel() == 0
        else:
            assert not p.grad.any()

    for mode in ("sum", "mean"):
        bag = trained(HashEmbeddingBag(1000, 5, mode=mode, sparse=sparse, **options))
        padded = bag(torch.tensor([[3, 4, 9, 3, 3], [3, 3, 3, 3, 3]]))
        assert torch.equal(padded[0], bag(torch.tensor([[4, 9]]))[0])
        assert not padded[1].any()


def test_padding_survives_training():
    layer = HashEmbedding(50, 4, padding_idx=-7)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (layer(torch.tensor([-7, 1, 2])) - 1).square().sum().backward()
        optimizer.step()
    assert not layer(torch.tensor([-7])).any()
    assert layer(torch.tensor([1])).any()


def test_negative_padding_counts_from_the_end_only_for_ranks():
    assert HashEmbedding(10, 2, indexing="identity", padding_idx=-1).padding_idx == 9
    assert HashEmbedding(10, 2, padding_idx=-1).padding_idx == -1


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD])
@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_sparse_gradients_train(cls, optimizer):
    dense, sparse = trained(cls(500, 4, seed=0)), trained(cls(500, 4, seed=0, sparse=True))
    ids = torch.tensor([[1, 2, 2], [900, -4, 1]])
    dense(ids).square().sum().backward()
    steps = optimizer(sparse.parameters(), lr=0.1)
    before = sparse(ids).square().sum()
    before.backward()
    for mine, reference in zip(sparse.parameters(), dense.parameters(), strict=True):
        assert mine.grad.is_sparse
        torch.testing.assert_close(mine.grad.to_dense(), reference.grad)
    steps.step()
    assert sparse(ids).square().sum() < before


def test_state_dict_carries_the_hash_functions(tmp_path):
    source = trained(HashEmbedding(300, 4, seed=42))
    target = HashEmbedding(300, 4, seed=7)
    target.load_state_dict(source.state_dict())
    assert torch.equal(source(IDS), target(IDS))
    assert target.seed == 42
    assert "seed=42" in repr(target)
    torch.save(source.state_dict(), tmp_path / "state.pt")
    target = HashEmbedding(300, 4)
    target.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(source(IDS), target(IDS))


def test_state_dict_goes_through_safetensors(tmp_path):
    from safetensors.torch import load_model, save_model

    source = trained(HashEmbedding(300, 4, seed=42))
    save_model(source, str(tmp_path / "m.safetensors"))
    target = HashEmbedding(300, 4)
    load_model(target, str(tmp_path / "m.safetensors"))
    assert torch.equal(source(IDS), target(IDS))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"indexing": "shared"}, "indexing independent (this layer: shared)"),
        ({"num_embeddings": 301, "importance": False}, "num_embeddings 300 (this layer: 301)"),
        ({"num_buckets": 28}, "num_buckets 29 (this layer: 28)"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_state_of_another_hash_is_refused(options, words, strict):
    source = HashEmbedding(300, 4, importance=options.get("importance", True))
    target = HashEmbedding(**{"num_embeddings": 300, "embedding_dim": 4, **options})
    before = target.weight.clone()
    with pytest.raises(RuntimeError) as error:
        target.load_state_dict(source.state_dict(), strict=strict)
    assert words in str(error.value)
    assert torch.equal(before, target.weight)


def test_a_state_of_another_hash_version_is_refused():
    layer = HashEmbedding(300, 4)
    state = layer.state_dict()
    state["hash_spec"] = state["hash_spec"].clone()
    state["hash_spec"][0] = 2
    with pytest.raises(RuntimeError, match=r"hash version 2 \(this layer: 1\)"):
        layer.load_state_dict(state)


def test_a_state_without_its_hash_is_refused_even_when_not_strict():
    model = nn.Sequential(HashEmbedding(300, 4))
    state = model.state_dict()
    del state["0.hash_spec"]
    with pytest.raises(RuntimeError, match=r"0\.hash_spec.*is missing"):
        model.load_state_dict(state, strict=False)


@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_deepcopy_and_pickle(cls):
    layer = trained(cls(300, 4, seed=3, padding_idx=1))
    ids = torch.tensor([[1, 5], [7, 8]])
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(layer(ids), twin(ids))
        assert repr(layer) == repr(twin)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    assert torch.equal(layer(ids), torch.load(buffer, weights_only=False)(ids))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    layer = trained(HashEmbedding(300, 4, dtype=dtype))
    assert layer(IDS).dtype == dtype
    layer(IDS).sum().backward()
    assert layer.weight.grad.dtype == dtype
    moved = HashEmbedding(300, 4, seed=0).to(dtype)
    assert moved.hash_seeds.dtype == torch.int64
    made = HashEmbedding(300, 4, seed=0, dtype=dtype)
    assert torch.equal(moved.weight, made.weight)
    assert torch.equal(trained(moved)(IDS), trained(made)(IDS))


def test_meta_device_then_real():
    layer = HashEmbedding(300, 4, seed=5, device="meta")
    assert layer.weight.is_meta
    assert layer(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 4)
    layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.equal(layer(IDS), HashEmbedding(300, 4, seed=5)(IDS))
    skipped = nn.utils.skip_init(HashEmbedding, 300, 4, seed=5)
    assert torch.equal(skipped.hash_seeds, layer.hash_seeds)
    assigned = HashEmbedding(300, 4, device="meta")
    assigned.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(layer(IDS), assigned(IDS))


def test_repr_names_what_is_not_default():
    layer = HashEmbedding(1000, 8, indexing="shared", importance=False, sparse=True, seed=3)
    assert repr(layer) == (
        "HashEmbedding(1000, 8, num_buckets=99, num_hashes=2, indexing='shared', seed=3, "
        "sparse=True, importance=False)"
    )
    drawn = HashEmbedding(1000, 8)
    assert f"seed={drawn.seed}" in repr(drawn)  # the hash that it has, given or drawn
    assert "mode='mean'" in repr(HashEmbeddingBag(1000, 8, mode="mean"))


def test_arguments_stand_where_they_stand_in_torch():
    for make in (nn.Embedding, HashEmbedding):
        layer = make(100, 4, 3, None, 2.0, False, True)
        assert (layer.padding_idx, layer.sparse) == (3, True)
        assert not layer(torch.tensor([3])).any()
    for make in (nn.EmbeddingBag, HashEmbeddingBag):
        bag = make(100, 4, None, 2.0, False, "mean", True)
        assert (bag.mode, bag.sparse) == ("mean", True)
    with pytest.raises(TypeError, match=r"max_norm=0 of nn\.Embedding has no"):
        HashEmbeddingBag(100, 4, 0)


def test_input_is_another_name_for_ids():
    layer, bag = trained(HashEmbedding(100, 4)), trained(HashEmbeddingBag(100, 4))
    ids = torch.arange(6).view(2, 3)
    assert torch.equal(layer(input=ids), layer(ids))
    assert torch.equal(layer(ids=ids), layer(ids))
    assert torch.equal(bag(input=ids), bag(ids))
    offsets = torch.tensor([0, 2])
    assert torch.equal(bag(input=ids.view(-1), offsets=offsets), bag(ids.view(-1), offsets))


SMALL = [torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32]


@pytest.mark.parametrize("dtype", [*SMALL, torch.uint64])
@pytest.mark.parametrize("indexing", ["independent", "identity"])
def test_ids_of_every_integer_type(dtype, indexing):
    layer = trained(HashEmbedding(100, 4, indexing=indexing, padding_idx=7))
    ids = torch.tensor([[0, 7, 99], [50, 1, 2]])
    assert torch.equal(layer(ids.to(dtype)), layer(ids))
    bag = trained(HashEmbeddingBag(100, 4, indexing=indexing))
    assert torch.equal(bag(ids.to(dtype)), bag(ids))


def test_ids_at_the_ends_of_their_types():
    layer = trained(HashEmbedding(100, 4))
    assert torch.equal(layer(torch.tensor([-1], dtype=torch.int8)), layer(torch.tensor([-1])))
    assert torch.equal(layer(torch.tensor([255], dtype=torch.uint8)), layer(torch.tensor([255])))
    top = torch.tensor([2**64 - 1], dtype=torch.uint64)
    rows, buckets = layer.spec(id_keys(np.array([2**64 - 1], np.uint64)))
    want = (layer.importance[rows].unsqueeze(-1) * layer.weight[buckets]).sum(1)
    torch.testing.assert_close(layer(top), want)


def test_a_layer_larger_than_a_table_warns():
    with pytest.warns(UserWarning, match=r"2,099,999 parameters, but nn.Embedding.* 1,000,000"):
        HashEmbedding(1_000_000, 1, device="meta")
    with pytest.warns(UserWarning, match="this hash embedding has"):
        HashEmbeddingBag(1_000_000, 2, device="meta")
    HashEmbedding(1_000_000, 3, device="meta")  # smaller: no word
    HashEmbedding(1_000_000, 1, importance=False, device="meta")
    HashEmbedding(1000, 1)  # nobody minds


@pytest.mark.parametrize("head", [nn.Linear(4, 300, bias=False), nn.Embedding(300, 4)])
def test_components_cannot_be_tied_to_a_layer_of_rows(head):
    layer = HashEmbedding(300, 4)
    own = head.weight
    for one in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        with pytest.raises(ValueError, match=r"HashEmbedding \(29 x 4\) was assigned .*tie_word"):
            head.weight = one.weight
    assert head.weight is own
    with pytest.raises(ValueError, match=r"keep its shape \(29, 4\), found \(300, 4\): .*tie_word"):
        layer.weight = head.weight
    nn.ParameterList([layer.weight])  # a list of parameters is no head
    remedy = nn.functional.linear(torch.rand(2, 4), layer(torch.arange(300)))
    assert remedy.shape == (2, 300)


def test_a_table_with_a_row_for_each_id_may_be_tied():
    options = {"num_buckets": 300, "num_hashes": 1, "indexing": "identity", "importance": False}
    layer, head = HashEmbedding(300, 4, **options), nn.Linear(4, 300, bias=False)
    head.weight = layer.weight
    assert torch.equal(head(torch.eye(4)).T, layer(torch.arange(300)))


BAD_ARGUMENTS = [
    ({"num_embeddings": 0}, "num_embeddings must be a whole number from 1 to 4,294,967,296"),
    ({"num_embeddings": -5}, "found -5"),
    ({"num_embeddings": float("nan")}, "num_embeddings .* found nan of type float"),
    ({"num_embeddings": 2**32 + 1}, "num_embeddings .* found 4,294,967,297"),
    ({"num_embeddings": True}, "num_embeddings .* found the bool True"),
    ({"embedding_dim": 0}, "embedding_dim .* found 0"),
    ({"embedding_dim": 2.5}, "embedding_dim .* found 2.5 of type float"),
    ({"num_buckets": 0}, "num_buckets .* found 0"),
    ({"num_buckets": 2**33}, "num_buckets .* found 8,589,934,592"),
    ({"num_hashes": 0}, "num_hashes .* found 0"),
    ({"num_buckets": 2, "num_hashes": 3}, "num_hashes must not exceed num_buckets, found 3"),
    ({"aggregation": "mean"}, "aggregation must be one of 'sum', 'concat', found 'mean'"),
    ({"indexing": "md5"}, "indexing must be one of .* found 'md5'"),
    ({"append_importance": True, "importance": False}, "append_importance needs importance=True"),
    ({"padding_idx": 1.5}, "padding_idx .* found 1.5"),
    ({"padding_idx": 100, "indexing": "identity"}, "padding_idx .* from -100 to 99, found 100"),
    ({"seed": 2**63}, "seed .* found 9,223,372,036,854,775,808"),
    ({"dtype": torch.int64}, "dtype must be a floating point type, found torch.int64"),
    ({"max_norm": 1.0}, "max_norm=1.0 of nn.Embedding has no counterpart .* leave it out"),
    ({"norm_type": 1.0}, "norm_type=1.0 of nn.Embedding has no counterpart"),
    ({"scale_grad_by_freq": True}, "scale_grad_by_freq=True of nn.Embedding has no counterpart"),
]


@pytest.mark.parametrize(("options", "words"), BAD_ARGUMENTS)
def test_bad_arguments_get_a_sentence(options, words):
    for cls in (HashEmbedding, HashEmbeddingBag):
        with pytest.raises((TypeError, ValueError), match=words):
            cls(**{"num_embeddings": 100, "embedding_dim": 4, **options})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: HashEmbedding(9, 2)(torch.rand(3)), "ids must be .* found torch.float32"),
        (lambda: HashEmbedding(9, 2)([1, 2]), "ids must be a tensor .* found list"),
        (lambda: HashEmbedding(9, 2)(torch.tensor([True])), "ids must be .* found torch.bool"),
        (lambda: HashEmbedding(9, 2)(), "ids are missing"),
        (lambda: HashEmbedding(9, 2)(IDS, input=IDS), "found both"),
        (
            lambda: HashEmbedding(9, 2, indexing="identity")(torch.tensor([4, 9])),
            'indexing="identity" takes ids from 0 to 8, found ids from 4 to 9',
        ),
        (
            lambda: HashEmbedding(9, 2, indexing="identity")(torch.tensor([-1, 3])),
            "takes ids from 0 to 8, found ids from -1 to 3",
        ),
        (lambda: bag(torch.arange(3)), "offsets are needed when ids are 1-D"),
        (lambda: bag(torch.arange(3), []), "offsets must be a tensor .* found list"),
        (lambda: bag(torch.arange(3), torch.tensor([0.0])), "offsets .* found torch.float32"),
        (lambda: bag(torch.arange(3), torch.tensor([[0]])), "offsets must be 1-D, found 2-D"),
        (
            lambda: bag(torch.arange(3), torch.tensor([0, 2, 1])),
            r"never fall.*found \[0, 2, 1, 3\]",
        ),
        (lambda: bag(torch.arange(3), torch.tensor([1, 2])), "offsets must begin with 0"),
        (lambda: bag(torch.arange(3), torch.tensor([0, 4])), "end at most at 3"),
        (lambda: bag(torch.arange(3), torch.tensor([], dtype=torch.int64)), "offsets are empty"),
        (
            lambda: bag(torch.zeros(2, 2, 2, dtype=torch.int64)),
            "1-D with offsets or 2-D, found 3-D",
        ),
        (lambda: bag(torch.zeros(2, 2).long(), torch.tensor([0])), "offsets must be None"),
        (
            lambda: bag(torch.arange(3), torch.tensor([0]), torch.rand(2)),
            r"per_sample_weights must have the shape of ids, \(3,\), found \(2,\)",
        ),
        (
            lambda: bag(torch.arange(3), torch.tensor([0]), torch.arange(3)),
            "per_sample_weights must be floating point, found torch.int64",
        ),
        (
            lambda: HashEmbeddingBag(9, 2, mode="mean")(
                torch.arange(3), torch.tensor([0]), torch.rand(3)
            ),
            "per_sample_weights need mode=\"sum\", found mode='mean'",
        ),
        (lambda: HashEmbeddingBag(9, 2, mode="max"), "mode must be one of 'sum', 'mean'"),
        (
            lambda: HashEmbeddingBag(9, 2, include_last_offset=True)(
                torch.arange(0), torch.tensor([], dtype=torch.int64)
            ),
            "must not be empty with include_last_offset",
        ),
    ],
)
def test_bad_inputs_get_a_sentence(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def bag(*args):
    return HashEmbeddingBag(9, 2)(*args)


def test_numpy_integers_are_fine_as_sizes():
    assert HashEmbedding(np.int64(50), np.int32(4)).weight.shape == (4, 4)


def test_layers_are_reached_from_the_top():
    assert hashembed.HashEmbedding is HashEmbedding
