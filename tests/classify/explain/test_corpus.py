"""The table of important n-grams against a slow count of the same corpus."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from hashembed.classify.explain.corpus import MOST_BYTES, Strings, important_ngrams
from hashembed.classify.explain.corpus_table import Word, WordsTable
from hashembed.classify.explain.render import shown as view
from hashembed.classify.explain.text import ngram_contributions
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing import theory
from hashembed.hashing.spec import HashSpec, ngram_key, subword_key
from hashembed.text.config import TextConfig
from hashembed.text.spans import ngrams_of

CLASSES = ["left", "middle", "right"]
CONFIG = TextConfig((1, 2), subwords=(3, 4))


def make_model(*, rows: int = 5000, importance: bool = True, multilabel: bool = False):
    spec = HashSpec(rows, 300, 2)
    model = ShallowModel(spec, 5, 3, importance=importance, multilabel=multilabel)
    if importance:
        model.importance_weights[:] = np.random.default_rng(5).normal(size=(rows, 2))
    return model


def make_corpus(texts: int = 300) -> list[str | None]:
    rng = np.random.default_rng(7)
    words = ["Straße", "the", "of", "ein", "漢字", "naïve", "😀", *(f"w{i}" for i in range(200))]
    ranks = rng.zipf(1.4, (texts, 25)) % len(words)
    return [None, "", *(", ".join(words[i] for i in row) for row in ranks)]


def counted(corpus, config=CONFIG):
    """All n-grams of a corpus: (string, subword) -> count, and their keys."""
    counts: Counter[tuple[str, bool]] = Counter()
    keys = {}
    for text in corpus:
        text_keys, ngrams = ngrams_of(text or "", config)
        for key, ngram in zip(text_keys.tolist(), ngrams, strict=True):
            counts[ngram.text, ngram.subword] += 1
            keys[ngram.text, ngram.subword] = key
    return counts, keys


def key_of(word: Word) -> int:
    return subword_key(word.text) if word.subword else ngram_key(word.text.split(" "))


def weight_of(model, key: int) -> float:
    row, _ = model.spec(key)
    return float(np.sqrt((model.importance_weights[row].astype(float) ** 2).sum()))


# --- the numbers -------------------------------------------------------------------------------


def test_the_table_is_that_of_a_full_count():
    corpus, model = make_corpus(), make_model()
    table = important_ngrams(model, CONFIG, CLASSES, corpus, top=15, min_count=4)
    counts, keys = counted(corpus)
    enough = [name for name, count in counts.items() if count >= 4]
    rows = {name: model.spec(keys[name])[0] for name in enough}
    ranked = sorted(enough, key=lambda name: -weight_of(model, keys[name]))
    # N-grams in one row have one weight; the frequent one comes first, but may not be alone.
    for words, names in ((table.most, ranked[:15]), (table.least, ranked[::-1][:15])):
        weights = [weight_of(model, keys[name]) for name in names]
        np.testing.assert_allclose([word.weight for word in words], weights)
    assert (table.total, table.distinct) == (counts.total(), len(counts))
    assert (table.looked_at, table.complete_from) == (len(enough), 4)
    for word in [*table.most, *table.least]:
        name = word.text, word.subword
        assert (word.count, word.missed) == (counts[name], 0)
        assert word.weight == pytest.approx(weight_of(model, keys[name]))
        contribution = ngram_contributions(model, np.array([keys[name]]))[0]
        assert word.speaks_for == CLASSES[contribution.argmax()]
        assert word.evidence == pytest.approx((contribution - contribution.mean()).max())
        as_frequent = sum(count >= counts[name] for count in counts.values())
        chance = theory.same_row_probability(as_frequent, model.spec)
        assert word.collision == pytest.approx(chance)
        rivals = [n for n in enough if n != name and rows[n] == rows[name]]
        if rivals:
            frequency = max(counts[rival] for rival in rivals)
            assert word.shares_row_with in [r[0] for r in rivals if counts[r] == frequency]
        else:
            assert word.shares_row_with is None
    assert table.same_row == pytest.approx(theory.same_row_probability(len(counts), model.spec))


def test_rivals_are_found():
    """With a handful of rows nobody is alone."""
    table = important_ngrams(make_model(rows=20), CONFIG, CLASSES, make_corpus(50), top=5)
    assert all(word.shares_row_with for word in table.most)
    assert "shares row with" in str(table)


def test_by_evidence():
    corpus, model = make_corpus(), make_model(multilabel=True)
    table = important_ngrams(model, CONFIG, CLASSES, corpus, top=5, min_count=3, by="evidence")
    counts, keys = counted(corpus)
    enough = np.array([keys[name] for name, count in counts.items() if count >= 3])
    evidence = np.sort(ngram_contributions(model, enough).max(axis=1))  # sigmoids: no mean
    np.testing.assert_allclose([word.evidence for word in table.most], evidence[::-1][:5])
    np.testing.assert_allclose([word.evidence for word in table.least], evidence[:5])


def test_without_importance_weights():
    model = make_model(importance=False)
    with pytest.raises(ValueError, match="use by='evidence'"):
        important_ngrams(model, CONFIG, CLASSES, make_corpus())
    table = important_ngrams(model, CONFIG, CLASSES, make_corpus(), by="evidence")
    assert {word.weight for word in table.most} == {None}
    assert table.same_row == 0
    assert table.same_vector > 0
    assert str(table)


@pytest.mark.parametrize("memory", [1 << 10, 20_000, 60_000])
def test_scarce_memory(memory, monkeypatch):
    monkeypatch.setattr("hashembed.classify.explain.corpus._BATCH_BYTES", 500)
    monkeypatch.setattr("hashembed.classify.explain.corpus._FEW_STRINGS", 10)
    corpus, model = make_corpus(), make_model()
    table = important_ngrams(model, CONFIG, CLASSES, corpus, top=10_000, min_count=3, memory=memory)
    counts, _ = counted(corpus)
    found = {(word.text, word.subword): word for word in [*table.most, *table.least]}
    assert len(found) == table.looked_at
    for name, word in found.items():
        assert 3 <= word.count <= counts[name] <= word.count + word.missed
    assert {name for name, count in counts.items() if count >= table.complete_from} <= found.keys()
    assert table.complete_from > 3
    assert "did not fit into the memory for counting" in str(table)


# --- corpora -----------------------------------------------------------------------------------

as_list = make_corpus()
CORPORA = {
    "arrow": lambda: pa.array(as_list),
    "chunks": lambda: pa.chunked_array([as_list[:7], [], as_list[7:]], pa.string()),
    "numpy": lambda: np.array(as_list, object),
    "generator": lambda: (text for text in as_list),
    "batches": lambda: (as_list[i : i + 20] for i in range(0, len(as_list), 20)),
    "arrow batches": lambda: [pa.array(as_list[:20]), pa.array(as_list[20:])],
    "bytes": lambda: [None if text is None else text.encode() for text in as_list],
}


@pytest.mark.parametrize("kind", CORPORA)
def test_any_corpus_gives_the_same(kind, monkeypatch):
    expected = important_ngrams(make_model(), CONFIG, CLASSES, as_list, min_count=2)
    monkeypatch.setattr("hashembed.classify.explain.corpus._BATCH_BYTES", 1000)
    monkeypatch.setattr("hashembed.classify.explain.corpus._BATCH_TEXTS", 11)
    assert important_ngrams(make_model(), CONFIG, CLASSES, CORPORA[kind](), min_count=2) == expected


def test_a_stream_is_not_read_ahead():
    read = 0

    def batches():
        nonlocal read
        for i in range(0, len(as_list), 10):
            read += 1
            yield as_list[i : i + 10]

    done = []
    important_ngrams(make_model(), CONFIG, CLASSES, batches(), on_bytes=lambda n: done.append(read))
    assert done == list(range(1, read + 1))


@pytest.mark.parametrize("corpus", ["one text", {"text": ["a"]}, 5, pa.table({"a": ["b"]})])
def test_what_is_no_corpus_is_refused(corpus):
    with pytest.raises(TypeError, match="texts must be"):
        important_ngrams(make_model(), CONFIG, CLASSES, corpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top": 0}, "top must be"),
        ({"min_count": 0}, "min_count must be"),
        ({"memory": 5}, "memory must be"),
        ({"by": "size"}, "by must be one of 'weight', 'evidence', found 'size'"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        important_ngrams(make_model(), CONFIG, CLASSES, ["a text"], **settings)


@pytest.mark.parametrize("corpus", [[], [""], ["once only"], iter([])])
def test_nothing_frequent(corpus):
    table = important_ngrams(make_model(), TextConfig(), CLASSES, corpus, min_count=2)
    assert table.most == table.least == []
    assert "No n-gram was seen at least 2 times" in str(table)


def test_few_n_grams_are_on_one_side_only():
    table = important_ngrams(make_model(), TextConfig((1, 1)), CLASSES, ["a b c"], min_count=1)
    assert len(table.most) == 2
    assert len(table.least) == 1
    assert {word.text for word in [*table.most, *table.least]} == {"a", "b", "c"}


def test_endless_words_are_cut():
    texts = ["x" * 1000 + "漢" * 1000, "漢" * 1000]
    table = important_ngrams(make_model(), TextConfig((1, 1)), CLASSES, texts, min_count=1)
    shown = {word.text for word in [*table.most, *table.least]}
    assert shown == {"x" * 252 + "…", "漢" * 84 + "…"}
    assert all(len(text.encode()) <= MOST_BYTES for text in shown)


# --- to look at --------------------------------------------------------------------------------


def test_views(tmp_path):
    pytest.importorskip("matplotlib")
    table: WordsTable = important_ngrams(make_model(), CONFIG, CLASSES, as_list, top=3)
    assert WordsTable(**json.loads(json.dumps(table.to_dict()))).total == table.total
    shown = str(table)
    for word in [*table.most, *table.least]:
        assert view(word.text, word.subword) in shown
        assert f"{word.weight:.4f}" in shown
    assert f"{table.distinct:,} of them distinct" in shown
    table.plot(tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")


def test_strings_belong_to_their_keys():
    model = make_model()
    table = important_ngrams(model, CONFIG, CLASSES, as_list, top=10_000, min_count=1)
    for word in [*table.most, *table.least]:
        assert word.weight == pytest.approx(weight_of(model, key_of(word)))


def test_strings_of_forgotten_n_grams_are_dropped(monkeypatch):
    monkeypatch.setattr("hashembed.classify.explain.corpus._BATCH_BYTES", 200)
    monkeypatch.setattr("hashembed.classify.explain.corpus._FEW_STRINGS", 10)
    held = []
    add = Strings.add
    monkeypatch.setattr(Strings, "add", lambda s, *a: (add(s, *a), held.append(len(s._keys))))
    corpus = [f"w{i} w{i} w{i}" for i in range(3000)]
    important_ngrams(make_model(), TextConfig((1, 1)), CLASSES, corpus, min_count=2, memory=1 << 10)
    assert 10 < max(held) < 300  # there is room for 80 n-grams
