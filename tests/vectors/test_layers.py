"""Layers of torch that are made of word vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed import WordVectors
from hashembed.hashing.spec import id_keys
from hashembed.vectors.layer_ids import ids_of_keys

torch = pytest.importorskip("torch")

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "él sat"] * 20
WORDS = ["cat", "THE", "dogs", "unheardof", "él", ""]


@pytest.fixture(scope="module", params=["trained", "coded", "small", "table", "words"])
def vectors(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("v")
    subwords = None if request.param == "words" else (3, 6)
    sizes = {"num_buckets": 700, "num_embeddings": 900, "subwords": subwords, "seed": 3}
    made = WordVectors(embedding_dim=9, passes=1, min_count=1, sample=1.0, **sizes).fit(TEXTS)
    if request.param == "coded":
        made.save(folder / "v")
        return WordVectors.load(folder / "v", mmap=True)
    if request.param == "small":
        return made.compress(7000)
    if request.param == "table":
        made.export_word2vec(folder / "v")
        return WordVectors.from_word2vec(folder / "v")
    return made


def test_the_layer_gives_the_vectors_of_words(vectors):
    from hashembed.nn import HashEmbeddingBag

    layer = HashEmbeddingBag.from_pretrained(vectors, freeze=False)
    keys, offsets = vectors.keys(WORDS)
    assert keys.dtype == offsets.dtype == np.int64
    out = layer(torch.from_numpy(keys), torch.from_numpy(offsets))
    np.testing.assert_allclose(out.detach().numpy(), vectors.transform(WORDS), atol=1e-6)
    out.square().sum().backward()
    assert layer.weight.grad.abs().sum() > 0
    assert layer.importance.grad.abs().sum() > 0


def test_all_words_of_the_vocabulary(vectors):
    from hashembed.nn import HashEmbeddingBag

    layer = HashEmbeddingBag.from_pretrained(vectors)
    assert not layer.weight.requires_grad
    keys, offsets = (torch.from_numpy(part) for part in vectors.keys(vectors.index_to_key))
    np.testing.assert_allclose(layer(keys, offsets).numpy(), vectors.vectors, atol=1e-6)


def test_training_the_layer_leaves_the_vectors_as_they_are(vectors):
    from hashembed.nn import HashEmbeddingBag

    before = vectors["cat"].copy()
    layer = HashEmbeddingBag.from_pretrained(vectors, freeze=False)
    with torch.no_grad():
        layer.weight.zero_()
        layer.importance.zero_()
    np.testing.assert_array_equal(vectors["cat"], before)
    np.testing.assert_array_equal(vectors.transform(["cat"])[0], before)


def test_a_layer_by_place():
    from hashembed.nn import HashEmbedding

    vectors = WordVectors(embedding_dim=4, passes=1, min_count=1, sample=1.0).fit(TEXTS)
    assert vectors.vectors.any(axis=1).all()
    layer = HashEmbedding.from_pretrained(vectors, num_buckets=40, num_hashes=3)
    assert layer.pretrained.ids == len(vectors)
    own = layer(torch.tensor(vectors.get_index("cat")))
    error = np.linalg.norm(own.numpy() - vectors["cat"]) / np.linalg.norm(vectors["cat"])
    assert error < 2 * layer.pretrained.relative_error + 0.1
    table = HashEmbedding.from_pretrained(
        torch.from_numpy(vectors.vectors), num_buckets=40, num_hashes=3
    )
    assert torch.equal(layer.weight, table.weight)


def test_what_the_vectors_determine(vectors):
    from hashembed.nn import HashEmbeddingBag

    with pytest.raises(TypeError, match="determine mode"):
        HashEmbeddingBag.from_pretrained(vectors, mode="sum")
    layer = HashEmbeddingBag.from_pretrained(vectors, dtype=torch.float64)
    assert layer.weight.dtype == torch.float64


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_ids_of_keys_are_the_inverse(numbers):
    keys = np.array(numbers, np.int64)
    np.testing.assert_array_equal(id_keys(ids_of_keys(keys)), keys)
