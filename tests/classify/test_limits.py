"""What kernels and compilers could not bear is refused before it reaches them."""

import subprocess
import sys

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.classify.engine_plan import EnginePlan
from hashembed.engine.labels import Labels
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.file import load_deep, save_deep
from hashembed.nn.engine.model import DeepModel

BAGS = Bags(np.arange(6) * 12345678901, np.array([0, 3, 6]))
I64 = np.int64


def shallow(multilabel):
    return ShallowModel(HashSpec(40, 10), 4, 3, multilabel=multilabel, threads=1)


def deep(multilabel):
    return DeepModel(HashSpec(40, 10), 4, 3, multilabel=multilabel)


def train(model, labels, order=(0, 1), weights=None):
    rates = np.full(1, 0.1, np.float32)
    return model.train(BAGS, labels, np.array(order), rates, batch_size=2, weights=weights)


@pytest.mark.parametrize("make", [shallow, deep])
@pytest.mark.parametrize(
    ("labels", "offsets", "words"),
    [
        ([0, 3], [0, 1, 2], "from 0 to 2, found 0 to 3"),
        ([-1, 0], [0, 1, 2], "from 0 to 2, found -1 to 0"),
        ([0, 2**40], [0, 1, 2], "from 0 to 2, found 0 to"),
        ([0], [0, 1], "2 documents, but the labels of 1"),
        ([0, 1], [0, 1, 9], "must rise from 0"),
        ([0, 1], [1, 1, 2], "must rise from 0"),
        ([0, 1], [0, 3, 2], "must rise from 0"),
    ],
)
@pytest.mark.parametrize("multilabel", [False, True])
def test_labels_that_are_not_the_documents(make, labels, offsets, words, multilabel):
    with pytest.raises(ValueError, match=words):
        train(make(multilabel), Labels(np.array(labels, I64), np.array(offsets, I64)))


@pytest.mark.parametrize("make", [shallow, deep])
@pytest.mark.parametrize("offsets", [[0, 0, 0], [0, 2, 2], [0, 0, 2]])
def test_a_model_of_one_label_takes_one(make, offsets):
    """Kernels read the first label of each document without asking whether there is one."""
    labels = Labels(np.zeros(offsets[-1], I64), np.array(offsets, I64))
    with pytest.raises(ValueError, match="documents with none or several"):
        train(make(False), labels)
    assert len(train(make(True), labels)) == 2


def test_orders_and_weights_of_other_documents():
    labels = Labels.single([0, 1])
    for order in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="there are 2 documents, found"):
            train(shallow(False), labels, order)
    with pytest.raises(ValueError, match="2 documents, but 3 weights"):
        train(shallow(False), labels, weights=np.ones(3, np.float32))


def test_labels_are_looked_at_once(monkeypatch):
    """A pass trains in many chunks, and has the same labels in each."""
    looked = []
    monkeypatch.setattr(
        "hashembed.engine.shallow.model.check_labels", lambda *given: looked.append(given)
    )
    model, labels = shallow(False), Labels.single([0, 1])
    for _ in range(3):
        train(model, labels)
    assert len(looked) == 1
    train(model, Labels.single([0, 1]))
    assert len(looked) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"embedding_dim": 65536}, "embedding_dim must be a whole number from 1 to 16,384"),
        ({"embedding_dim": 0.5}, "embedding_dim must be"),
        ({"num_hashes": 65}, "num_hashes must be"),
        ({"num_embeddings": 2**33}, "num_embeddings must be"),
        ({"num_buckets": 2**33}, "num_buckets must be"),
        ({"members": 10_001}, "members must be"),
    ],
)
def test_sizes_that_nothing_can_compile_or_hold(settings, words):
    with pytest.raises((TypeError, ValueError), match=words):
        TextClassifier(**settings).fit(["good", "bad"], ["+", "-"])
    with pytest.raises((TypeError, ValueError), match=words):
        TextClassifier(**settings).partial_fit(["good", "bad"], ["+", "-"])


def test_a_wide_model_by_itself():
    model = ShallowModel(HashSpec(4, 4), 65536, 2, threads=1)
    with pytest.raises(ValueError, match="to 16,384, found 65,536"):
        model.scores(BAGS)


@pytest.mark.parametrize("members", [1, 2])
def test_a_plan_knows_the_shapes_of_its_engine(members):
    plan = EnginePlan(HashSpec(40, 10), 4, members)
    found = {name: array.shape for name, array in plan.make(3).tensors().items()}
    assert plan.shapes(3) == found


REFUSE_BOTH = """
import resource, sys
from hashembed import TextClassifier
from hashembed.engine.tensor_file import ModelFileError
from hashembed.nn.engine.file import load_deep
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes
for load, path in ((TextClassifier.load, sys.argv[1]), (load_deep, sys.argv[2])):
    try:
        load(path)
    except ModelFileError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_hidden_layers_that_promise_too_much(tmp_path):
    """Small files whose layers would take gigabytes are refused before anything is made.

    A classifier has no layers any more, whatever its tensors are.
    """
    one, two, wide = tmp_path / "classifier", tmp_path / "deep", 30_000
    clf = TextClassifier(num_embeddings=40, num_buckets=10, embedding_dim=4)
    clf.fit(["good film", "bad film"] * 9, ["+", "-"] * 9).save(one)
    save_deep(two, DeepModel(HashSpec(40, 10), 4, 2, (3, 3)))
    biases = {f"hidden.{i}.bias": np.zeros(wide, np.float32) for i in range(2)}
    tensors, meta = load_tensors(one, "TextClassifier")
    tensors |= {f"hidden.{i}.weight": np.zeros((3, 4), np.float32) for i in range(2)}
    tensors["W"] = np.zeros((2, wide), np.float32)
    meta["engine"]["hidden_layers"] = [wide, wide]
    save_tensors(one, "TextClassifier", {**tensors, **biases}, meta)
    tensors, meta = load_tensors(two, "deep model")
    save_tensors(two, "deep model", {**tensors, **biases}, meta)
    done = subprocess.run(
        [sys.executable, "-c", REFUSE_BOTH, one, two], capture_output=True, text=True, check=True
    )
    first, second, megabytes = done.stdout.splitlines()
    assert "has a model with hidden layers (30000, 30000)" in first
    assert "must have the shape" in second
    assert int(megabytes) < 100


def test_deep_files_of_strange_shapes(tmp_path):
    path = tmp_path / "model"
    save_deep(path, DeepModel(HashSpec(40, 10), 4, 2))
    tensors, meta = load_tensors(path, "deep model")
    for change, fields in (
        ({"E": np.zeros(3, np.float32)}, {}),
        ({"bias": np.array(0, np.float32)}, {}),
        ({"W": np.zeros((2, 4), np.int64)}, {}),
        ({}, {"options": {**meta["options"], "seed": 2**80}}),
        ({}, {"options": {**meta["options"], "dropout": 2}}),
        ({}, {"options": {**meta["options"], "mode": 7}}),
        ({}, {"options": 7}),
        ({}, {"spec": []}),
        ({}, {"text": 7}),
    ):
        save_tensors(path, "deep model", {**tensors, **change}, {**meta, **fields})
        with pytest.raises(ModelFileError, match="cannot be understood"):
            load_deep(path)
    save_tensors(path, "deep model", tensors, meta)
    load_deep(path)
