"""The dictionary against `collections.Counter` over slowly made n-grams."""

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases.text_reference import fold, is_separator, split

from hashembed.engine.labels import Labels
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import load_tensors, save_tensors
from hashembed.hashing import spec as hashing
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import Corpus
from hashembed.text.counts.exact import Counter as Counting
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags

SMALL = 1 << 16  # bytes: a sketch of 16,384 cells, tables of 2,048 slots


def ngrams(text, config: TextConfig) -> list[str]:
    """The n-grams of one document, in the order of its keys."""
    if isinstance(text, bytes):
        text = text.decode("utf8", "replace")
    words = split(text or "", config.lowercase, config.punctuation)
    lo, hi = config.ngrams
    return [
        " ".join(words[i : i + n])
        for i in range(len(words))
        for n in range(lo, min(hi, len(words) - i) + 1)
    ]


@cache
def key(ngram: str) -> int:
    return hashing.ngram_key(ngram.split(" "))


def reference(texts, config, size, min_count=1, stop=()) -> list[tuple[str, int]]:
    counts = Counter(ngram for text in texts for ngram in ngrams(text, config))
    kept = [(s, c) for s, c in counts.items() if c >= min_count and s not in stop]
    return sorted(kept, key=lambda pair: (-pair[1], key(pair[0])))[:size]


def contents(dictionary: Dictionary) -> list[tuple[str, int]]:
    return list(zip(dictionary.strings.to_pylist(), dictionary.counts.tolist(), strict=True))


words = st.text(st.sampled_from("aAbßİΣ1é\u0301🙂.+…"), min_size=1, max_size=3)
plain = st.lists(words, max_size=12).map(" ".join)
texts = st.lists(st.one_of(plain, st.text(max_size=20), st.binary(max_size=12), st.none()))
orders = st.tuples(st.integers(1, 3), st.integers(0, 6)).map(lambda t: (t[0], sum(t)))


@settings(deadline=None, max_examples=150)
@given(
    texts,
    orders,
    st.booleans(),
    st.sampled_from(["drop", "keep"]),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_like_a_counter(texts, orders, lowercase, punctuation, size, min_count):
    texts = [t.encode() if isinstance(t, str) else t for t in texts]
    config = TextConfig(orders, lowercase, punctuation=punctuation)
    dictionary = Dictionary.count(texts, config, size, min_count=min_count, memory=SMALL)
    assert contents(dictionary) == reference(texts, config, size, min_count)
    assert dictionary.keys.tolist() == [key(s) for s, _ in contents(dictionary)]
    saved = dictionary.tensors()
    loaded = Dictionary.from_tensors(saved, TextConfig.from_dict(config.to_dict()))
    assert contents(loaded) == contents(dictionary)
    assert loaded.keys.tolist() == dictionary.keys.tolist()
    bags = dictionary.bags(texts)
    rank = {s: i for i, (s, _) in enumerate(contents(dictionary))}
    for i, text in enumerate(texts):
        assert bags[i].tolist() == [rank[s] for s in ngrams(text, config) if s in rank]


def zipf_texts(documents: int = 400, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{w}" for w in rng.zipf(1.4, rng.integers(0, 60)) % 3000)
        for _ in range(documents)
    ]


@pytest.mark.parametrize("size", [1, 100, 2_000, 1_000_000])
def test_more_keys_than_the_tables_hold(size):
    """The sketch is crowded, its first threshold is wrong, and the keys need many rounds."""
    documents, config = zipf_texts(), TextConfig((1, 5))
    want = reference(documents, config, size)
    assert len(want) == size or size > 20_000 < len(want)
    got = Dictionary.count(documents, config, size, memory=SMALL)
    assert contents(got) == want


def test_the_same_for_any_number_of_threads_memory_and_columns():
    documents, config = zipf_texts(), TextConfig((1, 4))
    want = contents(Dictionary.count(documents, config, 3000, threads=1))
    for threads, memory in itertools.product((2, 3, 5), (SMALL, 1 << 22)):
        got = Dictionary.count(documents, config, 3000, threads=threads, memory=memory)
        assert contents(got) == want

    def columns():
        for start in range(0, len(documents), 7):
            yield pa.array(documents[start : start + 7])

    assert contents(Dictionary.count(columns, config, 3000)) == want


def test_texts_larger_than_a_piece(monkeypatch):
    monkeypatch.setattr("hashembed.text.counts.exact.CHUNK", 100)
    documents, config = [*zipf_texts(50), None, "", "w1 " * 500], TextConfig((2, 3))
    got = Dictionary.count(pa.chunked_array([documents[:20], documents[20:]]), config, 500)
    assert contents(got) == reference(documents, config, 500)
    ranks = got.bags(documents)
    monkeypatch.undo()
    assert np.array_equal(ranks.keys, got.bags(documents).keys)
    assert np.array_equal(ranks.offsets, got.bags(documents).offsets)


def test_counts_beyond_what_a_cell_holds():
    documents = ["a b"] * 70_000 + ["a c"] * 66_000 + ["d"] * 65_999
    got = contents(Dictionary.count(documents, TextConfig((1, 2)), 4, memory=SMALL))
    assert got == reference(documents, TextConfig((1, 2)), 4)
    assert got[0] == ("a", 136_000)


def test_stop_list():
    documents, config = ["The cat; the dog", "the cat"], TextConfig((1, 2))
    dictionary = Dictionary.count(documents, config, 3, stop=["THE", "dog", "never seen"])
    assert contents(dictionary) == reference(documents, config, 3, stop={"the", "dog"})
    assert "the cat" in dictionary.strings.to_pylist()


def test_unknown_ngrams_are_dropped_or_share_a_row():
    dictionary = Dictionary.count(["a b a", "a b"], TextConfig((1, 1)))
    assert dictionary.strings.to_pylist() == ["a", "b"]
    texts = ["c b", None, "c", "a c c"]
    dropped, shared = dictionary.bags(texts), dictionary.bags(texts, "share")
    assert dropped.keys.tolist() == [1, 0]
    assert dropped.offsets.tolist() == [0, 1, 1, 1, 2]
    assert shared.keys.tolist() == [2, 1, 2, 0, 2, 2]
    assert shared.offsets.tolist() == [0, 2, 2, 3, 6]
    assert (dictionary.num_embeddings(), dictionary.num_embeddings("share")) == (2, 3)
    with pytest.raises(ValueError, match=r"unknown must be one of 'drop', 'share', found 'keep'"):
        dictionary.bags(texts, "keep")


def test_a_frequency_cut_is_the_smaller_dictionary():
    documents, config = zipf_texts(), TextConfig((1, 3))
    large, small = (Dictionary.count(documents, config, size) for size in (2000, 300))
    cut = large.first(300)
    assert contents(cut) == contents(small)
    assert np.array_equal(cut.bags(documents).keys, small.bags(documents).keys)
    assert contents(Dictionary.from_tensors(cut.tensors(), config)) == contents(small)


def test_an_empty_corpus():
    for texts in ([], [None, "", "..."]):
        dictionary = Dictionary.count(texts)
        assert len(dictionary) == 0
        assert dictionary.bags(["a b", None], "share").lengths.tolist() == [3, 0]
        assert len(Dictionary.from_tensors(dictionary.tensors(), dictionary.config)) == 0


def test_saved_with_a_model_in_few_bytes(tmp_path):
    dictionary = Dictionary.count(zipf_texts(), TextConfig((1, 9)), 20_000)
    path = tmp_path / "model.safetensors"
    save_tensors(path, "test", dictionary.tensors(), dictionary.config.to_dict())
    tensors, meta = load_tensors(path, "test")
    assert contents(Dictionary.from_tensors(tensors, TextConfig.from_dict(meta))) == contents(
        dictionary
    )
    plain = sum(len(s) for s in dictionary.strings.to_pylist()) + 8 * len(dictionary)
    assert path.stat().st_size < plain / 1.5


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("shared", lambda a: a + 1),
        ("shared", lambda a: a[:-1]),
        ("tails", lambda a: a + 1),
        ("rest", lambda a: a[:-1]),
        ("ranks", lambda a: a + 1),
        ("ranks", lambda a: a * 0),
        ("counts", lambda a: a[1:]),
    ],
)
def test_damaged_arrays_are_refused(name, damage):
    dictionary = Dictionary.count(zipf_texts(5), TextConfig((1, 2)))
    tensors = dictionary.tensors()
    tensors[f"dictionary.{name}"] = damage(tensors[f"dictionary.{name}"])
    with pytest.raises(ValueError, match="do not fit each other: they are damaged"):
        Dictionary.from_tensors(tensors, dictionary.config)


def test_strings_of_any_length_survive_front_coding():
    texts = ["x" * 300, "x" * 300 + "y", "x" * 70_000, "x", "x" * 255, "x" * 256 + " x"]
    dictionary = Dictionary.count(texts, TextConfig((1, 2)))
    assert contents(dictionary) == reference(texts, TextConfig((1, 2)), 100)
    loaded = Dictionary.from_tensors(dictionary.tensors(), dictionary.config)
    assert contents(loaded) == contents(dictionary)


def test_folded_characters_are_no_separators():
    """So that the words of a stored string are the words of the n-gram."""
    for char in map(chr, range(0x110000)):
        folded = fold(char)
        if folded != char and not is_separator(char):
            assert not any(map(is_separator, folded)), char


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"subwords=\(3, 6\)"):
        Dictionary.count(["a"], TextConfig(subwords=(3, 6)))
    with pytest.raises(ValueError, match="size must be a whole number from 1"):
        Dictionary.count(["a"], size=0)
    with pytest.raises(ValueError, match="an n-gram has 1 to 9 words, found ' , '"):
        Dictionary.count(["a"], stop=[" , "])
    with pytest.raises(ValueError, match="1 to 9 words"):
        Dictionary.count(["a"], stop=["a b c d e f g h i j"])
    once = iter([["a b"], ["c d"]])
    with pytest.raises(ValueError, match="6 n-grams in the first reading, 0 in a later one"):
        Dictionary.count(lambda: once)
    readings = iter(["a b", "a b", "c d"])
    with pytest.raises(ValueError, match="3 n-grams were not found again"):
        Dictionary.count(lambda: [[next(readings)]])


def test_too_little_memory_is_an_error_not_an_endless_loop(monkeypatch):
    same = hashing.pack(np.arange(5000) << 19, np.full(5000, 7))  # keys that no range can part
    monkeypatch.setattr("hashembed.text.counts.exact.Corpus.all_keys", lambda _: iter([same, same]))
    with pytest.raises(MemoryError, match="raise `memory`"):
        Dictionary.count(["a"], size=10_000, memory=SMALL, threads=2)


def test_ranks_and_no_weights_are_a_standard_embedding():
    """A dictionary's ranks in a model with k = 1, B = K and no weights: a row for each n-gram."""
    texts, config = zipf_texts(60), TextConfig((1, 2))
    dictionary = Dictionary.count(texts, config, 50)
    bags = dictionary.bags(texts, "share")
    K = dictionary.num_embeddings("share")
    model = ShallowModel(HashSpec(K, K, 1, "identity"), 4, 3, importance=False)
    assert model.num_parameters == K * 4 + 3 * 4 + 3
    E, W = model.tables.E, model.tables.W
    want = np.array([E[bag].sum(axis=0) for bag in bags]) @ W.T
    np.testing.assert_allclose(model.scores(bags), want, rtol=1e-4, atol=1e-5)
    before, labels = model.state(), Labels.single(np.arange(len(texts)) % 3)
    model.train(bags, labels, np.arange(len(bags)), np.full(1, 0.1, np.float32))
    assert (before["E"] != model.tables.E).any(axis=1).all()  # every id has its own row


def test_a_model_refuses_ids_outside_its_tables():
    model = ShallowModel(HashSpec(5, 5, 1, "identity"), 4, 2, importance=False)
    good = Bags(np.array([0, 4]), np.array([0, 2]))
    assert model.scores(good).shape == (1, 2)
    for bad in (5, -1):
        bags = Bags(np.array([0, bad]), np.array([0, 2]))
        with pytest.raises(ValueError, match=r"takes ids from 0 to 4, found ids from"):
            model.scores(bags)
        with pytest.raises(ValueError, match=r"takes ids from 0 to 4, found ids from"):
            model.train(bags, Labels.single([0]), np.arange(1), np.full(1, 0.1, np.float32))


def test_the_keys_are_those_of_the_text():
    config = TextConfig((1, 9))
    documents = ["Straße, STRASSE!", "one two three"]
    dictionary = Dictionary.count(documents, config)
    assert set(dictionary.keys.tolist()) == set(text_to_bags(documents, config).keys.tolist())


def test_a_key_at_the_edge_of_a_round_is_counted_in_one_round():
    edges = np.arange(4096)  # halving the range again and again ends at each of these
    keys = hashing.pack(hashing.unpack(hashing.id_keys(edges))[0], edges << 20)
    corpus = Corpus([], TextConfig())
    corpus.all_keys = lambda: iter([keys, keys[:100]])
    found, counts = Counting(corpus, SMALL, 2).most_frequent(5000, 1)
    assert sorted(found.tolist()) == sorted(keys.tolist())
    assert counts.tolist() == [2] * 100 + [1] * 3996
