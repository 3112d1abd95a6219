"""Files in word2vec's format: what is written is read again, and bad files are refused."""

import gzip
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import WordVectors
from hashembed.vectors.word2vec_file import VectorFileError

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "él sat"] * 20
TABLE = {"New_York": [1.5, -2.0], "don't": [0.25, 3e-30], ",": [1.0, 0.0], "the": [7.0, 8.5]}

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def vectors():
    return WordVectors(embedding_dim=7, passes=1, min_count=1, sample=1.0).fit(TEXTS)


def write_text(path, table=TABLE, header=None):
    lines = [header or f"{len(table)} 2"]
    lines += [f"{word} {a!r} {b!r}" for word, (a, b) in table.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_binary(path, table=TABLE, newline=b"\n"):
    parts = [f"{len(table)} 2\n".encode()]
    parts += [w.encode() + b" " + np.array(v, "<f4").tobytes() + newline for w, v in table.items()]
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("told", [False, True])
def test_all_bits_survive(vectors, tmp_path, binary, suffix, told):
    path = tmp_path / f"v.vec{suffix}"
    vectors.export_word2vec(path, binary)
    again = WordVectors.from_word2vec(path, binary if told else None)
    assert again.index_to_key == vectors.index_to_key
    np.testing.assert_array_equal(again.vectors, vectors.vectors)
    np.testing.assert_array_equal(again["cat"], vectors["cat"])
    again.export_word2vec(tmp_path / f"w.vec{suffix}", binary)
    assert (tmp_path / f"w.vec{suffix}").read_bytes() == path.read_bytes()


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda w: not set(w) & set(" \r\n") and _encodable(w)),
        st.lists(FINITE, min_size=3, max_size=3),
        min_size=1,
    )
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_words_and_numbers(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("v")
    text = f"{len(table)} 3\n" + "".join(
        f"{word} {' '.join(str(x) for x in row)} \n" for word, row in table.items()
    )
    (folder / "v.vec").write_text(text, newline="\n")
    vectors = WordVectors.from_word2vec(folder / "v.vec", binary=False)
    expected = np.array(list(table.values()), np.float32)
    assert vectors.index_to_key == list(table)
    np.testing.assert_array_equal(vectors.vectors, expected)
    for binary in (False, True):
        vectors.export_word2vec(folder / "w", binary)
        again = WordVectors.from_word2vec(folder / "w", binary)
        assert again.index_to_key == list(table)
        np.testing.assert_array_equal(again.vectors, expected)
        np.testing.assert_array_equal(again[list(table)], expected)


def _encodable(word):
    try:
        return bool(word.encode())
    except UnicodeEncodeError:
        return False


@pytest.mark.parametrize("newline", [b"\n", b""])
def test_words_are_taken_whole(tmp_path, newline):
    for path in (write_text(tmp_path / "t"), write_binary(tmp_path / "b", newline=newline)):
        vectors = WordVectors.from_word2vec(path)
        for word, row in TABLE.items():
            assert word in vectors
            np.testing.assert_array_equal(vectors[word], np.array(row, np.float32))
        assert "New York" not in vectors
        np.testing.assert_array_equal(vectors.transform(["nothing here", None]), np.zeros((2, 2)))
        np.testing.assert_array_equal(vectors.transform(["so the"])[0], [7.0, 8.5])
        with pytest.raises(KeyError, match="'york' is not in the vocabulary"):
            vectors["york"]
        with pytest.raises(KeyError, match="'no'"):
            vectors[["the", "no"]]


def test_a_table_is_saved_as_any_vectors(tmp_path):
    vectors = WordVectors.from_word2vec(write_text(tmp_path / "t"))
    vectors.save(tmp_path / "v")
    again = WordVectors.load(tmp_path / "v")
    assert again.index_to_key == list(TABLE)
    assert "New_York" in again
    np.testing.assert_allclose(again.vectors, vectors.vectors, atol=0.05)
    with pytest.raises(ValueError, match="training"):
        vectors.save(tmp_path / "w", for_training=True)
    with pytest.raises(ValueError, match="training state"):
        vectors.partial_fit(["a b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: found ''"),
        ("hello\n", "line 1: found 'hello.*GloVe"),
        ("the 0.1 0.2 0.3\ncat 1 2 3\n", "line 1: .*GloVe"),
        ("0 2\n", "line 1: found 0 words"),
        ("2 0\na\nb\n", "line 1: found 2 words of 0"),
        ("1 99999\na 1\n", "line 1"),
        ("-1 2\n", "line 1"),
        ("99999999999999 2\na 1 2\n", "do not fit"),
        ("2 2\na 1 2\nb 1\n", "line 3: found 1 numbers after 'b', expected 2"),
        ("2 2\na 1 2\nb 1 2 3\n", "line 3: found 3 numbers"),
        ("2 2\na 1 2\nb\n", "line 3: found 0 numbers"),
        ("2 2\na 1 2\nb 1 x\n", "line 3: found 'x', expected a number"),
        ("2 2\na 1 2\nb 1 nan\n", "line 3: found NaN"),
        ("2 2\na 1 2\nb 1 1e99\n", "line 3: .*too large"),
        ("2 2\na 1 2\n 1 2\n", "line 3: found an empty word"),
        ("2 2\na 1 2\na 3 4\n", "found 'a' twice, as word 1 and as word 2"),
        ("3 2\na 1.0 2.0\nb 3.0 4.0\n", "says 3 words, but the file ends after 2"),
        ("1 2\na 1 2\nb 3 4\n", "line 3: found more than the 1 words"),
        ("1 2\n\x1b[2J 1 y\n", "line 2"),
    ],
)
def test_bad_text(tmp_path, content, message):
    path = tmp_path / "v.vec"
    path.write_text(content)
    with pytest.raises(VectorFileError, match=message) as error:
        WordVectors.from_word2vec(path, binary=False)
    assert str(path) in str(error.value)
    assert "\x1b" not in str(error.value)


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "v.vec"
    path.write_bytes(b"1 2\n\xff 1 2\n")
    with pytest.raises(VectorFileError, match=r"line 2: .*not UTF-8"):
        WordVectors.from_word2vec(path)


@pytest.mark.parametrize("binary", [None, True])
def test_binary_files_that_were_cut_off(tmp_path, binary):
    whole = write_binary(tmp_path / "whole").read_bytes()
    path = tmp_path / "part"
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(VectorFileError):
            WordVectors.from_word2vec(path, binary)
    path.write_bytes(whole + b"x")
    with pytest.raises(VectorFileError, match="more than the 4 words"):
        WordVectors.from_word2vec(path, binary)


def test_numbers_of_binary_files(tmp_path):
    path = write_binary(tmp_path / "v", {"a": [1, 2], "b": [np.inf, 1]})
    with pytest.raises(VectorFileError, match="'b' holds NaN or infinity"):
        WordVectors.from_word2vec(path, binary=True)
    path = write_binary(tmp_path / "v", {"a": [1, 2], "b" * 70_000: [3, 1]})
    with pytest.raises(VectorFileError, match="word 2 has no end"):
        WordVectors.from_word2vec(path, binary=True)


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(write_text(tmp_path / "t").read_bytes())
    for content in (packed[:-10], packed[:20] + b"\0\0" + packed[22:], b"\x1f\x8b"):
        (tmp_path / "v.gz").write_bytes(content)
        with pytest.raises(VectorFileError):
            WordVectors.from_word2vec(tmp_path / "v.gz")


def test_a_failed_export_leaves_the_old_file(vectors, tmp_path, monkeypatch):
    path = tmp_path / "v.vec"
    path.write_text("old")
    monkeypatch.setattr("hashembed.vectors.word2vec_file._printed", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        vectors.export_word2vec(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["v.vec"]


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_and_writes_the_same(vectors, tmp_path, binary):
    models = pytest.importorskip("gensim.models")
    path = tmp_path / "v"
    vectors.export_word2vec(path, binary)
    theirs = models.KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert theirs.index_to_key == vectors.index_to_key
    np.testing.assert_array_equal(theirs.vectors, vectors.vectors)
    theirs.save_word2vec_format(str(path), binary=binary)
    ours = WordVectors.from_word2vec(path)
    assert ours.index_to_key == vectors.index_to_key
    np.testing.assert_allclose(ours.vectors, vectors.vectors, rtol=1e-5)
