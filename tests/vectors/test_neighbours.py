"""Nearest rows: the fast scan finds what the plain one finds; gensim's names give its results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import WordVectors
from hashembed.vectors.neighbours import NearestRows, cosines_with, nearest_rows, unit_rows

NONE = np.empty(0, np.int64)


def both(vectors, query, top, left_out=NONE, threads=2):
    fast = NearestRows(vectors, threads).find(query, top, left_out)
    plain = nearest_rows(vectors, query, top, left_out)
    assert fast == plain
    return fast


@given(
    rows=st.integers(2000, 3000),
    dim=st.integers(1, 70),
    top=st.integers(1, 50),
    repeats=st.sampled_from([1, 2, 50]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_the_fast_scan_finds_what_the_plain_one_finds(rows, dim, top, repeats, threads, seed):
    rng = np.random.default_rng(seed)
    few = rng.standard_normal((rows // repeats, dim)) * 10.0 ** rng.integers(-20, 20, (1, 1))
    vectors = few[rng.integers(0, len(few), rows)].astype(np.float32)  # with equal rows: ties
    vectors[rng.integers(0, rows, 3)] = 0
    left_out = rng.integers(0, rows, 3)
    query = vectors[5] + np.float32(0.01) * vectors[6]
    found = both(vectors, query, top, left_out, threads)
    assert len(found) == top
    assert not {row for row, _ in found} & set(left_out.tolist())


@pytest.mark.parametrize("dim", [1, 31, 32, 33, 100, 4096])
def test_sizes(dim):
    rng = np.random.default_rng(dim)
    vectors = rng.standard_normal((2500, dim)).astype(np.float32)
    both(vectors, vectors[7], 5)
    both(np.ones((2500, dim), np.float32), np.ones(dim, np.float32), 3)  # the largest sums
    both(vectors, np.zeros(dim, np.float32), 5)


def test_more_than_there_are():
    vectors = np.eye(3, dtype=np.float32)
    assert both(vectors, vectors[1], 10) == [(1, 1.0), (0, 0.0), (2, 0.0)]
    assert both(vectors, vectors[1], 10, np.array([0, 1, 2])) == []
    assert both(np.empty((0, 3), np.float32), vectors[0], 1) == []


def test_a_wrong_query():
    with pytest.raises(ValueError, match="3 numbers"):
        NearestRows(np.eye(3, dtype=np.float32)).find(np.zeros(4, np.float32), 1, NONE)
    with pytest.raises(ValueError, match="top"):
        NearestRows(np.eye(3, dtype=np.float32)).find(np.zeros(3, np.float32), 0, NONE)


def test_the_cosine_of_a_row_does_not_depend_on_others():
    vectors = np.random.default_rng(0).standard_normal((20_000, 101)).astype(np.float32)
    direction = vectors[3].astype(np.float64) / np.linalg.norm(vectors[3])
    whole = cosines_with(vectors, direction)
    for rows in ([5], [16_383, 16_384, 19_999], list(range(7, 900, 3))):
        np.testing.assert_array_equal(cosines_with(vectors[rows], direction), whole[rows])
    np.testing.assert_allclose(whole, unit_rows(vectors) @ direction, atol=1e-6)


@pytest.fixture(scope="module")
def table():
    """Vectors of words that are in gensim's format, too."""
    rng = np.random.default_rng(1)
    return [f"w{x}" for x in range(3000)], rng.standard_normal((3000, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("v") / "v"
    words, rows = table
    pairs = zip(words, rows, strict=True)
    parts = [word.encode() + b" " + row.tobytes() + b"\n" for word, row in pairs]
    path.write_bytes(b"3000 10\n" + b"".join(parts))
    return WordVectors.from_word2vec(path)


def test_names_of_gensim(vectors, table):
    words, rows = table
    assert vectors.index_to_key == words
    assert vectors.key_to_index["w17"] == vectors.get_index("w17") == 17
    assert vectors.has_index_for("w17")
    assert "w17" in vectors
    assert not vectors.has_index_for("no")
    assert vectors.get_index("no", -5) == -5
    with pytest.raises(KeyError, match="'no'"):
        vectors.get_index("no")
    np.testing.assert_array_equal(vectors.vectors, rows)
    np.testing.assert_allclose(np.linalg.norm(vectors.get_vector("w3", norm=True)), 1, rtol=1e-6)
    found = vectors.most_similar(["w1", "w2"], ["w3"], topn=4)
    assert vectors.analogy("w3", "w1", "w2", 4) == found
    assert vectors.most_similar("w1") == vectors.similar_by_word("w1")
    near = [near.word for near in vectors.nearest("w1")]
    assert [word for word, _ in vectors.most_similar("w1")] == near
    assert vectors.similar_by_vector(rows[1], 1)[0][0] == "w1"
    assert vectors.most_similar([("w1", 2.0), ("w2", -1.0)]) == vectors.most_similar(
        [("w1", 2.0)], [("w2", 1.0)]
    )
    assert vectors.most_similar("w1", topn=3, restrict_vocab=2)[0][0] == "w0"
    assert vectors.rank("w1", found[0][0]) == len(vectors.closer_than("w1", found[0][0])) + 1
    first, second = (word for word, _ in vectors.most_similar("w1", topn=2))
    assert vectors.closer_than("w1", second) == [first]
    assert vectors.rank("w1", first) == 1
    for call in (lambda: vectors.most_similar(), lambda: vectors.doesnt_match([])):
        with pytest.raises(ValueError, match="found none"):
            call()
    with pytest.raises(ValueError, match="empty"):
        vectors.n_similarity([], ["w1"])
    with pytest.raises(KeyError):
        vectors.most_similar("no such word")


def test_the_results_are_those_of_gensim(vectors, table):
    models = pytest.importorskip("gensim.models")
    words, rows = table
    theirs = models.KeyedVectors(10)
    theirs.add_vectors(words, rows)
    for arguments in (("w5",), (["w5", "w9"], ["w11"]), ([("w5", 0.3), rows[8]], ["w11"])):
        ours, expected = vectors.most_similar(*arguments), theirs.most_similar(*arguments)
        assert [word for word, _ in ours] == [word for word, _ in expected]
        np.testing.assert_allclose([c for _, c in ours], [c for _, c in expected], rtol=1e-5)
        assert type(ours[0]) is type(expected[0])
    five, ten = words[:5], words[5:10]
    assert vectors.n_similarity(five, ten) == pytest.approx(theirs.n_similarity(five, ten), 1e-5)
    assert vectors.doesnt_match(words[:7]) == theirs.doesnt_match(words[:7])
    assert vectors.closer_than("w3", "w4") == theirs.closer_than("w3", "w4")
    assert vectors.rank("w3", "w4") == theirs.rank("w3", "w4")
    assert vectors.distance("w3", "w4") == pytest.approx(theirs.distance("w3", "w4"), 1e-5)
    np.testing.assert_allclose(vectors.distances("w3"), theirs.distances("w3"), atol=1e-6)
    np.testing.assert_allclose(
        vectors.distances("w3", five), theirs.distances("w3", five), atol=1e-6
    )
    assert vectors.similarity("w3", "w4") == pytest.approx(theirs.similarity("w3", "w4"), 1e-5)
