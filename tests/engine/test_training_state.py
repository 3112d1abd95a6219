"""Damaged training states, on purpose or not, are refused with a clear message."""

import random

import numpy as np
import pytest
from tests.cases.hostile_files import LABELS, TEXTS, changed

from hashembed import TextClassifier
from hashembed.engine.history import History
from hashembed.engine.labels import Labels
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.engine.training_state import (
    KIND,
    TrainingState,
    load_training_state,
    save_training_state,
)
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec

SETTINGS = {"num_embeddings": 40, "num_buckets": 10, "embedding_dim": 4, "passes": 2}
SETTINGS |= {"effort": "fast"}  # one member
DAMAGED, MANY_DAMAGED = 60, 1000


@pytest.fixture
def state_file(tmp_path):
    path = tmp_path / "run"
    train(path)
    return path


def train(path, **settings):
    held_out = TEXTS[:4], LABELS[:4]
    classifier = TextClassifier(**SETTINGS, **settings)
    return classifier.fit(TEXTS, LABELS, validation=held_out, checkpoint=path)


def refusal(path):
    """The message, or None if the training state was accepted."""
    try:
        train(path)
    except ModelFileError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"best_pass": 99}, "best_pass must be"),
        ({"best_pass": -1}, "no state of its last pass, or none of its best"),
        ({"best_pass": "x"}, "best_pass must be"),
        ({"best": float("nan")}, "no state of its last pass"),
        ({"best": "low"}, "cannot be understood: ValueError"),
        ({"best": 10**400}, "cannot be understood: OverflowError"),
        ({"history": None}, "cannot be understood: TypeError"),
        ({"history": {"epochs": [], "stopped": 7}}, "stopped by 7"),
        ({"history": {"epochs": [{"number": "x"}], "stopped": None}}, "cannot be understood"),
        ({"run": 7}, "training state of another run"),
        ({"steps": -1}, "steps"),
        ({"loss": float("inf")}, "has no state"),
        ({"loss": "x"}, "cannot be understood"),
    ],
)
def test_fields_that_do_not_fit(state_file, change, words):
    tensors, meta = load_tensors(state_file, KIND)
    save_tensors(state_file, KIND, tensors, {**meta, **change})
    with pytest.raises(ModelFileError, match=words):
        train(state_file)


def test_fields_that_are_missing(state_file):
    tensors, meta = load_tensors(state_file, KIND)
    for name in meta:
        save_tensors(state_file, KIND, tensors, {n: v for n, v in meta.items() if n != name})
        with pytest.raises(ModelFileError, match=f"cannot be understood: KeyError: '{name}'"):
            train(state_file)
    save_tensors(state_file, KIND, tensors, [])
    with pytest.raises(ModelFileError, match="cannot be understood: TypeError"):
        train(state_file)


@pytest.mark.parametrize("part", ["now", "best"])
def test_states_that_do_not_fit(state_file, part):
    tensors, meta = load_tensors(state_file, KIND)
    E = f"{part}/E"
    for wrong, words in (
        ({E: tensors[E][:1]}, r"E must have the shape \(10, 4\), found \(1, 4\)"),
        ({E: tensors[E][0, 0]}, "E must have the shape"),
        ({E: tensors[E].astype(np.int8)}, "E must hold floats"),
        ({f"{part}/X": tensors[E]}, "missing or unknown: X"),
        ({f"{part}X": tensors[E]}, "cannot be understood: KeyError"),
        ({f"{part}/E_square": -np.ones(10, np.float32)}, "sums of squares"),
    ):
        save_tensors(state_file, KIND, {**tensors, **wrong}, meta)
        with pytest.raises(ModelFileError, match=words):
            train(state_file)
    less = {name: array for name, array in tensors.items() if not name.startswith(part)}
    save_tensors(state_file, KIND, less, meta)
    with pytest.raises(ModelFileError, match="no state of its last pass, or none of its best"):
        train(state_file)


def try_damage(path, count, seed):
    """Changed bytes, and changed fields with a correct checksum."""
    rng, refused = random.Random(seed), 0
    data = path.read_bytes()
    tensors, meta = load_tensors(path, KIND)
    for number in range(count):
        if number % 2:
            damaged = bytearray(data)
            at = rng.randrange(len(data))
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged if rng.random() < 0.5 else damaged[:at])
            assert str(path) in refusal(path)
            refused += 1
        else:
            save_tensors(path, KIND, tensors, changed(meta, rng))
            refused += refusal(path) is not None
    return refused


def test_damaged_training_states(state_file):
    refused = try_damage(state_file, DAMAGED, seed=0)
    assert DAMAGED / 2 < refused <= DAMAGED


@pytest.mark.slow
def test_many_damaged_training_states(state_file):
    refused = try_damage(state_file, MANY_DAMAGED, seed=1)
    print(
        f"\n{refused} of {MANY_DAMAGED} damaged training states refused, half of them by one byte"
    )
    assert refused > MANY_DAMAGED / 2


def test_training_states_of_the_torch_engine(tmp_path):
    """The state of optimizers is checked too: kernels index with it."""
    pytest.importorskip("torch")
    from hashembed.nn.engine import DeepModel

    path, model = tmp_path / "run", DeepModel(HashSpec(40, 10), 4, 2, hidden_layers=(3,))
    bags = Bags(np.arange(12), np.arange(0, 13, 3))
    rates = np.full(2, 0.01, np.float32)
    model.train(bags, Labels.single([0, 1, 0, 1]), np.arange(4), rates, batch_size=2)
    save_training_state(path, TrainingState(History(), model.state()), "run")
    assert load_training_state(path, "run", model) is not None
    tensors, meta = load_tensors(path, KIND)
    records = next(name for name in tensors if name.endswith("/records"))
    history = records.replace("records", "history")
    stamped = tensors[records].copy()
    stamped.view(np.int32)[0, :] = 10**6
    for wrong, words in (
        ({records: stamped}, "records are of steps 0 to"),
        ({records: tensors[records][:3]}, "records of a parameter of"),
        ({records: tensors[records].astype(np.float64)}, "records of a parameter of"),
        ({history: tensors[history][:, :0]}, "history of records has the shape"),
        ({history: tensors[history][:3]}, "history of records has the shape"),
        ({history: tensors[history][0]}, "history of records has the shape"),
        ({"now/optimizer7/tensor/0/sum": tensors[history]}, "of optimizer 7"),
        ({"now/optimizer0/tensor/9/sum": tensors[history]}, "parameter 9"),
        ({"now/optimizer0/other/0/sum": tensors[history]}, "which is not known"),
        ({"now/steps": np.zeros(3)}, "number of steps"),
    ):
        save_tensors(path, KIND, {**tensors, **wrong}, meta)
        with pytest.raises(ModelFileError, match=words):
            load_training_state(path, "run", model)
