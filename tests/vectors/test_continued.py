"""Training that continues on new text."""

import numpy as np
import pytest

from hashembed import WordVectors
from hashembed.vectors.continued import NoTrainingStateError

OPTIONS = {"embedding_dim": 12, "batch_size": 64, "passes": 2, "min_count": 3, "seed": 5}
ANIMALS = ["cat", "dog", "horse", "cow", "mouse", "goat"]
TOOLS = ["hammer", "saw", "drill", "wrench", "chisel", "pliers"]


def texts_of(words, count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, 12)) for _ in range(count)]


OLD, NEW = texts_of(ANIMALS, 200), texts_of([*TOOLS, "cat", "cow"], 150, 1)


def tables_of(vectors):
    return vectors.model.state._asdict()


@pytest.fixture(scope="module")
def continued():
    return WordVectors(**OPTIONS).fit(OLD).partial_fit(NEW)


def test_new_words_join_and_old_ones_stay(continued):
    assert set(continued.index_to_key) == {*ANIMALS, *TOOLS}
    counts = dict(zip(continued.index_to_key, continued.model.dictionary.counts, strict=True))
    words = " ".join(OLD + NEW).split()
    assert counts == {word: words.count(word) for word in counts}
    dictionary = continued.model.dictionary
    order = np.lexsort((dictionary.keys, -dictionary.counts))
    assert order.tolist() == list(range(len(order)))
    assert len(continued.losses_) == 4


def test_rows_of_the_output_move_with_their_words():
    vectors = WordVectors(**OPTIONS).fit(OLD)
    before = {word: vectors.model.state.C[rank] for rank, word in enumerate(vectors.index_to_key)}
    squares = {w: vectors.model.state.C_square[r] for r, w in enumerate(vectors.index_to_key)}
    # A text of one word has no pairs: nothing is trained, but counts change the order.
    vectors.partial_fit(["goat"] * 500 + ["newword"] * 3)
    assert vectors.index_to_key[0] == "goat"
    for rank, word in enumerate(vectors.index_to_key):
        if word == "newword":
            assert not vectors.model.state.C[rank].any()
        else:
            np.testing.assert_array_equal(vectors.model.state.C[rank], before[word])
            assert 0 < vectors.model.state.C_square[rank] <= squares[word]  # they decay


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_same_bits_for_any_number_of_threads(continued, threads):
    again = WordVectors(**OPTIONS, threads=threads).fit(OLD).partial_fit(NEW)
    for name, table in tables_of(continued).items():
        np.testing.assert_array_equal(table, tables_of(again)[name], err_msg=name)


def test_same_bits_after_a_file(continued, tmp_path):
    WordVectors(**OPTIONS).fit(OLD).save(tmp_path / "v", for_training=True)
    loaded = WordVectors.load(tmp_path / "v").partial_fit(NEW)
    for name, table in tables_of(continued).items():
        np.testing.assert_array_equal(table, tables_of(loaded)[name], err_msg=name)
    assert loaded.index_to_key == continued.index_to_key
    assert loaded.losses_ == continued.losses_


def test_a_function_of_columns_and_a_corpus_on_disk(continued, tmp_path):
    columns = [NEW[:50], NEW[50:]]
    again = WordVectors(**OPTIONS).fit(OLD).partial_fit(lambda: columns, cache_dir=tmp_path)
    np.testing.assert_array_equal(again.vectors, continued.vectors)


def test_a_file_without_a_training_state(tmp_path):
    WordVectors(**OPTIONS).fit(OLD).save(tmp_path / "v")
    vectors = WordVectors.load(tmp_path / "v")
    before = vectors["cat"]
    with pytest.raises(NoTrainingStateError, match="for_training=True"):
        vectors.partial_fit(NEW)
    np.testing.assert_array_equal(vectors["cat"], before)


def test_the_first_call_is_fit():
    one, other = WordVectors(**OPTIONS).partial_fit(OLD), WordVectors(**OPTIONS).fit(OLD)
    np.testing.assert_array_equal(one.vectors, other.vectors)


def test_nothing_to_learn_leaves_the_vectors_as_they_are():
    vectors = WordVectors(**OPTIONS).fit(OLD)
    before = vectors.vectors.copy()
    for texts in ([], ["unheard words"], [None, ""]):
        with pytest.raises(ValueError, match="nothing to learn"):
            vectors.partial_fit(texts)
    with pytest.raises(RuntimeError, match="stop"):
        vectors.partial_fit(NEW, _stop)
    np.testing.assert_array_equal(vectors.vectors, before)
    del vectors.model.__dict__["vectors"]
    np.testing.assert_array_equal(vectors.vectors, before)  # the tables, too


def _stop(progress):
    raise RuntimeError("stop")


def test_at_most_max_words():
    vectors = WordVectors(**OPTIONS, max_words=8).fit(OLD).partial_fit(NEW)
    assert len(vectors) == 8
    assert set(ANIMALS) < set(vectors.index_to_key)
