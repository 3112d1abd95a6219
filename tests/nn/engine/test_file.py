"""A model and its dictionary in one file."""

import numpy as np
import pytest

from hashembed.engine.defaults import TrainConfig
from hashembed.engine.labels import Labels
from hashembed.engine.loop import fit
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.file import KIND, load_deep, save_deep
from hashembed.nn.engine.model import DeepModel
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags

TEXTS = [f"{'good' if i % 2 else 'bad'} film number {i % 7}" for i in range(60)]
LABELS = Labels.single(np.arange(60) % 2)


@pytest.mark.parametrize("unknown", ["drop", "share"])
@pytest.mark.parametrize("standard", [False, True])
def test_what_is_loaded_answers_as_what_was_saved(standard, unknown, tmp_path):
    dictionary = Dictionary.count(TEXTS, TextConfig((1, 3)), size=30)
    bags = dictionary.bags(TEXTS, unknown)
    K = dictionary.num_embeddings(unknown)
    spec = HashSpec(K, K, 1, "identity") if standard else HashSpec(K, 9, 2, "identity", 5)
    options = {"importance": not standard, "dropout": 0.1, "mode": "mean", "seed": 3}
    model = DeepModel(spec, 6, 2, (8,), **options)
    fit(model, bags, LABELS, TrainConfig.paper(passes=3, learning_rate=0.01, snippets=None))
    path = tmp_path / "model.safetensors"
    save_deep(path, model, dictionary)
    again, found = load_deep(path)
    assert found.strings.to_pylist() == dictionary.strings.to_pylist()
    assert found.counts.tolist() == dictionary.counts.tolist()
    texts = ["a good film", "bad bad number 3 never seen", ""]
    before = model.probabilities(dictionary.bags(texts, unknown))
    np.testing.assert_array_equal(again.probabilities(found.bags(texts, unknown)), before)
    assert (again.spec, again.network.dropout, again.seed) == (spec, 0.1, 3)


def test_a_model_without_a_dictionary(tmp_path):
    model = DeepModel(HashSpec(50, 9), 4, 3, multilabel=True, append_importance=True)
    save_deep(tmp_path / "model", model)
    again, dictionary = load_deep(tmp_path / "model")
    assert dictionary is None
    bags = text_to_bags(TEXTS, TextConfig())
    np.testing.assert_array_equal(again.probabilities(bags), model.probabilities(bags))


def test_a_dictionary_of_another_model_is_refused(tmp_path):
    dictionary = Dictionary.count(TEXTS, TextConfig((1, 1)))
    n = len(dictionary)
    for spec in (HashSpec(n, 9), HashSpec(n + 2, 9, 2, "identity")):
        with pytest.raises(ValueError, match=f"dictionary of {n} n-grams must have indexing="):
            save_deep(tmp_path / "model", DeepModel(spec, 4, 2), dictionary)
    assert not (tmp_path / "model").exists()


def test_what_is_no_such_model_is_refused(tmp_path):
    path = tmp_path / "model"
    save_tensors(path, "something else", {"E": np.zeros((2, 2), np.float32)}, {})
    with pytest.raises(ModelFileError):
        load_deep(path)
    save_deep(path, DeepModel(HashSpec(50, 9), 4, 3))
    tensors, meta = load_tensors(path, KIND)
    del tensors["W"]
    save_tensors(path, KIND, tensors, meta)
    with pytest.raises(ModelFileError, match="missing or unknown: W"):
        load_deep(path)
    save_tensors(path, KIND, tensors, {"spec": meta["spec"], "text": None})
    with pytest.raises(ModelFileError, match="options"):
        load_deep(path)
