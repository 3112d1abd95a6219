"""Batches, keys on disk, and streams: sets that need not fit into memory."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.classify.streaming import learn_stream
from hashembed.cli import demo_task as demo
from hashembed.engine.tensor_file import ModelFileError
from hashembed.hashing.bags import Bags
from hashembed.text.key_store import KeyStore

SETTINGS = {"num_embeddings": 20_000, "batch_size": 32, "subwords": (2, 3), "ngrams": (1, 1)}
SETTINGS |= {"effort": "fast"}


@pytest.fixture(scope="module")
def sentences():
    table = demo.read_sentences().slice(0, 4000)
    order = np.random.default_rng(0).permutation(len(table))
    return table["text"].take(order).to_pylist(), table["language"].take(order).to_pylist()


def in_batches(texts, labels, size):
    for start in range(0, len(texts), size):
        yield texts[start : start + size], labels[start : start + size]


@pytest.mark.parametrize("size", [1, 333, 10_000])
@pytest.mark.parametrize("on_disk", [False, True])
def test_batches_give_the_model_that_fit_gives(sentences, size, on_disk, tmp_path):
    texts, labels = (part[:800] for part in sentences)
    want = TextClassifier(**SETTINGS).fit(texts, labels)
    got = TextClassifier(**SETTINGS).fit_batches(
        in_batches(texts, labels, size), cache_dir=tmp_path / "keys" if on_disk else None
    )
    assert got.classes_.tolist() == want.classes_.tolist()
    assert np.array_equal(got.decision_function(texts), want.decision_function(texts))
    assert got.report_ == want.report_
    if on_disk:
        assert list((tmp_path / "keys").iterdir()) == []  # nothing stays behind


def test_batches_with_several_labels(sentences):
    texts, labels = (part[:300] for part in sentences)
    several = [[label, label[0]] for label in labels]
    want = TextClassifier(**SETTINGS).fit(texts, several).predict_proba(texts)
    got = TextClassifier(**SETTINGS).fit_batches(in_batches(texts, several, 70))
    assert np.array_equal(got.predict_proba(texts), want)


def test_batches_that_do_not_fit_together(tmp_path):
    with pytest.raises(ValueError, match="found no texts"):
        TextClassifier().fit_batches([])
    with pytest.raises(ValueError, match="found 1 texts, but 2 labels"):
        TextClassifier().fit_batches([(["a"], ["x", "y"])], cache_dir=tmp_path)
    with pytest.raises(
        ValueError, match="must have the same form in all batches, found matrix and single"
    ):
        TextClassifier().fit_batches([(["a", "b"], [0, 1]), (["a", "b"], np.eye(2, dtype=int))])
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_keys(tmp_path):
    rng = np.random.default_rng(0)
    parts = [
        Bags(rng.integers(-9, 9, n), np.array([0, *sorted(rng.integers(0, n + 1, 2)), n]))
        for n in (0, 5, 0, 100)
    ]
    with KeyStore(tmp_path) as store:
        assert len(store.bags()) == 0
        for part in parts:
            store.add(part)
        bags, want = store.bags(), Bags.concat(parts)
        assert np.array_equal(bags.keys, want.keys)
        assert np.array_equal(bags.offsets, want.offsets)
        assert not bags.keys.flags.writeable
        assert list(tmp_path.iterdir()) == []  # a process that is killed leaves nothing behind


def test_validation_data_of_its_own(sentences):
    texts, labels = sentences
    clf = TextClassifier(**SETTINGS, passes=3)
    clf.fit(texts[:2000], labels[:2000], validation=(texts[2000:], labels[2000:]))
    assert clf.history_.best.validation_accuracy == pytest.approx(
        clf.score(texts[2000:], labels[2000:]), abs=1e-6
    )
    with pytest.raises(ValueError, match="in the validation data, but not in the training data"):
        clf.fit(texts[:9], labels[:9], validation=(["x"], ["Klingon"]))
    with pytest.raises(ValueError, match="found 1 validation texts, but 2 labels"):
        clf.fit(texts[:9], labels[:9], validation=(["x"], labels[:2]))


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", [{}, {"members": 2}])
@pytest.mark.parametrize("held", [0.0, 0.2])
def test_a_run_that_was_stopped_goes_on_from_its_file(sentences, tmp_path, kind, held):
    texts, labels = (part[:800] for part in sentences)
    settings = {**SETTINGS, "passes": 3, "validation_fraction": held, **kind}
    want = TextClassifier(**settings).fit(texts, labels)
    file = tmp_path / "run"

    def stop_in_the_third(progress):
        if progress.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        TextClassifier(**settings).fit(
            texts, labels, checkpoint=file, callbacks=[stop_in_the_third]
        )
    again = TextClassifier(**settings)
    passes = []
    again.fit(texts, labels, checkpoint=file, callbacks=[lambda p: passes.append(p.epoch)])
    assert set(passes) == {2}
    assert np.array_equal(again.decision_function(texts), want.decision_function(texts))
    assert [e.loss for e in again.history_.epochs] == [e.loss for e in want.history_.epochs]
    with pytest.raises(ModelFileError, match="training state of another run"):
        TextClassifier(**settings).fit(texts[1:], labels[1:], checkpoint=file)
    with pytest.raises(ModelFileError, match="training state of another run"):
        TextClassifier(**{**settings, "seed": 1}).fit(texts, labels, checkpoint=file)


def test_a_run_with_other_validation_data_is_another_run(sentences, tmp_path):
    texts, labels = (part[:400] for part in sentences)
    train = {"texts": texts[100:], "labels": labels[100:], "checkpoint": tmp_path / "run"}
    clf = TextClassifier(**SETTINGS, passes=1)
    clf.fit(**train, validation=(texts[:50], labels[:50]))
    with pytest.raises(ModelFileError, match="training state of another run"):
        clf.fit(**train, validation=(texts[50:100], labels[50:100]))


def test_progressive_accuracy(sentences, tmp_path):
    """Every text is answered before it is learned; a report comes whenever texts double."""
    texts, labels = sentences
    clf, reports = TextClassifier(**SETTINGS), []
    path = tmp_path / "model.safetensors"
    result = learn_stream(
        clf,
        in_batches(texts, labels, 100),
        path=path,
        on_report=lambda p: reports.append((p.texts, p.recent_accuracy)),
        report_first=500,
    )
    assert [n for n, _ in reports] == [500, 1000, 2000, 4000]
    assert reports[0][1] < reports[-1][1]
    assert 0.5 < result.accuracy < clf.score(texts, labels)
    assert result.texts == 4000

    by_hand = TextClassifier(**SETTINGS)
    right = 0
    for some, truth in in_batches(texts, labels, 100):
        if hasattr(by_hand, "model_"):
            right += int((by_hand.predict(some) == np.array(truth)).sum())
        by_hand.partial_fit(some, truth)
    assert result.right == right
    loaded = TextClassifier.load(path)
    assert np.array_equal(loaded.decision_function(texts[:9]), clf.decision_function(texts[:9]))


KILLED = """
import itertools, sys, time
from hashembed import TextClassifier
from hashembed.classify.streaming import learn_stream
def forever():
    for i in itertools.count():
        yield [f"good {i}", f"bad {i}"], ["+", "-"]
learn_stream(TextClassifier(num_embeddings=2000), forever(), path=sys.argv[1], save_seconds=0.05)
"""


def test_a_killed_stream_leaves_a_whole_model(tmp_path):
    path = tmp_path / "model.safetensors"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)])
    try:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    clf = TextClassifier.load(path)
    assert clf.texts_seen_ > 0
    assert clf.predict(["good", "bad"]).tolist() == ["+", "-"]
    clf.partial_fit(["good"], ["+"])
