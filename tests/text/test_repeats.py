"""Which of equal n-grams count: every path against `counted`, which is plain Python."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import TextClassifier
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags
from hashembed.text.repeats import CODES, counted, without_repeats
from hashembed.text.spans import ngrams_of

documents = st.lists(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)), max_size=30)
kinds = st.sampled_from(["all", "damp", "once"])
CONFIG = TextConfig((1, 2), subwords=(2, 3), punctuation="keep")


def test_what_counts():
    keys = np.array([7] * 9 + [5, 7, 5, 5])
    assert counted(keys, "all").tolist() == list(range(13))
    assert counted(keys, "damp").tolist() == [0, 1, 3, 7, 9, 11]
    assert counted(keys, "once").tolist() == [0, 9]


@settings(deadline=None)
@given(documents, kinds, st.integers(1, 3))
def test_bags_are_those_of_plain_python(lists, repeats, threads):
    keys = np.array([key for keys in lists for key in keys], np.int64)
    offsets = np.cumsum([0, *map(len, lists)])
    found = without_repeats(keys.copy(), offsets, CODES[repeats], threads)
    wanted = [np.array(own, np.int64)[counted(np.array(own), repeats)] for own in lists]
    assert [bag.tolist() for bag in map(found.__getitem__, range(len(found)))] == [
        bag.tolist() for bag in wanted
    ]


@pytest.mark.parametrize("repeats", ["damp", "once"])
def test_many_documents_on_any_number_of_threads(repeats):
    draw = np.random.default_rng(5)
    lengths = draw.integers(0, 900, 2_000)
    lengths[7] = 300_000  # longer than what a worker takes at a time
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = draw.integers(-200, 200, offsets[-1]) * 2**40
    found = [without_repeats(keys.copy(), offsets, CODES[repeats], t) for t in (1, 2, 3)]
    for i in (0, 1, 6, 7, 8, 1_000, 1_999):
        own = keys[offsets[i] : offsets[i + 1]]
        assert found[0][i].tolist() == own[counted(own, repeats)].tolist()
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].keys, other.keys)
        np.testing.assert_array_equal(found[0].offsets, other.offsets)


@pytest.mark.parametrize("repeats", ["damp", "once"])
@pytest.mark.parametrize("texts", [1, 500])
def test_texts(repeats, texts):
    """500 texts are more than the path for a few takes."""
    text = "to be, or not to be: to be -- to be"
    config = replace(CONFIG, repeats=repeats)
    every = text_to_bags([text], CONFIG)[0]
    wanted = every[counted(every, repeats)].tolist()
    assert len(wanted) < len(every)
    bags = text_to_bags(pa.array([text] * texts), config)
    assert all(bags[i].tolist() == wanted for i in range(texts))
    keys, ngrams = ngrams_of(text, config)
    assert keys.tolist() == wanted
    _, all_ngrams = ngrams_of(text, CONFIG)
    assert ngrams == [all_ngrams[i] for i in counted(every, repeats)]


@pytest.mark.parametrize("repeats", ["all", "damp", "once"])
def test_a_classifier_answers_alike_by_every_path(repeats, tmp_path):
    texts = ["good good good film", "bad film bad film", "so good so so good", "a bad bad one"] * 5
    labels = ["+", "-", "+", "-"] * 5
    clf = TextClassifier(repeats=repeats, members=2).fit(texts, labels)
    clf.save(tmp_path / "model.safetensors", bits=16)
    again = TextClassifier.load(tmp_path / "model.safetensors")
    assert clf.text_config_.repeats == again.text_config_.repeats == repeats
    asked = "good good good good good bad"
    one = clf.decision_function([asked])[0]  # one native call
    many = clf.decision_function([asked] * 300)  # bags
    np.testing.assert_allclose(many, one, rtol=1e-5)
    shown = clf.explain(asked)
    np.testing.assert_allclose(shown.logits[1] - shown.logits[0], one, rtol=1e-4)
    times = {"all": 5, "damp": 3, "once": 1}
    assert (
        sum(ngram.text == "good" and not ngram.subword for ngram in shown.ngrams) == times[repeats]
    )


def test_a_dictionary_counts_all_of_them():
    config = TextConfig((1, 1), repeats="once")
    dictionary = Dictionary.count(["a a a b", "b"], config)
    assert dict(zip(dictionary.strings.to_pylist(), dictionary.counts.tolist(), strict=True)) == {
        "a": 3,
        "b": 2,
    }
    assert dictionary.bags(["a a b a"]).keys.tolist() == dictionary.bags(["a b"]).keys.tolist()


def test_files_name_what_older_versions_do_not_know():
    assert "repeats" not in TextConfig().to_dict()
    config = TextConfig(repeats="damp")
    assert TextConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="one of 'all', 'damp', 'once', found 'some'"):
        TextConfig(repeats="some")
