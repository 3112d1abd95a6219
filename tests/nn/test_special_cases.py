"""The paper's special cases, bit for bit, gradients included."""

import pytest
import torch
from torch import nn

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.ops.indexing import id_keys, rows_and_buckets

IDS = torch.randint(-(2**40), 2**40, (6, 9), generator=torch.Generator().manual_seed(0))
GRAD = torch.randn(6, 9, 5, generator=torch.Generator().manual_seed(1))


def hashed(layer, ids):
    """The bucket of each id, as the layer's only hash function picks it."""
    return rows_and_buckets(id_keys(ids), layer.hash_seeds, layer.spec)[1].squeeze(-1)


def same_bits(ours, theirs, weight, standard):
    assert torch.equal(ours, theirs)
    ours.backward(GRAD)
    theirs.backward(GRAD)
    assert torch.equal(weight.grad, standard.weight.grad)
    assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize("indexing", ["independent", "shared"])
@pytest.mark.parametrize("importance", [True, False])
def test_one_hash_and_weights_of_one_is_the_hashing_trick(indexing, importance):
    layer = HashEmbedding(
        40, 5, num_buckets=13, num_hashes=1, importance=importance, indexing=indexing
    )
    if importance:
        nn.init.ones_(layer.importance)
    standard = nn.Embedding.from_pretrained(layer.weight.detach().clone(), freeze=False)
    same_bits(layer(IDS), standard(hashed(layer, IDS)), layer.weight, standard)


def bag_twin(layer, ids, mode):
    """nn.EmbeddingBag over the layer's table, compared on numbers whose sums are exact.

    nn.EmbeddingBag adds gradients in an order of its own, so bits can agree only where no sum
    rounds: multiples of 1/8 here, and bags of 8 for the mean.
    """
    with torch.no_grad():
        layer.weight.mul_(80).round_().div_(8)
    standard = nn.EmbeddingBag.from_pretrained(
        layer.weight.detach().clone(), freeze=False, mode=mode
    )
    ours = layer(ids)
    theirs = standard(ids if layer.indexing == "identity" else hashed(layer, ids))
    assert torch.equal(ours, theirs)
    assert ours.abs().sum() > 0
    upstream = GRAD[:, 0].mul(8).round()
    ours.backward(upstream)
    theirs.backward(upstream)
    assert torch.equal(layer.weight.grad, standard.weight.grad)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_the_hashing_trick_in_bags(mode):
    layer = HashEmbeddingBag(40, 5, num_buckets=13, num_hashes=1, importance=False, mode=mode)
    bag_twin(layer, IDS[:, :8], mode)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_identity_in_bags_is_nn_embedding_bag(mode):
    options = {"num_buckets": 17, "num_hashes": 1, "indexing": "identity", "importance": False}
    bag_twin(HashEmbeddingBag(17, 5, mode=mode, **options), IDS[:, :8] % 17, mode)


@pytest.mark.parametrize("importance", [True, False])
def test_identity_with_as_many_buckets_as_ids_is_nn_embedding(importance):
    layer = HashEmbedding(
        17, 5, num_buckets=17, num_hashes=1, indexing="identity", importance=importance
    )
    if importance:
        nn.init.ones_(layer.importance)
    standard = nn.Embedding.from_pretrained(layer.weight.detach().clone(), freeze=False)
    ids = IDS % 17
    same_bits(layer(ids), standard(ids), layer.weight, standard)


def test_identity_with_fewer_buckets_shares_them():
    layer = HashEmbedding(17, 5, num_buckets=4, num_hashes=1, indexing="identity", importance=False)
    assert len(layer(torch.arange(17)).unique(dim=0)) <= 4
