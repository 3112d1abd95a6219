"""Strings and places of n-grams: hashing the strings again must give the keys."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import text_reference as reference

from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import ngram_key, subword_key
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags
from hashembed.text.spans import NGram, ngrams_of, word_spans

quick = settings(max_examples=100, deadline=None)

CHARACTERS = list(
    "aBz09 .<>\t\n\0\x1c\x7féßẞİΣςǰΐﬃԱﬓя…—\u3000\u00a0。漢한😀🏳\u200d\ufffd€߸𐐀\ud800\udfff"
)
LENGTHS = ["x" * n for n in (3, 15, 16, 63, 64, 65, 200)] + ["ΐ" * 40, "😀" * 20]
LENGTHS += ["-" * 16, "!" * 70, "a." * 40, "…—" * 12, "C++", ":-)", "👩\u200d💻"]

orders = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda pair: tuple(sorted(pair)))
lengths = st.tuples(st.integers(1, 7), st.integers(1, 7)).map(lambda pair: tuple(sorted(pair)))
punctuations = st.sampled_from(["drop", "keep"])
repeats = st.sampled_from(["all", "damp", "once"])
configs = st.builds(TextConfig, orders, st.booleans(), st.none() | lengths, punctuations, repeats)
fragments = st.sampled_from(CHARACTERS + LENGTHS + [" "] * 5)
texts = st.lists(fragments, max_size=80).map("".join) | st.text(max_size=60)


def key_of(ngram: NGram) -> int:
    if ngram.subword:
        return subword_key(ngram.text)
    return ngram_key(ngram.text.split(" "))


def without_surrogates(text: str) -> str:
    """As a text is read: two halves that stand side by side in a Python string are no pair."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


@quick
@given(texts, configs)
@example("\ud800\udfff", TextConfig((1, 1), subwords=(1, 2)))
def test_hashing_the_strings_gives_the_keys(text, config):
    keys, ngrams = ngrams_of(text, config)
    assert keys.tolist() == text_to_bags([text], config).keys.tolist()
    assert [key_of(ngram) for ngram in ngrams] == keys.tolist()


@quick
@given(texts, configs)
@example("\ud800\udfff", TextConfig((1, 1), subwords=(1, 2)))
def test_the_span_of_the_original_gives_the_n_gram_again(text, config):
    """Cut out of the text and read alone, a word n-gram is the same n-gram."""
    for ngram in ngrams_of(text, config)[1]:
        piece = without_surrogates(text[ngram.start : ngram.end])
        words = reference.split(piece, config.lowercase, config.punctuation)
        if ngram.subword:
            (word,) = words
            assert ngram.text in f"<{word}>"  # a ligature is cut in its folded form only
        else:
            assert " ".join(words) == ngram.text
            assert len(words) == ngram.order


@quick
@given(texts, st.booleans(), punctuations)
def test_word_spans_are_the_words(text, lowercase, punctuation):
    clean = without_surrogates(text)
    config = TextConfig(lowercase=lowercase, punctuation=punctuation)
    words = [clean[a:b] for a, b in word_spans(text, config)]
    assert words == reference.split(clean, False, punctuation)


def test_places_of_words_and_of_characters():
    keys, ngrams = ngrams_of("Naïve — the STRAẞE!", TextConfig((1, 2), subwords=(7, 8)))
    assert isinstance(keys, type(Bags.concat([]).keys))
    assert [(n.text, n.start, n.end, n.order, n.subword, n.word) for n in ngrams] == [
        ("naïve", 0, 5, 1, False, 0),
        ("naïve the", 0, 11, 2, False, 0),
        ("<naïve>", 0, 5, 7, True, 0),
        ("the", 8, 11, 1, False, 1),
        ("the strasse", 8, 18, 2, False, 1),
        ("strasse", 12, 18, 1, False, 2),
        ("<strass", 12, 17, 7, True, 2),
        ("<strasse", 12, 18, 8, True, 2),
        ("strasse", 12, 18, 7, True, 2),
        ("strasse>", 12, 18, 8, True, 2),
        ("trasse>", 13, 18, 7, True, 2),
    ]


def test_places_where_punctuation_is_kept():
    _, ngrams = ngrams_of("C++, C#… :-)", TextConfig((1, 2), punctuation="keep"))
    assert [(n.text, n.start, n.end) for n in ngrams] == [
        ("c", 0, 1),
        ("c ++,", 0, 4),
        ("++,", 1, 4),
        ("++, c", 1, 6),
        ("c", 5, 6),
        ("c #…", 5, 8),
        ("#…", 6, 8),
        ("#… :-)", 6, 12),
        (":-)", 9, 12),
    ]


@pytest.mark.parametrize("text", ["", " ", "...", "\n\u3000—"])
def test_nothing_in_a_text_without_words(text):
    keys, ngrams = ngrams_of(text, TextConfig(subwords=(1, 3)))
    assert len(keys) == 0
    assert ngrams == []


def test_a_long_text():
    text = "Ein ﬂotter Satz, " * 200_000  # longer than what text_to_bags takes in one piece
    keys, ngrams = ngrams_of(text, TextConfig((2, 2)))
    assert [n.text for n in ngrams[:3]] == ["ein flotter", "flotter satz", "satz ein"]
    assert key_of(ngrams[-1]) == keys[-1]
    assert text[ngrams[-1].start : ngrams[-1].end] == "ﬂotter Satz"


@pytest.mark.parametrize("text", [None, b"bytes", ["a", "list"]])
def test_anything_but_one_str_is_refused(text):
    with pytest.raises(TypeError, match=r"text must be one str, found"):
        ngrams_of(text, TextConfig())
