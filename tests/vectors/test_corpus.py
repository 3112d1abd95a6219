"""From texts to numbers: the vocabulary, long texts, and corpora on disk."""

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed.text.config import TextConfig
from hashembed.vectors import corpus as corpus_module
from hashembed.vectors.corpus import END, count_ids, cut_texts, encode_corpus, renumber
from hashembed.vectors.id_store import IdStore, Storage

WORDS = TextConfig((1, 1))
TEXTS = st.lists(st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "é"]), max_size=6).map(" ".join))


def encode(texts, storage=None, min_count=1):
    return encode_corpus(texts, WORDS, min_count, 1000, 1, storage)


def plain_encoding(texts, dictionary):
    """What `encode_corpus` does, in plain Python."""
    ranks = {word: rank for rank, word in enumerate(dictionary.strings.to_pylist())}
    ids = []
    for text in texts:
        ids += [ranks[word] for word in (text or "").split() if word in ranks] + [END]
    return ids


@given(TEXTS, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_encoding_is_that_of_plain_python(texts, min_count):
    corpus = encode(texts, min_count=min_count)
    assert corpus.ids.tolist() == plain_encoding(texts, corpus.dictionary)
    np.testing.assert_array_equal(corpus.counts, corpus.dictionary.counts)
    assert corpus.words == (corpus.ids != END).sum()


@given(TEXTS, st.integers(0, 80))
@settings(max_examples=40, deadline=None)
def test_on_disk_as_in_memory(texts, limit):
    assert encode(texts, Storage(None, limit)).ids.tolist() == encode(texts).ids.tolist()


def test_a_file_without_a_name(tmp_path):
    folder = tmp_path / "new" / "cache"
    with IdStore(Storage(folder, 8)) as store:
        store.add(np.arange(3, dtype=np.int32))
        assert folder.is_dir()
        assert os.listdir(folder) == []
        store.add(np.arange(2, dtype=np.int32))
        ids = store.whole()
    assert ids.tolist() == [0, 1, 2, 0, 1]
    ids[0] = 7  # it can be renumbered in place
    assert ids.tolist() == [7, 1, 2, 0, 1]


def test_a_folder_that_is_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OSError, match="cache_dir"):
        encode(["a b c"], Storage(file, 0))


def test_a_long_text_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(corpus_module, "LONG", 400)
    monkeypatch.setattr(corpus_module, "CHUNK", 100)
    words = [f"w{x % 37}é" for x in range(1000)]
    texts = ["first text", " ".join(words), None, "", "last text"]
    parts = list(cut_texts(lambda: [pa.array(texts)], WORDS))
    assert len(parts) > 20
    assert [ends for _, ends in parts].count(False) > 20
    cut = encode(texts)
    monkeypatch.undo()
    whole = encode(texts)
    assert cut.ids.tolist() == whole.ids.tolist()
    assert cut.dictionary.strings == whole.dictionary.strings


def test_columns_do_not_matter():
    texts = [f"a b{x % 3} c" for x in range(30)]
    parts = [texts[:7], [], pa.array(texts[7:20]), np.array(texts[20:])]
    assert encode(lambda: iter(parts)).ids.tolist() == encode(texts).ids.tolist()
    assert encode(iter(texts)).ids.tolist() == encode(texts).ids.tolist()


def test_texts_that_change_between_readings():
    readings = iter([["a a a b"], ["a a a b"], ["a a a b"], ["a a b"], ["a"]])
    with pytest.raises(ValueError, match="the texts changed"):
        encode(lambda: [next(readings)])


@given(st.lists(st.integers(-1, 4)), st.permutations(range(5)))
def test_renumber_and_count(numbers, order):
    ids, new = np.array(numbers, np.int32), np.array(order, np.int32)
    expected = [order[number] if number >= 0 else -1 for number in numbers]
    assert count_ids(ids, 5).tolist() == [numbers.count(value) for value in range(5)]
    renumber(ids, new)
    assert ids.tolist() == expected
