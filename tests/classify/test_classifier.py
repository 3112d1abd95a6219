"""TextClassifier: texts in, classes out, and back from a file."""

import json

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file, save_file

from hashembed import TextClassifier
from hashembed.cli import demo_task as demo
from hashembed.engine.tensor_file import KEY, VECTORS_VERSION, ModelFileError, save_tensors
from hashembed.hashing.sizes import choose_dim, choose_sizes, fast_sizes
from hashembed.readers import DataError, read_fasttext
from hashembed.text.counts.distinct import count_distinct


@pytest.fixture(scope="module")
def sentences():
    """(texts, labels) to train and to test on."""
    table = demo.read_sentences()
    train = np.array(table["split"].to_pylist()) == "train"
    texts, labels = np.array(table["text"].to_pylist()), np.array(table["language"].to_pylist())
    return (texts[train], labels[train]), (texts[~train], labels[~train])


@pytest.fixture(scope="module")
def classifier(sentences):
    return TextClassifier(ngrams=(1, 1), subwords=(2, 4), passes=4, batch_size=32).fit(
        *sentences[0]
    )


def test_learns_languages(classifier, sentences):
    assert classifier.score(*sentences[1]) > 0.95
    assert classifier.predict(["Wo ist der Bahnhof?", "¿Dónde está la estación?"]).tolist() == [
        "German",
        "Spanish",
    ]
    p = classifier.predict_proba(sentences[1][0])
    assert p.shape == (1600, 16)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert classifier.classes_.tolist() == sorted(set(sentences[0][1]))


def test_a_file_brings_back_the_same_answers(classifier, sentences, tmp_path):
    classifier.save(tmp_path / "model.safetensors")
    loaded = TextClassifier.load(tmp_path / "model.safetensors")
    assert repr(loaded) == repr(classifier)
    assert loaded.history_ == classifier.history_.without_times()
    texts = sentences[1][0]
    # The file holds halves: probabilities may differ in the third digit, classes should not.
    np.testing.assert_allclose(
        loaded.predict_proba(texts), classifier.predict_proba(texts), atol=0.02
    )
    assert (loaded.predict(texts) == classifier.predict(texts)).mean() > 0.998
    assert list(tmp_path.iterdir()) == [tmp_path / "model.safetensors"]


def test_input_of_any_kind_gives_the_same_model(sentences):
    texts, labels = sentences[0]
    texts, labels = texts[::20].tolist(), labels[::20].tolist()
    settings = {"num_embeddings": 5000, "passes": 1}
    want = TextClassifier(**settings).fit(texts, labels).decision_function(texts)
    for x, y in (
        (pa.array(texts), pa.array(labels)),
        (pa.chunked_array([texts[:7], texts[7:]]), pa.array(labels).dictionary_encode()),
        (np.array(texts), np.array(labels)),
        ((text for text in texts), iter(labels)),
    ):
        assert np.array_equal(TextClassifier(**settings).fit(x, y).decision_function(texts), want)


def test_labels_keep_their_type():
    texts = ["good film", "bad film"] * 20
    for labels in ([1, 0] * 20, [True, False] * 20, ["+", "-"] * 20):
        clf = TextClassifier(passes=5, batch_size=4).fit(texts, labels)
        assert clf.predict(["good"])[0] == labels[0]
        assert type(clf.predict(["good"]).tolist()[0]) is type(labels[0])


def test_weights():
    texts = ["a b"] * 60 + ["a c"] * 4
    labels = ["common"] * 60 + ["rare"] * 4
    even = TextClassifier(passes=1, class_weight="balanced").fit(texts, labels)
    odd = TextClassifier(passes=1).fit(texts, labels)
    rare = odd.classes_.tolist().index("rare")
    assert even.predict_proba(["a"])[0, rare] > odd.predict_proba(["a"])[0, rare]
    heavy = np.where(np.array(labels) == "rare", 15.0, 1.0)
    weighted = TextClassifier(passes=1).fit(texts, labels, sample_weight=heavy)
    assert weighted.predict_proba(["a"])[0, rare] > odd.predict_proba(["a"])[0, rare]


def test_validation_and_history(sentences):
    texts, labels = sentences[0]
    clf = TextClassifier(passes=3, validation_fraction=0.1, patience=1, batch_size=64)
    clf.fit(texts[::4], labels[::4])
    assert all(epoch.validation_accuracy is not None for epoch in clf.history_.epochs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: TextClassifier().fit("one text", ["a"]), "put it in a list"),
        (lambda: TextClassifier().fit(["a", "b"], ["x"]), "found 2 texts, but 1 labels"),
        (lambda: TextClassifier().fit([], []), "found no texts to train on"),
        (lambda: TextClassifier().predict(["a"]), "call fit or partial_fit first"),
        (lambda: TextClassifier(ngrams=(0, 2)).fit(["a"], ["x"]), r"ngrams\[0\] .* found 0"),
        (lambda: TextClassifier(class_weight="x").fit(["a"], ["x"]), "class_weight must be"),
        (lambda: TextClassifier().set_params(nonsense=1), "unknown parameter 'nonsense'"),
    ],
)
def test_mistakes_get_a_sentence(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_parameters():
    clf = TextClassifier(passes=7).set_params(seed=3)
    assert clf.get_params()["passes"] == 7
    assert repr(clf) == "TextClassifier(passes=7, seed=3)"


def test_files_that_are_no_models(tmp_path, classifier):
    path = tmp_path / "m.safetensors"
    classifier.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="is damaged or not a safetensors file"):
        TextClassifier.load(path)
    path.write_bytes(b"not a model at all")
    with pytest.raises(ModelFileError, match="is damaged or not a safetensors file"):
        TextClassifier.load(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="but not one of hashembed's"):
        TextClassifier.load(path)
    save_tensors(path, "Something", {"x": np.zeros(3)}, {})
    with pytest.raises(ModelFileError, match="holds a Something, not a TextClassifier"):
        TextClassifier.load(path)
    tensors = load_file(path)
    for field, value, words in (
        ("format", VECTORS_VERSION + 1, "upgrade it"),
        ("hash", 99, "hash version 99"),
    ):
        header = {"kind": "TextClassifier", "format": 1, "hash": 1, "meta": {}, field: value}
        save_file(tensors, path, {KEY: json.dumps(header)})
        with pytest.raises(ModelFileError, match=words):
            TextClassifier.load(path)
    with pytest.raises(FileNotFoundError):
        TextClassifier.load(tmp_path / "nothing")


def test_a_failed_save_leaves_the_old_file(tmp_path, classifier, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    monkeypatch.setattr("hashembed.engine.tensor_file.os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        classifier.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_fasttext_files(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(
        "__label__a eins zwei\n__label__ß\tdrei ☃\n__label__a\n".encode() + b"__label__c \xff"
    )
    labels, texts = read_fasttext(path)
    assert labels.to_pylist() == ["a", "ß", "a", "c"]
    assert [t.strip() for t in texts.cast("large_binary").to_pylist()] == [
        b"eins zwei",
        "drei ☃".encode(),
        b"",
        b"\xff",
    ]
    path.write_text("__label__a x\n\nno label\n")
    with pytest.raises(DataError, match="line 2: found no label"):
        read_fasttext(path)
    path.write_text("")
    labels, texts = read_fasttext(path)
    assert len(labels) == len(texts) == 0


@pytest.mark.parametrize("n", [0, 1, 1000, 300_000])
def test_count_distinct(n):
    rng = np.random.default_rng(n)
    keys = rng.integers(-(2**63), 2**63 - 1, n)
    count = count_distinct(np.concatenate([keys, keys]))
    assert abs(count - n) <= max(0.01 * n, 1)


def test_count_distinct_on_several_threads():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1_000_001)
    counts = {count_distinct(np.concatenate([keys, keys[::-1]]), threads) for threads in (1, 2, 3)}
    assert len(counts) == 1
    assert abs(counts.pop() - len(keys)) <= 0.01 * len(keys)


def test_sizes():
    assert choose_sizes(10, 16) == (1000, 1000)
    assert choose_sizes(300_000, 16) == (300_000, 300_000)  # as many buckets as rows
    assert choose_sizes(1_000_000, 16) == (1_000_000, 812_500)  # 15 MB of codes
    assert choose_sizes(1_000_000, 16, members=5) == (750_000, 93_750)
    assert choose_sizes(1, 16, 5, num_embeddings=2_000_000) == (2_000_000, 199_999)  # the paper's
    assert choose_sizes(10**9, 16) == (2_000_000, 687_500)
    assert choose_sizes(10**9, 16, 1, 123, 45) == (123, 45)


def test_sizes_for_speed():
    assert fast_sizes(10) == (1000, 1000)
    assert fast_sizes(30_000) == (30_000, 30_000)
    assert fast_sizes(200_000) == (200_000, 50_000)
    assert fast_sizes(1_000_000) == (1_000_000, 99_999)  # the paper's rule
    assert fast_sizes(10**9) == (2_000_000, 199_999)
    assert fast_sizes(10**9, 123, 45) == (123, 45)


def test_width():
    assert [choose_dim(c) for c in (0, 1, 2, 20, 32, 33, 64, 65, 108, 1000)] == [
        *(16, 16, 16, 16, 16, 24, 24, 32, 32, 56),
    ]
