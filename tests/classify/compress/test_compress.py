"""Compressed classifiers: sizes, answers, files, and what cannot be had."""

import json
import zlib
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests import golden

from hashembed import TextClassifier
from hashembed.classify.compress.basis import eigenvectors, project
from hashembed.classify.compress.coding import Fineness, choose_codes
from hashembed.classify.compress.evidence import distinct_keys
from hashembed.classify.model_file import KIND
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.shallow.listed import ListedModel
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec

WORDS = [f"w{i}" for i in range(400)]


def documents(count, classes, seed=0):
    """Texts of 12 words, some of which tell the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    texts = []
    for label in labels:
        own = 30 * label + rng.integers(0, 30, 4)
        words = [*own, *rng.integers(30 * classes, 400, 8)]
        texts.append(" ".join(WORDS[i] for i in words))
    return texts, [f"c{label}" for label in labels]


@pytest.fixture(scope="module", params=[2, 5])
def full(request):
    texts, labels = documents(1500, request.param)
    clf = TextClassifier(effort="fast", members=2, ngrams=(1, 2), subwords=None).fit(texts, labels)
    return clf, texts, labels, documents(600, request.param, seed=1)


def test_a_size_is_kept_and_accuracy_too(full, tmp_path):
    clf, texts, labels, test = full
    sizes = []
    for size in (30_000, 12_000):
        small = clf.compress(texts, labels, size=size, validation=test)
        small.save(tmp_path / "small")
        found = (tmp_path / "small").stat().st_size
        assert found <= size
        assert small.compression_.bytes_after == found
        assert small.compression_.accuracy_before == clf.score(*test)
        assert small.compression_.accuracy_after == small.score(*test)
        assert small.compression_.loss < 3
        sizes.append(found)
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("with_texts", [True, False])
def test_few_bits_leave_a_useful_model(full, with_texts):
    """Numbers that a coarse code can hold stay in the file."""
    clf, texts, _, (test, truth) = full
    for bits, lost in ((2, 0.15), (4, 0.05), (8, 0.02)):
        small = clf.compress(texts if with_texts else None, bits=bits)
        assert small.score(test, truth) > clf.score(test, truth) - lost


def test_with_all_rows_the_answers_are_nearly_those_of_the_model(full):
    clf, texts, _, _ = full
    small = clf.compress(texts, size=10**7)
    wanted, found = clf.predict_proba(texts[:200]), small.predict_proba(texts[:200])
    np.testing.assert_allclose(found, wanted, atol=0.03)
    assert small.compression_.accuracy_before is None


def test_a_loaded_model_is_the_same_model(full, tmp_path):
    clf, texts, _, test = full
    small = clf.compress(texts, size=20_000)
    small.save(tmp_path / "one")
    loaded = TextClassifier.load(tmp_path / "one")
    np.testing.assert_array_equal(loaded.predict_proba(test[0]), small.predict_proba(test[0]))
    loaded.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert loaded.text_config_ == clf.text_config_
    assert loaded.predict([""]).tolist() == clf.predict([""]).tolist()


def test_explanations_add_up(full):
    clf, texts, _, test = full
    small = clf.compress(texts, size=20_000)
    found = small.explain(test[0][0])
    logits = small.model_.scores(bags_of(small, [test[0][0]]))[0]
    np.testing.assert_allclose(found.logits, logits, rtol=1e-5, atol=1e-5)
    assert small.important_ngrams(texts, by="evidence").most


def bags_of(clf, texts):
    from hashembed.text.pipeline import text_to_bags

    return text_to_bags(texts, clf.text_config_, 1)


def test_bits_and_loss(full):
    clf, texts, labels, test = full
    sizes = [clf.compress(texts, bits=bits).compression_.bytes_after for bits in (2, 4, 8)]
    assert sizes == sorted(sizes)
    small = clf.compress(texts, max_loss=2.0, validation=test)
    assert small.compression_.loss <= 2.0
    assert small.compression_.bytes_after < sizes[-1]
    measured = clf.compress(texts, labels, max_loss=2.0).compression_
    assert measured.measured == 150


def test_without_texts(full, tmp_path):
    clf, _, _, test = full
    before = clf.score(*test)
    small = clf.compress(size=60_000, validation=test)
    small.save(tmp_path / "small")
    assert (tmp_path / "small").stat().st_size <= 60_000
    loaded = TextClassifier.load(tmp_path / "small")
    np.testing.assert_array_equal(loaded.predict(test[0]), small.predict(test[0]))
    assert before - loaded.score(*test) < 0.05
    coarse = clf.compress(bits=3)
    assert coarse.compression_.bytes_after < clf.compress(bits=6).compression_.bytes_after


def test_tables_that_no_small_file_can_hold(monkeypatch, full, tmp_path):
    """Nothing is written that cannot be loaded: fewer members, or an error that says what helps."""
    clf, texts, _, _ = full
    one = clf.compress(bits=4).model_.parts[0]
    numbers = sum(table.size for name, table in one.tensors().items() if name in "EP")
    for module in ("compress.tables", "model_file"):
        monkeypatch.setattr(f"hashembed.classify.{module}.MAX_NUMBERS", numbers)
    small = clf.compress(bits=4)
    assert small.engine_plan_.members == 1
    small.save(tmp_path / "small")
    TextClassifier.load(tmp_path / "small")
    monkeypatch.setattr("hashembed.classify.compress.tables.MAX_NUMBERS", numbers - 1)
    with pytest.raises(ValueError, match=r"a small file has at most .* Give the training data"):
        clf.compress(bits=4)
    assert clf.compress(texts, bits=4).compression_.with_texts


def test_several_labels_per_text():
    texts, labels = documents(800, 5)
    several = [[label] if i % 3 else [label, "c0"] for i, label in enumerate(labels)]
    clf = TextClassifier(effort="fast", members=1).fit(texts, several)
    test, truth = documents(300, 5, seed=1)
    small = clf.compress(texts, size=40_000, validation=(test, [[label] for label in truth]))
    assert small.compression_.loss < 5
    np.testing.assert_allclose(
        clf.compress(texts, size=10**7).predict_proba(texts[:50]),
        clf.predict_proba(texts[:50]),
        atol=0.05,
    )


def test_labels_in_any_form():
    texts, labels = documents(300, 3)
    clf = TextClassifier(effort="fast").fit(texts, labels)
    found = [
        clf.compress(texts, form, size=20_000).compression_
        for form in (labels, iter(labels), np.array(labels), pa.array(labels))
    ]
    assert all(one == found[0] for one in found)
    matrix = np.eye(3, dtype=int)[[int(label[1]) for label in labels]]
    several = TextClassifier(effort="fast").fit(texts, matrix)
    assert several.compress(texts, matrix, size=20_000).compression_.measured == 30


def test_learning_goes_on(full, tmp_path):
    clf, texts, labels, _ = full
    small = clf.compress(texts, size=20_000)
    before = small.predict_proba(texts[:50])
    small.partial_fit(texts[:100], labels[:100])
    assert not np.array_equal(small.predict_proba(texts[:50]), before)
    small.partial_fit(["w1 w2"], ["new"])
    assert "new" in small.classes_
    small.save(tmp_path / "more")
    loaded = TextClassifier.load(tmp_path / "more")
    np.testing.assert_allclose(
        loaded.predict_proba(texts[:50]), small.predict_proba(texts[:50]), atol=0.05
    )


@pytest.mark.parametrize("with_texts", [True, False])
def test_every_size_from_the_least_on_can_be_had(full, tmp_path, with_texts):
    """The error names the least size, and that is none of a few that no search meets."""
    clf, texts, labels, _ = full
    data, lines = (texts, labels) if with_texts else (None, None), []
    with pytest.raises(ValueError, match="labels and settings alone take") as found:
        clf.compress(*data, size=100, progress=lines.append)
    assert sum("Trial" in line for line in lines) < 5
    least = int(str(found.value).split("alone take ")[1].split(" bytes")[0].replace(",", ""))
    for size in (*range(least, least + 40, 3), least + 100):
        small = clf.compress(*data, size=size)
        small.save(tmp_path / "small")
        assert (tmp_path / "small").stat().st_size <= size
        TextClassifier.load(tmp_path / "small").predict(texts[:3])
    with pytest.raises(ValueError, match="alone take"):
        clf.compress(*data, size=least - 1)


def test_labels_of_another_task_are_refused(full):
    """Both models would be wrong about every row, and any loss would be none."""
    clf, texts, labels, test = full
    message = "knows none of the labels .* found 'yes', but its own are such as 'c0'"
    with pytest.raises(ValueError, match=message):
        clf.compress(texts, ["yes"] * len(texts), size=20_000)
    with pytest.raises(ValueError, match=message):
        clf.compress(max_loss=0, validation=(texts, ["yes"] * len(texts)))
    found = clf.compress(texts, ["yes"] * len(texts), size=20_000, validation=test).compression_
    assert found.loss < 3
    mixed = clf.compress(texts, size=20_000, validation=(texts, ["yes", *labels[1:]]))
    assert mixed.compression_.measured == len(texts)
    several = TextClassifier(effort="fast").fit(["a b", "c d"] * 9, [["x"], []] * 9)
    with pytest.raises(ValueError, match="found 'z', but its own are such as 'x'"):
        several.compress(["a b"] * 20, [["z"]] * 20)
    assert several.compress(["c d"] * 20, [[]] * 20).compression_.measured == 2


def test_what_cannot_be_had_is_said(full, tmp_path):
    clf, texts, labels, _ = full
    with pytest.raises(ValueError, match="alone take"):
        clf.compress(texts, size=100)
    with pytest.raises(ValueError, match="labelled texts"):
        clf.compress(texts, max_loss=1.0)
    with pytest.raises(TypeError, match=r"max_loss must be points of accuracy, .*, found '1'"):
        clf.compress(texts, labels, max_loss="1")
    with pytest.raises(ValueError, match="labels need texts"):
        clf.compress(labels=labels)
    few = clf.compress(texts[:9], labels[:9], size=20_000).compression_
    assert f"accuracy on {few.measured} row" in str(few)
    assert few.measured > 1 or "rows" not in str(few)
    with pytest.raises(ValueError, match="give one of"):
        clf.compress(texts, size=1000, bits=4)
    with pytest.raises(ValueError, match="bits"):
        clf.compress(texts, bits=9)
    with pytest.raises(ValueError, match="no texts"):
        clf.compress([], size=10_000)
    with pytest.raises(ValueError, match="labels"):
        clf.compress(texts, labels[:-1])
    small = clf.compress(texts, size=20_000)
    with pytest.raises(ValueError, match="already"):
        small.compress(texts)
    with pytest.raises(ValueError, match="saved as it is"):
        small.save(tmp_path / "x", for_training=True)
    with pytest.raises(ValueError, match="saved as it is"):
        small.save(tmp_path / "x", bits=4)


def test_the_same_bytes(full, tmp_path):
    clf, texts, labels, _ = full
    for name, threads in (("one", 1), ("two", 2)):
        clf.save(tmp_path / "full")
        loaded = TextClassifier.load(tmp_path / "full", threads=threads)
        loaded.compress(texts, labels, size=20_000).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_training_twice_gives_the_same_file(tmp_path):
    texts, labels = documents(400, 3)
    for threads in (1, 2):
        clf = TextClassifier(threads=threads).fit(texts, labels)
        clf.save(tmp_path / f"{threads}")
        clf.save(tmp_path / f"{threads}t", for_training=True)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert (tmp_path / "1t").read_bytes() == (tmp_path / "2t").read_bytes()


# --- parts ------------------------------------------------------------------------------------


def test_a_listed_model_is_the_dense_model_with_zeros():
    rng = np.random.default_rng(0)
    for B, n, d, C in ((1, 1, 1, 2), (64, 5, 3, 4), (1000, 400, 17, 3), (5000, 0, 2, 2)):
        spec = HashSpec(B, B, 1, seed=3)
        rows = np.sort(rng.permutation(B)[:n])
        E = rng.normal(size=(n, d)).astype(np.float32)
        W, bias = rng.normal(size=(C, d)).astype(np.float32), rng.normal(size=C).astype(np.float32)
        dense = np.zeros((B, d), np.float32)
        dense[rows] = E
        one = ListedModel.from_rows(spec, rows, {"E": E, "W": W, "bias": bias}, threads=1)
        other = ShallowModel.from_tensors(spec, {"E": dense, "W": W, "bias": bias}, threads=1)
        lengths = rng.integers(0, 30, 50)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        bags = Bags(rng.integers(-(2**62), 2**62, offsets[-1]), offsets)
        np.testing.assert_allclose(one.scores(bags), other.scores(bags), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(one.components(bags.keys), other.components(bags.keys))


def test_eigenvectors():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 20):
        a = rng.normal(size=(n, n))
        a = a @ a.T
        values, axes = eigenvectors(a)
        np.testing.assert_allclose(axes.T @ axes, np.eye(n), atol=1e-9)
        np.testing.assert_allclose(axes @ np.diag(values) @ axes.T, a, atol=1e-8)
        assert (np.diff(values) <= 1e-9).all()
    np.testing.assert_allclose(project(a.astype(np.float32), axes), a @ axes, rtol=1e-4, atol=1e-4)


def test_codes_are_near_and_cheaper_is_coarser():
    rng = np.random.default_rng(2)
    numbers, weights = rng.normal(size=(500, 3)), rng.integers(1, 50, 500).astype(float)
    fine = choose_codes(numbers, weights, Fineness(1e-9), 5000)
    assert len(fine.places) == 500
    assert np.abs(fine.numbers - numbers).max() <= np.diff(fine.levels).max()
    coarse = choose_codes(numbers, weights, Fineness(2.0), 5000)
    assert len(coarse.places) < 500
    assert np.abs(coarse.codes).max() < np.abs(fine.codes).max()
    few = choose_codes(numbers, weights, Fineness(bits=2), 5000)
    assert set(np.unique(few.codes)) <= {-1, 0, 1}


def test_counts_of_bags():
    bags = Bags(np.array([5, 5, 3, 5, 3, 9]), np.array([0, 3, 3, 5, 6]))
    keys, counts = distinct_keys(bags)
    assert keys.tolist() == [3, 5, 9]
    assert counts.tolist() == [2, 2, 1]


# --- hostile files ----------------------------------------------------------------------------


@pytest.fixture
def parts(full, tmp_path):
    clf, texts, _, _ = full
    clf.compress(texts, size=20_000).save(tmp_path / "good")
    return tmp_path, *load_tensors(tmp_path / "good", "TextClassifier")


def refused(folder, tensors, meta, version=2):
    save_tensors(folder / "bad", "TextClassifier", tensors, meta, version)
    with pytest.raises(ModelFileError) as found:
        TextClassifier.load(folder / "bad")
    assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize("count", [0, 1, 10**9, -1, True, "x", None])
def test_wrong_counts(parts, count):
    folder, tensors, meta = parts
    refused(folder, tensors, {**meta, "packed": {"E": count}})


@pytest.mark.parametrize("name", ["P", "W", "0.E", "x" * 1000])
def test_wrong_names(parts, name):
    folder, tensors, meta = parts
    refused(folder, tensors, {**meta, "packed": {**meta["packed"], name: 1}})


def test_missing_and_unknown_tensors(parts):
    folder, tensors, meta = parts
    for name in ("E.rows", "E.codes", "E.values", "W"):
        refused(folder, {n: t for n, t in tensors.items() if n != name}, meta)
    refused(folder, {**tensors, "F": np.zeros(3, np.float32)}, meta)
    refused(folder, {**tensors, "E": np.zeros((3, 1), np.float32)}, {**meta, "packed": None})
    for name in ("E.rows", "E.codes"):
        refused(folder, {**tensors, name: tensors[name].astype(np.int8)}, meta)
        refused(folder, {**tensors, name: tensors[name][:-3]}, meta)


def test_headers_that_ask_for_too_much(parts):
    folder, tensors, meta = parts
    engine = json.loads(json.dumps(meta["engine"]))
    for change in ({"num_buckets": 2**32}, {"num_buckets": 10}, {"num_hashes": 2}):
        spec = {**engine["spec"], **change}
        refused(folder, tensors, {**meta, "engine": {**engine, "spec": spec}})
    for change in ({"embedding_dim": 16384}, {"importance": 0}, {"importance": True}):
        refused(folder, tensors, {**meta, "engine": {**engine, **change}})
    refused(folder, tensors, {**meta, "for_training": True})
    bomb = np.frombuffer(zlib.compress(bytes(10**7)), np.uint8)
    refused(folder, {**tensors, "E.rows": bomb, "E.codes": bomb}, meta)


def test_damage_is_noticed(parts):
    folder, _, _ = parts
    good = (folder / "good").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(good), 40):
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(0, 8))
        (folder / "bad").write_bytes(bad)
        with pytest.raises(ModelFileError):
            TextClassifier.load(folder / "bad")


def test_a_small_ensemble_without_texts_is_an_ensemble(tmp_path):
    texts, labels = documents(600, 3)
    clf = TextClassifier(effort="fast", members=3).fit(texts, labels)
    small = clf.compress(bits=5)
    assert isinstance(small.model_, Ensemble)
    small.save(tmp_path / "small")
    assert len(TextClassifier.load(tmp_path / "small").model_.members) == 3


def test_a_file_of_an_earlier_version_answers_as_before(tmp_path):
    file = Path(__file__).with_name("compressed.safetensors")
    clf = TextClassifier.load(file)
    said = clf.predict(golden.texts()[:200]).astype("U1")
    assert blake2b(said.tobytes(), digest_size=8).hexdigest() == "21a56a053693039e"
    clf.save(tmp_path / "again")
    (before, old), (after, new) = (load_tensors(p, KIND) for p in (file, tmp_path / "again"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    added = {"repeats": "auto", "pretrained": None}  # arguments that did not exist then
    assert new == {**old, "params": {**old["params"], **added}}
