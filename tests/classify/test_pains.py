"""What users of other text classifiers asked for and did not get, one test each.

The numbers in the names' comments are issues of fastText's repository.
"""

import threading
import time

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.cli import demo_task as demo
from hashembed.engine.tensor_file import ModelFileError
from hashembed.text.pipeline import text_to_bags

SETTINGS = {"ngrams": (1, 1), "subwords": (2, 4), "num_embeddings": 20_000, "batch_size": 32}


@pytest.fixture(scope="module")
def sentences():
    table = demo.read_sentences()
    train = np.array(table["split"].to_pylist()) == "train"
    texts, labels = np.array(table["text"].to_pylist()), np.array(table["language"].to_pylist())
    order = np.random.default_rng(0).permutation(train.sum())
    return (texts[train][order], labels[train][order]), (texts[~train], labels[~train])


@pytest.fixture(scope="module")
def classifier(sentences):
    return TextClassifier(**SETTINGS).fit(*sentences[0])


# --- online training with new words and new labels: 312, 330, 744, 818 -------------------------


def test_learns_from_a_stream(sentences):
    (texts, labels), test = sentences
    clf = TextClassifier(**SETTINGS)
    for start in range(0, len(texts), 500):
        clf.partial_fit(texts[start : start + 500], labels[start : start + 500])
    assert clf.score(*test) > 0.92
    assert clf.class_counts_.sum() == len(texts)
    assert clf.classes_.tolist() == sorted(set(labels))


def test_new_labels_come_midway_and_disturb_nobody(sentences):
    (texts, labels), (test_texts, test_labels) = sentences
    late = np.isin(labels, ["German", "Polish"])
    clf = TextClassifier(**SETTINGS).partial_fit(texts[~late], labels[~late])
    assert len(clf.classes_) == 14
    before = clf.model_.scores(text_to_bags(test_texts, clf.text_config_))
    clf.model_.grow(16)
    after = clf.model_.scores(text_to_bags(test_texts, clf.text_config_))
    assert np.array_equal(before, after[:, :14])  # to the bit

    clf = TextClassifier(**SETTINGS).partial_fit(texts[~late], labels[~late])
    known = np.isin(test_labels, ["German", "Polish"], invert=True)
    accuracy = clf.score(test_texts[known], test_labels[known])
    clf.partial_fit(texts[late], labels[late])
    assert clf.classes_.tolist()[14:] == ["German", "Polish"]
    assert clf.score(test_texts[~known], test_labels[~known]) > 0.9
    mixed = np.random.default_rng(0).permutation(len(texts))[:2000]
    clf.partial_fit(texts[mixed], labels[mixed])
    assert clf.score(test_texts, test_labels) > accuracy - 0.05


def test_one_text_at_a_time_takes_fixed_memory():
    clf = TextClassifier(num_embeddings=1000)
    for i in range(50):
        clf.partial_fit([f"word{i} {'good' if i % 2 else 'bad'}"], ["+" if i % 2 else "-"])
    assert clf.predict(["good", "bad"]).tolist() == ["+", "-"]
    assert clf.model_.spec.num_embeddings == 1000


def test_a_loaded_model_goes_on_learning_as_if_nothing_had_happened(sentences, tmp_path):
    (texts, labels), _ = sentences
    clf = TextClassifier(**SETTINGS).partial_fit(texts[:2000], labels[:2000])
    clf.save(tmp_path / "exact.safetensors", for_training=True)
    clf.save(tmp_path / "small.safetensors")
    exact = TextClassifier.load(tmp_path / "exact.safetensors")
    small = TextClassifier.load(tmp_path / "small.safetensors")
    for model in (clf, exact, small):
        model.partial_fit(texts[2000:4000], labels[2000:4000])
    assert np.array_equal(clf.decision_function(texts[:50]), exact.decision_function(texts[:50]))
    rest = slice(4000, None)
    want = clf.score(texts[rest], labels[rest])
    assert small.score(texts[rest], labels[rest]) > want - 0.02
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("small", "exact")]
    assert 2 * sizes[0] < sizes[1]


def test_stream_mistakes_get_a_sentence(sentences):
    clf = TextClassifier(**SETTINGS).partial_fit(["a b"], ["x"])
    with pytest.raises(TypeError, match="labels so far are str"):
        clf.partial_fit(["a"], [1])
    with pytest.raises(ValueError, match="found lists of labels, but the model was"):
        clf.partial_fit(["a"], [["x"]])
    with pytest.raises(ValueError, match="needs all labels at once"):
        TextClassifier(class_weight="balanced").partial_fit(["a"], ["x"])
    clf = TextClassifier(**SETTINGS).partial_fit(["a b"], ["x"], classes=["x", "y"])
    assert clf.classes_.tolist() == ["x", "y"]


# --- edge cases of predict: newlines 1079, probabilities above 1 718, empty lines 344 -----------


def test_white_space_and_newlines_change_nothing(classifier):
    texts = ["Wo ist\nder Bahnhof?", "Wo ist der Bahnhof? ", "\n Wo  ist der\tBahnhof?\r\n"]
    p = classifier.predict_proba(texts)
    assert np.array_equal(p[0], p[1])
    assert np.array_equal(p[0], p[2])


def test_probabilities_are_probabilities(classifier, sentences):
    texts = [*sentences[1][0][:200], "", "!!!", "a" * 10_000, "Bahnhof " * 5000, "\0", "☃"]
    p = classifier.predict_proba(texts)
    assert p.min() >= 0
    assert p.max() <= 1
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("text", ["", " \n", "?!...", None])
def test_a_text_without_words_gets_the_prior(text):
    clf = TextClassifier(batch_size=4, punctuation="drop").fit(
        ["a", "b", "c", "d"], ["x", "x", "x", "y"]
    )
    np.testing.assert_allclose(clf.predict_proba([text])[0], [0.75, 0.25])
    np.testing.assert_allclose(clf.prior_, [0.75, 0.25])
    assert clf.predict([text]).tolist() == ["x"]


# --- class and sample weights, imbalance: 141, 278, 926 -----------------------------------------


def test_imbalance_is_reported():
    clf = TextClassifier().fit(["a b"] * 60 + ["c d"] * 2, ["common"] * 60 + ["rare"] * 2)
    assert "uneven: common has 60 texts, rare 2" in str(clf.report_)
    assert clf.report_.imbalance == 30
    even = TextClassifier(subwords=None).fit(["a b", "c d", ""], ["x", "y", "y"])
    assert "uneven" not in str(even.report_)
    assert "3 texts (1 without a word), 6 n-grams, about 6 distinct" in str(even.report_)


def test_weights_of_classes_in_a_dictionary():
    texts, labels = ["a b"] * 60 + ["a c"] * 4, ["common"] * 60 + ["rare"] * 4
    plain = TextClassifier(passes=1).fit(texts, labels)
    heavy = TextClassifier(passes=1, class_weight={"rare": 15.0}).fit(texts, labels)
    assert heavy.predict_proba(["a"])[0, 1] > plain.predict_proba(["a"])[0, 1]


# --- several labels a text ---------------------------------------------------------------------


def test_several_labels(tmp_path):
    rng = np.random.default_rng(0)
    topics = np.array(["film", "sport", "food"])
    has = rng.random((400, 3)) < 0.5
    texts = [
        " ".join([*(f"{t} {t}s" for t in topics[row]), *rng.choice(list("abcde"), 4)])
        for row in has
    ]
    labels = [topics[row].tolist() for row in has]
    clf = TextClassifier(passes=6, batch_size=16).fit(texts, labels)
    assert clf.predict(["films and food films", "sport", ""]).tolist()[:2] == [
        ("film", "food"),
        ("sport",),
    ]
    assert clf.score(texts, labels) > 0.97
    p = clf.predict_proba(["film food"])[0]
    assert p[0] > 0.5
    assert p[1] > 0.5
    assert p[2] < 0.5
    np.testing.assert_allclose(clf.predict_proba([""])[0], has[:, [0, 2, 1]].mean(axis=0))
    clf.save(tmp_path / "m.safetensors")
    again = TextClassifier.load(tmp_path / "m.safetensors")
    assert again.predict(texts[:20]).tolist() == clf.predict(texts[:20]).tolist()
    matrix = TextClassifier(passes=6, batch_size=16).fit(texts, has.astype(int))
    assert matrix.predict(["film film"]).tolist() == [[1, 0, 0]]
    assert matrix.score(texts, has.astype(int)) > 0.97
    assert clf.score(["film", "film"], [["film"], ["film", "unheard of"]]) == 0.5


# --- the same result twice: 1336, 902 ----------------------------------------------------------


def test_the_same_result_twice_and_for_any_number_of_threads(sentences):
    (texts, labels), (test, _) = sentences
    answers = [
        TextClassifier(**SETTINGS, threads=threads).fit(texts, labels).decision_function(test)
        for threads in (1, 2, 3, 1)
    ]
    for other in answers[1:]:
        assert np.array_equal(answers[0], other)


# --- prediction from many threads, without the GIL ---------------------------------------------


def test_predictions_from_many_threads_agree(classifier, sentences):
    texts = sentences[1][0]
    want = classifier.predict_proba(texts)
    got: list[np.ndarray] = [np.empty(0)] * 8

    def work(i: int) -> None:
        for _ in range(3):
            got[i] = classifier.predict_proba(texts)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(want, p) for p in got)


def test_prediction_lets_other_threads_run(classifier, sentences):
    """A thread that counts goes on counting while a long prediction runs in a kernel."""
    texts = [" ".join(sentences[1][0])] * 60
    bags = text_to_bags(texts, classifier.text_config_)
    beats: list[float] = []
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            beats.append(time.perf_counter())
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    start = time.perf_counter()
    classifier.model_.scores(bags)
    end = time.perf_counter()
    done.set()
    counter.join()
    # With the lock held there would be none between start and end but at their edges.
    assert sum(start < beat < end for beat in beats) > 3


# --- why a text got its label: 1189, 645, 1232 -------------------------------------------------


def test_why_a_text_got_its_label(classifier):
    explanation = classifier.explain("Wo ist der Bahnhof?")
    assert explanation.predicted == "German"
    assert {"wo", "ist", "der", "bahnhof"} <= {ngram.text for ngram in explanation.ngrams}
    total = explanation.bias + explanation.contributions.sum(axis=0)
    np.testing.assert_allclose(total, explanation.logits, atol=1e-4)
    found = classifier.important_ngrams(["Wo ist der Bahnhof?"] * 20, top=3)
    assert len(found.most) == 3


# --- in-memory and iterator input: 1177, 872 ---------------------------------------------------


def test_input_from_memory_and_from_iterators():
    texts, labels = ["good film", "bad film"] * 10, ["+", "-"] * 10
    lists = TextClassifier().fit(texts, labels).predict_proba(texts)
    iterators = TextClassifier().fit(iter(texts), iter(labels)).predict_proba(iter(texts))
    assert np.array_equal(lists, iterators)


# --- a validation curve, early stopping and checkpoints: 1057, 492 -----------------------------


def test_a_validation_curve_early_stopping_and_checkpoints(sentences, tmp_path):
    texts, labels = (part[:2000].copy() for part in sentences[0])
    labels[::2] = np.random.default_rng(0).permutation(labels[::2])  # noise, to learn by heart
    clf = TextClassifier(**SETTINGS, passes=30, validation_fraction=0.1, patience=2)
    clf.fit(texts, labels, checkpoint=tmp_path / "run")
    curve = [epoch.validation_loss for epoch in clf.history_.epochs]
    assert len(curve) < 30
    assert "no better validation loss for 2 passes" in clf.history_.stopped
    assert clf.history_.best.validation_loss == min(curve)
    clf.history_.plot(tmp_path / "curve.png")
    assert (tmp_path / "run").exists()


# --- a damaged model file that does not crash the process: 1087 --------------------------------


def test_a_damaged_model_file_gets_a_sentence(classifier, tmp_path):
    path = tmp_path / "model"
    classifier.save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="its checksum does not fit its content"):
        TextClassifier.load(path)
