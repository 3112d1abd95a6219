"""Phrases: which are chosen, where they are found, and what their vectors are made of."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import WordVectors
from hashembed.hashing.spec import ngram_key, subword_key
from hashembed.vectors.corpus import END, entries_of, words_of
from hashembed.vectors.phrases import encode_phrases
from hashembed.vectors.settings import VectorSettings


def plain_phrases(texts, most, min_count, threshold):
    """The chosen n-grams, in plain Python."""
    ngrams = Counter()
    for text in texts:
        words = text.split()
        for n in range(1, most + 1):
            ngrams.update(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    ngrams = {ngram: count for ngram, count in ngrams.items() if count >= min_count}
    total = sum(count for ngram, count in ngrams.items() if len(ngram) == 1)
    units = {ngram for ngram in ngrams if len(ngram) == 1}
    for n in range(2, most + 1):
        for ngram, count in ngrams.items():
            if len(ngram) == n:
                for cut in range(1, n):
                    a, b = ngram[:cut], ngram[cut:]
                    if a in units and b in units:
                        score = (count - min_count) * (total / (ngrams[a] * ngrams[b]))
                        if score > threshold:
                            units.add(ngram)
    return units


def plain_units(words, units, most):
    """A text, divided from left to right."""
    place, found = 0, []
    while place < len(words):
        for n in range(min(most, len(words) - place), 0, -1):
            ngram = tuple(words[place : place + n])
            if ngram in units or n == 1:
                found += [" ".join(ngram)] if ngram in units else []
                place += n
                break
    return found


def plain_encoding(texts, most, min_count, threshold):
    units = plain_phrases(texts, most, min_count, threshold)
    counts = Counter(u for text in texts for u in plain_units(text.split(), units, most))
    rare = {u for u in units if len(u) > 1 and counts[" ".join(u)] < min_count}
    return [plain_units(text.split(), units - rare, most) for text in texts]


TEXTS = st.lists(
    st.lists(st.sampled_from(["new", "york", "city", "times", "a"]), max_size=9).map(" ".join),
    max_size=12,
)


@given(TEXTS, st.integers(2, 4), st.integers(1, 3), st.sampled_from([0.1, 0.5, 1.0, 3.0]))
@settings(max_examples=150, deadline=None)
def test_phrases_are_those_of_plain_python(texts, most, min_count, threshold):
    chosen = VectorSettings(phrases=most, phrase_threshold=threshold, min_count=min_count)
    corpus = encode_phrases(texts, chosen, 1, None)
    strings = corpus.dictionary.strings.to_pylist()
    found, current = [], []
    for number in corpus.ids.tolist():
        if number == END:
            found.append(current)
            current = []
        else:
            current.append(strings[number])
    expected = plain_encoding(texts, most, min_count, threshold)
    assert found == expected
    counts = Counter(unit for text in expected for unit in text)
    assert dict(zip(strings, corpus.dictionary.counts.tolist(), strict=True)) == counts
    order = np.lexsort((corpus.dictionary.keys, -corpus.dictionary.counts))
    assert order.tolist() == list(range(len(order)))


@given(st.lists(st.integers(0, 30), max_size=10), st.integers(1, 4))
def test_words_of_a_number_of_ngrams(words, most):
    ngrams = [sum(max(m - n + 1, 0) for n in range(1, most + 1)) for m in words]
    assert words_of(np.array(ngrams, np.int64), most).tolist() == words


def test_the_keys_of_a_phrase():
    import pyarrow as pa

    strings = pa.array(["new york", "a", "one of them"], pa.large_string())
    keys, offsets = entries_of(strings, VectorSettings().words, (3, 3))
    bags = [keys[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    parts = ["<ne", "new", "ew>", "<yo", "yor", "ork", "rk>"]
    assert bags[0] == [ngram_key(["new", "york"]), *map(subword_key, parts)]
    assert bags[1] == [ngram_key(["a"]), subword_key("<a>")]
    assert bags[2][0] == ngram_key(["one", "of", "them"])
    keys, offsets = entries_of(strings, VectorSettings().words, None)
    assert keys[0] == ngram_key(["new", "york"])
    assert offsets.tolist() == [0, 1, 2, 3]


def corpus_with_phrases(seed=0):
    rng = np.random.default_rng(seed)
    words = [f"w{x}" for x in range(60)]
    phrases = ["new york", "ice cream sundae", "san jose"]
    return [
        " ".join([*rng.choice(words, 6), phrases[rng.integers(3)], *rng.choice(words, 5)])
        for _ in range(500)
    ]


@pytest.fixture(scope="module", params=[(3, 6), None])
def vectors(request):
    sizes = {"embedding_dim": 10, "batch_size": 64, "passes": 2, "sample": 0.1}
    options = {"phrases": 3, "phrase_threshold": 20.0, "subwords": request.param}
    return WordVectors(**sizes, **options).fit(corpus_with_phrases())


def test_phrases_are_words_of_the_vocabulary(vectors):
    found = [word for word in vectors.index_to_key if " " in word]
    assert set(found) == {"new york", "ice cream sundae", "san jose"}
    assert "New York" in vectors
    assert "york" not in vectors
    place = vectors.get_index("new york")
    np.testing.assert_array_equal(vectors["new york"], vectors.vectors[place])
    np.testing.assert_array_equal(vectors["NEW, york!"], vectors.vectors[place])
    assert vectors.vectors[place].any()
    assert vectors.nearest("new york", 3)[0].word != "new york"


def test_longer_texts_merge_phrases(vectors):
    text = "w1 new york w2 york ice cream sundae ice cream"
    units = ["w1", "new york", "w2", "ice cream sundae"]
    if vectors.settings.subwords:
        units += ["york", "ice", "cream"]  # words that occur only in phrases: by their n-grams
    expected = vectors.transform(units).mean(axis=0)
    np.testing.assert_allclose(vectors.transform([text])[0], expected, atol=1e-6)


def test_files_layers_and_smaller_vectors_have_phrases(vectors, tmp_path):
    vectors.save(tmp_path / "v", for_training=True)
    again = WordVectors.load(tmp_path / "v")
    assert again.index_to_key == vectors.index_to_key
    np.testing.assert_array_equal(again.vectors, vectors.vectors)
    small = vectors.compress(9000)
    small.save(tmp_path / "s")
    again = WordVectors.load(tmp_path / "s")
    assert "san jose" in again
    np.testing.assert_array_equal(again["san jose"], small["san jose"])
    vectors.export_word2vec(tmp_path / "e")
    table = WordVectors.from_word2vec(tmp_path / "e")
    np.testing.assert_array_equal(table["san_jose"], vectors["san jose"])
    torch = pytest.importorskip("torch")
    from hashembed.nn import HashEmbeddingBag

    layer = HashEmbeddingBag.from_pretrained(vectors)
    strings = ["new york", "w3", "w99x", "ice cream sundae"]
    keys, offsets = (torch.from_numpy(part) for part in vectors.keys(strings))
    found = layer(keys, offsets).numpy()
    np.testing.assert_allclose(found, vectors.transform(strings), atol=1e-6)


def test_same_bits_for_any_number_of_threads(vectors):
    options = vectors.settings.to_dict()
    again = WordVectors(**options, threads=3).fit(corpus_with_phrases())
    np.testing.assert_array_equal(again.vectors, vectors.vectors)


def test_training_continues_with_phrases(vectors, tmp_path):
    vectors.save(tmp_path / "v", for_training=True)
    again = WordVectors.load(tmp_path / "v").partial_fit(corpus_with_phrases(1) + ["brandnew"] * 9)
    counts = dict(zip(again.index_to_key, again.model.dictionary.counts, strict=True))
    texts = corpus_with_phrases() + corpus_with_phrases(1)
    assert counts["new york"] == sum(text.count("new york") for text in texts)
    assert counts["brandnew"] == 9


@pytest.mark.parametrize("phrases", [0, 5, 1.5, "2"])
def test_arguments(phrases):
    with pytest.raises((ValueError, TypeError), match="phrases"):
        WordVectors(phrases=phrases)
