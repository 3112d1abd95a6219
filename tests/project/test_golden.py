"""Models of an earlier version: they load, and training gives them again, bit for bit."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tests import golden

from hashembed import TextClassifier
from hashembed.cli import main
from hashembed.engine.tensor_file import ModelFileError

RECORDED = json.loads((golden.FOLDER / "hashes.json").read_text())
OTHERS = (*golden.OLDER, golden.REFUSED)
FILES = sorted(p for p in golden.FOLDER.glob("*.safetensors") if p.stem not in OTHERS)
TOLERANCE = {"small_4bit": 0.1}  # others are stored in half precision at least


@pytest.mark.parametrize("name", RECORDED["models"])
def test_training_gives_the_same_model(name):
    """On the machine that made the record every bit is the same, elsewhere every answer is."""
    made = golden.train_online() if name == "online" else golden.train(name)
    recorded = RECORDED["models"][name]
    np.testing.assert_allclose(golden.answers(made), recorded["answers"], atol=1e-4)
    if golden.machine() == RECORDED["machine"]:
        assert golden.digest(made) == recorded["hash"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_old_model_files_load(path):
    loaded = TextClassifier.load(path)
    name = path.stem if path.stem in RECORDED["models"] else "small"
    np.testing.assert_allclose(
        golden.answers(loaded),
        RECORDED["models"][name]["answers"],
        atol=TOLERANCE.get(path.stem, 2e-3),
    )


@pytest.mark.parametrize("name", golden.OLDER)
def test_what_no_new_model_does_keeps_its_bits(name):
    loaded = TextClassifier.load(golden.FOLDER / f"{name}.safetensors")
    assert loaded.engine_plan_.votes == "probabilities"
    texts = golden.texts(5)
    assert loaded.predict_proba(texts).tolist() == RECORDED["older"][name]
    assert [loaded.predict_proba([text])[0].tolist() for text in texts] == RECORDED["older"][name]


def test_an_old_file_with_hidden_layers_is_refused_and_can_be_described():
    path = golden.FOLDER / f"{golden.REFUSED}.safetensors"
    said = r"hidden\.safetensors has a model with hidden layers \(8\), .*: train a new model, or"
    with pytest.raises(ModelFileError, match=said):
        TextClassifier.load(path)
    shown = CliRunner().invoke(main, ["info", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "layers of [8], which this version cannot load" in shown.stdout
    answered = CliRunner().invoke(main, ["predict", str(path), "-"], input="w1\n")
    assert answered.exit_code == 1
    assert "has a model with hidden layers (8)" in answered.stderr


def test_an_old_model_learns_on():
    """Saved for training it has every bit, and goes on from there."""
    loaded = TextClassifier.load(golden.FOLDER / "small_for_training.safetensors")
    documents = golden.texts(100)
    loaded.partial_fit(documents, golden.labels(golden.SINGLE, documents))
    assert golden.answers(loaded) != RECORDED["models"]["small"]["answers"]
