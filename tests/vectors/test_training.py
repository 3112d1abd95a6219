"""Training of word vectors: what is learned, and that it is always the same."""

import numpy as np
import pytest

from hashembed import WordVectors


def texts_about(topics, count, seed=0):
    """Texts whose words come from one topic each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(topics[i % len(topics)], 12)) for i in range(count)]


ANIMALS = ["cat", "dog", "horse", "cow", "mouse", "goat"]
TOOLS = ["hammer", "saw", "drill", "wrench", "chisel", "pliers"]


@pytest.fixture(scope="module")
def vectors():
    return WordVectors(embedding_dim=20, batch_size=64).fit(texts_about((ANIMALS, TOOLS), 600))


def test_words_of_one_topic_are_near_each_other(vectors):
    for words in (ANIMALS, TOOLS):
        for word in words:
            found = {near.word for near in vectors.nearest(word, 5)}
            assert found == set(words) - {word}


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_same_bits_for_any_number_of_threads(model, threads):
    texts = texts_about((ANIMALS, TOOLS), 400)

    def fit(threads):
        options = {"embedding_dim": 13, "batch_size": 96, "passes": 2, "threads": threads}
        return WordVectors(model, **options).fit(texts)

    one, other = fit(3), fit(threads)
    for name, table in one.model.state._asdict().items():
        np.testing.assert_array_equal(table, getattr(other.model.state, name), err_msg=name)
    assert one.losses_ == other.losses_
