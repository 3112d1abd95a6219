"""Smaller word vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed import WordVectors
from hashembed.engine.tensor_file import ModelFileError
from hashembed.vectors.compressing import parse_size
from hashembed.vectors.refit import Bags, fit_rows
from hashembed.vectors.small_dictionary import count_codes, counts_of


def texts_about(topics, count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(topics[i % len(topics)], 12)) for i in range(count)]


TOPICS = [[f"{stem}{end}" for end in "abcdefgh"] for stem in ("cat", "dog", "saw", "nail", "rain")]


@pytest.fixture(scope="module")
def vectors():
    sizes = {"num_buckets": 3000, "num_embeddings": 4000}
    return WordVectors(embedding_dim=40, batch_size=64, **sizes).fit(texts_about(TOPICS, 800))


def mean_cosine(one, other):
    """Between the cosines of all pairs of words."""
    words = one.index_to_key
    a, b = (v[words] / np.linalg.norm(v[words], axis=1, keepdims=True) for v in (one, other))
    return np.corrcoef((a @ a.T).ravel(), (b @ b.T).ravel())[0, 1]


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_bits(vectors, bits, tmp_path):
    small = vectors.compress(bits=bits)
    small.save(tmp_path / "small")
    vectors.save(tmp_path / "same", bits=bits)
    assert (tmp_path / "small").read_bytes() == (tmp_path / "same").read_bytes()
    np.testing.assert_array_equal(WordVectors.load(tmp_path / "small").vectors, small.vectors)
    assert mean_cosine(vectors, small) > 0.98


@pytest.mark.parametrize(
    ("size", "least"), [("100kB", 0.998), ("60kB", 0.98), ("40 kB", 0.97), (20_000, 0.95)]
)
def test_the_file_is_as_small_as_asked_for(vectors, size, least, tmp_path):
    small = vectors.compress(size)
    small.save(tmp_path / "v")
    limit = parse_size(size)
    assert limit / 2 < (tmp_path / "v").stat().st_size <= limit
    assert mean_cosine(vectors, small) > least
    for mmap in (False, True):
        again = WordVectors.load(tmp_path / "v", mmap=mmap)
        np.testing.assert_array_equal(again.vectors, small.vectors)
        np.testing.assert_array_equal(again["catlike"], small["catlike"])
        assert again.index_to_key == small.index_to_key
    assert set(small.index_to_key) == set(vectors.index_to_key)


def test_what_fits_keeps_its_rows(vectors, tmp_path):
    vectors.save(tmp_path / "v")
    size = (tmp_path / "v").stat().st_size
    assert vectors.compress(size).model.E.bits == 8
    assert vectors.compress(size - 1).model.E.bits == 4


def test_bits_and_size(vectors, tmp_path):
    small = vectors.compress("40kB", bits=8)
    assert small.model.E.bits == 8
    small.save(tmp_path / "v")
    assert (tmp_path / "v").stat().st_size <= 40_000


def test_the_same_for_any_number_of_threads(vectors):
    def compressed(threads):
        vectors.model.threads = threads
        return vectors.compress("40kB").vectors

    np.testing.assert_array_equal(compressed(1), compressed(3))


def test_small_vectors_are_not_trained_further(vectors):
    with pytest.raises(ValueError, match="training state"):
        vectors.compress("40kB").partial_fit(["a b c"])
    assert vectors.model.state is not None


def test_sizes_that_are_impossible(vectors):
    with pytest.raises(ValueError, match="they take") as error:
        vectors.compress("1kB")
    least = int(str(error.value).rsplit("take ", 1)[1].split(" ")[0].replace(",", ""))
    vectors.compress(least)
    with pytest.raises(ValueError, match="they take"):
        vectors.compress(least - 1)


@pytest.mark.parametrize("size", ["", "5 apples", "-1MB", 0, -5, "0kB", True, 1.5, "nan"])
def test_sizes_that_are_none(vectors, size):
    with pytest.raises(ValueError, match="size must be"):
        vectors.compress(size)


def test_arguments(vectors):
    with pytest.raises(ValueError, match="needs a size"):
        vectors.compress()
    with pytest.raises(ValueError, match="bits must be"):
        vectors.compress(bits=5)


def test_a_table_without_a_hash(tmp_path):
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((300, 5)) @ rng.standard_normal((5, 40))).round(4)
    lines = [f"w{n}_x " + " ".join(map(str, row)) for n, row in enumerate(table)]
    (tmp_path / "t").write_text("300 40\n" + "\n".join(lines))
    vectors = WordVectors.from_word2vec(tmp_path / "t")
    small = vectors.compress("11kB")
    small.save(tmp_path / "v")
    assert (tmp_path / "v").stat().st_size <= 11_000
    again = WordVectors.load(tmp_path / "v")
    assert again.index_to_key == vectors.index_to_key
    assert mean_cosine(vectors, again) > 0.98
    with pytest.raises(ValueError, match="at least"):
        vectors.compress(1000)


def test_damaged_words(vectors, tmp_path):
    small = vectors.compress("40kB").model
    from hashembed.engine.tensor_file import save_tensors
    from hashembed.vectors.file import KIND, VERSION, content_of

    def saved(change):
        tensors, meta = content_of(small, small.E.bits, False)
        change(tensors, meta)
        save_tensors(tmp_path / "bad", KIND, tensors, meta, VERSION)
        with pytest.raises(ModelFileError):
            WordVectors.load(tmp_path / "bad")

    def garbage(name):
        return lambda tensors, meta: tensors.update({name: np.arange(50, dtype=np.uint8)})

    for part in ("shared", "tails", "rest", "codes"):
        saved(garbage(f"dictionary.{part}.deflated"))
        saved(lambda tensors, meta, part=part: tensors.pop(f"dictionary.{part}.deflated"))
    saved(garbage("P.used"))
    for words in (0, 1, 10**9, "x", None):
        saved(lambda tensors, meta, words=words: meta["small"].update(words=words))
    for size in (0, 2, 3, 99):
        saved(lambda tensors, meta, size=size: meta["small"].update(tail_bytes=size))


@given(st.lists(st.integers(0, 2**31)))
def test_rounded_counts(numbers):
    counts = np.array(numbers, np.int64)
    rounded = counts_of(count_codes(counts))
    assert (np.abs(rounded - counts) <= 0.05 * counts + 0.5).all()
    np.testing.assert_array_equal(count_codes(rounded), count_codes(counts))


def test_the_fit_is_that_of_least_squares():
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 6, 50)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = rng.integers(0, 12, offsets[-1]).astype(np.uint32)
    weights = rng.standard_normal(offsets[-1]).astype(np.float32)
    targets = rng.standard_normal((50, 7)).astype(np.float32)
    importance = rng.uniform(0.5, 2, 50)
    found = fit_rows(Bags(places, weights, offsets), 12, targets, importance, 1, 0.1)[:, :7]
    A = np.zeros((50, 12))
    np.add.at(A, (np.repeat(np.arange(50), lengths), places), weights)
    C = np.diag(importance / importance.mean())
    diagonal = np.zeros(12)
    of_word = np.repeat(np.diag(C), lengths)
    np.add.at(diagonal, places, of_word * weights.astype(np.float64) ** 2)
    ridge = 0.1 * (diagonal + 0.1 * diagonal.mean()).mean()
    expected = np.linalg.solve(A.T @ C @ A + ridge * np.eye(12), A.T @ C @ targets)
    np.testing.assert_allclose(found, expected, atol=1e-4)
