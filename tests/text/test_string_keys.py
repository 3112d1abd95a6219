"""`hashembed.keys` against the key of one word, for everything that holds strings."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hashembed
from hashembed.hashing.spec import WORD_SEEDS, bytes_key, word_key
from hashembed.text import string_keys

strings = st.lists(st.text(max_size=40), max_size=100)
patient = settings(deadline=None)


def wanted(words):
    return [word_key(word) for word in words]


@patient
@given(strings)
def test_every_container_gives_the_keys_of_the_specification(words):
    want = wanted(words)
    column = pa.array(words, pa.string())
    several = pa.chunked_array([column[:3], column[3:3], column[3:]], pa.string())
    for holder in (
        words,
        tuple(words),
        iter(words),
        np.array(words, object),
        column,
        column.cast(pa.large_string()),
        pa.array([word.encode() for word in words], pa.binary()),
        several,
        column.dictionary_encode(),
        several.dictionary_encode(),
    ):
        found = hashembed.keys(holder)
        assert found.dtype == np.int64
        assert found.tolist() == want
    assert hashembed.keys(column[1:]).tolist() == want[1:]
    assert hashembed.keys(column.dictionary_encode()[1:]).tolist() == want[1:]


@patient
@given(st.lists(st.binary(max_size=20), max_size=90))
def test_bytes_are_hashed_as_they_are(words):
    want = [bytes_key(word, WORD_SEEDS) for word in words]
    assert hashembed.keys(words).tolist() == want


@patient
@given(st.lists(st.none() | st.text(max_size=5), max_size=100), st.integers(-(2**63), 2**63 - 1))
def test_missing_strings_have_the_key_that_is_given(words, null):
    want = [null if word is None else word_key(word) for word in words]
    column = pa.array(words, pa.string())
    for holder in (words, column, column.dictionary_encode(), np.array(words, object)):
        assert hashembed.keys(holder, null=null).tolist() == want
        if None in words:
            with pytest.raises(ValueError, match=rf"string {words.index(None)} is missing"):
                hashembed.keys(holder)


def test_numpy_arrays_keep_their_shape():
    words = np.array([["user:1", "b", ""], ["é", "馬", "🐎"]])
    found = hashembed.keys(words)
    assert found.shape == (2, 3)
    assert found.tolist() == [wanted(row) for row in words.tolist()]
    assert hashembed.keys(words[:0]).shape == (0, 3)
    assert hashembed.keys(np.array("a")).tolist() == word_key("a")


def test_nan_is_missing_as_in_pandas():
    assert hashembed.keys(np.array(["a", np.nan], object), null=5).tolist() == [word_key("a"), 5]
    pd = pytest.importorskip("pandas")
    words = ["b", None, "a", "b"]
    want = [word_key("b"), 0, word_key("a"), word_key("b")]
    for series in (pd.Series(words), pd.Series(words).astype("category")):
        assert hashembed.keys(series, null=0).tolist() == want


def test_a_null_inside_of_a_dictionary():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", None]))
    assert hashembed.keys(column, null=3).tolist() == [word_key("a"), 3, 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_many_strings_on_several_threads(workers, monkeypatch):
    monkeypatch.setattr(string_keys, "_STRINGS_PER_WORKER", 7)
    monkeypatch.setattr(string_keys, "cpu_count", lambda: workers)
    words = [f"user:{i}" * (i % 4) for i in range(1000)]
    assert hashembed.keys(words).tolist() == wanted(words)


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        ("user:42", "found one str"),
        (b"user:42", "found one bytes"),
        ([1, 2], "must be a str or None, found 1 of type int"),
        (["a"] * 99 + [7], "text 99 must be a str or None"),
        (pa.array([1, 2]), "found Arrow's int64"),
        (pa.array([1, 2]).dictionary_encode(), "found Arrow's int64"),
        (None, "found NoneType"),
    ],
)
def test_what_holds_no_strings_is_refused(holder, words):
    with pytest.raises(TypeError, match=words):
        hashembed.keys(holder)


def test_keys_are_ids_for_a_layer():
    torch = pytest.importorskip("torch")
    layer = hashembed.HashEmbedding(1000, 4, padding_idx=0, init=1.0)
    found = layer(torch.from_numpy(hashembed.keys(["user:1", None, "user:2", "user:1"], null=0)))
    assert torch.equal(found[0], found[3])
    assert not torch.equal(found[0], found[2])
    assert not found[1].any()


ALONE = """
import sys
sys.modules["torch"] = None
import hashembed
assert hashembed.keys(["horse"]).tolist() == [0x12FF59879D793C6F]
heavy = {"pyarrow", "pandas", "numba"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_few_strings_need_neither_torch_nor_arrow():
    subprocess.run([sys.executable, "-W", "error", "-c", ALONE], check=True)
