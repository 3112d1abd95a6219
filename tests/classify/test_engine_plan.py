"""TextClassifier over other engines: hidden layers, ensembles, and files of them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from hashembed import TextClassifier
from hashembed.classify.engine_plan import EnginePlan, choose_device, deep_passes
from hashembed.cli import demo_task as demo
from hashembed.engine.tensor_file import ModelFileError
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.model import DeepModel

CUDA = torch.cuda.is_available()
SETTINGS = {"ngrams": (1, 1), "subwords": (2, 3), "num_embeddings": 20_000, "batch_size": 64}
SETTINGS |= {"effort": "fast"}
KINDS = {
    "hidden": {"hidden_layers": (50,), "passes": 4, "learning_rate": 0.02},
    "ensemble": {"members": 3},
    "both": {"hidden_layers": (30, 20), "members": 2, "passes": 4, "learning_rate": 0.02},
}


@pytest.fixture(scope="module")
def sentences():
    table = demo.read_sentences()
    train = np.array(table["split"].to_pylist()) == "train"
    texts, labels = np.array(table["text"].to_pylist()), np.array(table["language"].to_pylist())
    order = np.random.default_rng(0).permutation(train.sum())[:3000]
    return (texts[train][order], labels[train][order]), (texts[~train], labels[~train])


@pytest.mark.parametrize("kind", KINDS)
def test_learns_and_comes_back_from_a_file(kind, sentences, tmp_path):
    train, (texts, labels) = sentences
    clf = TextClassifier(**SETTINGS, **KINDS[kind]).fit(*train)
    assert clf.score(texts, labels) > 0.9
    for exact in (False, True):
        path = tmp_path / f"{exact}.safetensors"
        clf.save(path, for_training=exact, bits=16)
        loaded = TextClassifier.load(path)
        assert loaded.get_params() == clf.get_params()
        want, got = clf.predict_proba(texts), loaded.predict_proba(texts)
        np.testing.assert_allclose(got, want, atol=1e-6 if exact else 0.02)
        assert (loaded.predict(texts) == clf.predict(texts)).mean() > 0.995
    clf.partial_fit(train[0][:64], train[1][:64])
    loaded.partial_fit(train[0][:64], train[1][:64])
    np.testing.assert_allclose(
        loaded.predict_proba(texts[:50]), clf.predict_proba(texts[:50]), atol=1e-5
    )
    explanation = clf.explain(str(texts[0]))
    np.testing.assert_allclose(
        explanation.bias + explanation.contributions.sum(axis=0) + explanation.unexplained,
        explanation.logits,
        atol=1e-5,
    )
    if kind == "ensemble":
        assert explanation.exact
        assert clf.important_ngrams(texts).most
        assert "Klingon" in clf.partial_fit(["x"], ["Klingon"]).classes_
        return
    assert not explanation.exact
    with pytest.raises(TypeError, match=r"only shallow models on the CPU can rank .* has hidden"):
        clf.important_ngrams(texts)
    with pytest.raises(TypeError, match="can learn new labels, but this model has hidden layers"):
        clf.partial_fit(["x"], ["Klingon"])


def test_an_ensemble_is_at_least_as_good_as_its_members(sentences):
    train, test = sentences
    one = TextClassifier(**SETTINGS).fit(*train).score(*test)
    five = TextClassifier(**SETTINGS, members=5).fit(*train).score(*test)
    assert five >= one - 0.002


def test_older_plans_average_probabilities():
    plan = EnginePlan(HashSpec(100, 10), 4, members=3)
    assert plan.votes == "logits"
    assert plan.make(2).votes == "logits"
    assert EnginePlan.from_dict(plan.to_dict()) == plan
    older = plan.to_dict()
    del older["votes"]
    loaded = EnginePlan.from_dict(older)
    assert loaded.votes == "probabilities"
    assert loaded.restore(plan.make(2).tensors()).votes == "probabilities"
    with pytest.raises(ValueError, match="votes must be one of"):
        EnginePlan(HashSpec(100, 10), 4, votes=["logits"])


def test_members_have_their_own_hashes():
    plan = EnginePlan(HashSpec(100, 10, seed=7), 4, members=3)
    seeds = [spec.seed for spec in plan.specs]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3


@pytest.mark.skipif(CUDA, reason="about machines without a GPU")
def test_a_gpu_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"needs a CUDA GPU .* torch .* finds none; use 'cpu'"):
        TextClassifier(device="cuda").fit(["a"], ["x"])
    path = tmp_path / "model.safetensors"
    clf = TextClassifier(**SETTINGS).fit(["aa bb", "cc dd"] * 10, ["x", "y"] * 10)
    clf.device = "cuda"  # as if it had been trained there
    clf.save(path)
    texts = ["aa", "dd", "aa dd"]
    got, want = TextClassifier.load(path).predict_proba(texts), clf.predict_proba(texts)
    np.testing.assert_allclose(got, want, atol=1e-3)
    clf.save(path, for_training=True)
    np.testing.assert_array_equal(TextClassifier.load(path).predict_proba(texts), want)
    plan = clf.engine_plan_
    clf.model_ = DeepModel(plan.spec, plan.embedding_dim, 2, optimizer="adagrad")
    clf.save(path, for_training=True)
    with pytest.raises(ModelFileError, match="on a GPU, and this machine has none"):
        TextClassifier.load(path)


def test_devices():
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") == ("cuda" if CUDA else "cpu")
    for wrong in ("tpu", "cuda:", "cuda:x", "cudas"):
        with pytest.raises(ValueError, match="device must be"):
            choose_device(wrong)
    with pytest.raises(ValueError, match="finds none" if not CUDA else "from cuda:0 on"):
        choose_device("cuda:999")


def test_devices_that_there_are(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device(d) for d in ("auto", "cuda", "cuda:1")] == ["cuda", "cuda", "cuda:1"]
    with pytest.raises(ValueError, match="finds only cuda:0 to cuda:1"):
        choose_device("cuda:2")


def test_a_classifier_has_no_batch_normalisation_but_an_older_file_may_have(tmp_path):
    texts, labels = ["a b", "b c", "c a", "a a"] * 8, ["x", "y", "z", "x"] * 8
    for members in (1, 2):
        clf = TextClassifier(hidden_layers=(6, 5), num_embeddings=50, passes=2, members=members)
        clf.fit(texts, labels)
        assert not clf.model_.state().keys() & {"norms.0.mean", "0.norms.0.mean"}
        normalised = replace(clf.engine_plan_, batch_norm=True)
        assert EnginePlan.from_dict(normalised.to_dict()) == normalised
        older = {k: v for k, v in clf.engine_plan_.to_dict().items() if k != "batch_norm"}
        assert EnginePlan.from_dict(older).batch_norm
        with pytest.raises(ValueError, match=r"missing or unknown: .*norms\.0\.mean"):
            clf.model_.load_state(normalised.make(3).state())
        clf.engine_plan_, clf.model_ = normalised, normalised.make(3)
        clf.partial_fit(texts, labels)
        for for_training in (False, True):
            path = tmp_path / f"{members}-{for_training}"
            clf.save(path, for_training=for_training, bits=16)
            loaded = TextClassifier.load(path)
            assert any("norms" in name for name in loaded.model_.state())
            want = clf.predict_proba(texts)
            np.testing.assert_allclose(loaded.predict_proba(texts), want, atol=0.01)
        loaded.partial_fit(texts, labels)
        clf.partial_fit(texts, labels)
        np.testing.assert_allclose(loaded.predict_proba(texts), clf.predict_proba(texts), atol=1e-6)


def test_passes_under_hidden_layers():
    sizes = (1, 10_000, 25_000, 40_000, 10**6)
    assert [deep_passes(texts) for texts in sizes] == [5, 5, 4, 2, 2]
    clf = TextClassifier(hidden_layers=(4,), num_embeddings=50)
    assert len(clf.fit(["a", "b"], ["x", "y"]).history_.epochs) == 5


def test_plans_and_widths_that_cannot_be():
    with pytest.raises(ValueError, match="members"):
        EnginePlan(HashSpec(100, 10), 4, members=0)
    with pytest.raises(ValueError, match="hidden_layers"):
        TextClassifier(hidden_layers=(0,)).fit(["a"], ["x"])


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from hashembed import TextClassifier
TextClassifier(members=2, device="auto").fit(["a", "b"], ["x", "y"]).predict(["a"])
try:
    TextClassifier(hidden_layers=(8,)).fit(["a", "b"], ["x", "y"])
except ImportError as error:
    assert 'pip install "hashembed[torch]"' in str(error), error
else:
    raise SystemExit("no error")
"""


def test_without_torch_a_sentence():
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)


def test_a_deep_file_that_lies(sentences, tmp_path):
    from safetensors.numpy import load_file

    from hashembed.engine.tensor_file import load_tensors, save_tensors

    path = tmp_path / "m"
    TextClassifier(**SETTINGS, hidden_layers=(8,), passes=1).fit(["a", "b"], ["x", "y"]).save(path)
    _, meta = load_tensors(path, "TextClassifier")
    tensors = load_file(path)
    del tensors["hidden.0.bias"]
    save_tensors(path, "TextClassifier", tensors, meta)
    with pytest.raises(ModelFileError, match=r"has no tensor 'hidden\.0\.bias'"):
        TextClassifier.load(path)
