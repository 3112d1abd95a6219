"""TextClassifier over other engines: ensembles, GPUs, and files of them."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from hashembed import TextClassifier
from hashembed.classify.engine_plan import EnginePlan, choose_device
from hashembed.classify.explain.parts import parts_of
from hashembed.classify.explain.text import explain_text
from hashembed.classify.trained import NotShallowError
from hashembed.cli import demo_task as demo
from hashembed.engine.ensemble import Ensemble
from hashembed.engine.tensor_file import ModelFileError
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.model import DeepModel
from hashembed.text.config import TextConfig

CUDA = torch.cuda.is_available()
SETTINGS = {"ngrams": (1, 1), "subwords": (2, 3), "num_embeddings": 20_000, "batch_size": 64}
SETTINGS |= {"effort": "fast"}


@pytest.fixture(scope="module")
def sentences():
    table = demo.read_sentences()
    train = np.array(table["split"].to_pylist()) == "train"
    texts, labels = np.array(table["text"].to_pylist()), np.array(table["language"].to_pylist())
    order = np.random.default_rng(0).permutation(train.sum())[:3000]
    return (texts[train][order], labels[train][order]), (texts[~train], labels[~train])


def test_an_ensemble_learns_and_comes_back_from_a_file(sentences, tmp_path):
    train, (texts, labels) = sentences
    clf = TextClassifier(**SETTINGS, members=3).fit(*train)
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
    assert explanation.exact
    assert clf.important_ngrams(texts).most
    assert "Klingon" in clf.partial_fit(["x"], ["Klingon"]).classes_


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


def on_torch(clf):
    """The classifier with its model in the torch engine, as on a GPU."""

    def moved(model):
        options = {"multilabel": model.multilabel, "optimizer": "adagrad"}
        return DeepModel.from_tensors(model.spec, model.tensors(), **options)

    model = clf.model_
    clf.model_ = (
        Ensemble([moved(member) for member in model.members])
        if isinstance(model, Ensemble)
        else moved(model)
    )
    return clf


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("multilabel", [False, True])
def test_explanations_of_the_torch_engine_are_exact(members, multilabel):
    """They are those of the shallow engine, which are float64 sums, up to float32's rounding."""
    texts = ["good film", "bad film", "a bad one", "good good"] * 9
    labels = [["+", "film"], ["-", "film"], ["-"], ["+"]] if multilabel else ["+", "-", "-", "+"]
    options = {"num_embeddings": 100, "passes": 20, "members": members}
    options |= {"embedding_dim": 5, "batch_size": 4}
    clf = TextClassifier(**SETTINGS | options).fit(texts, labels * 9)
    asked = ("a good, good but not very good film", "unknown", "", "?!")
    want = [clf.explain(text) for text in asked]
    clf = on_torch(clf)
    for text, one in zip(asked, want, strict=True):
        found = clf.explain(text)
        assert found.exact
        assert found.ngrams == one.ngrams
        np.testing.assert_allclose(found.contributions, one.contributions, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.bias, one.bias, rtol=1e-6)
        np.testing.assert_allclose(found.logits, one.logits, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.importances, one.importances, rtol=1e-6)
    assert np.abs(want[0].contributions).max() > 0.1
    with pytest.raises(NotShallowError, match="can rank n-grams by importance, but"):
        clf.important_ngrams(texts)


def test_parts_of_ensembles_and_of_models_that_are_not_linear():
    flat, deep = (DeepModel(HashSpec(50, 10), 4, 3, layers) for layers in ((), (3,)))
    assert len(parts_of(flat)) == 1
    assert len(parts_of(Ensemble([flat, flat]))) == 2
    assert parts_of(Ensemble([flat, flat], "probabilities")) == []
    assert parts_of(deep) == parts_of(Ensemble([flat, deep])) == []
    with pytest.raises(TypeError, match="not linear: explain_by_occlusion explains any model"):
        explain_text(deep, TextConfig(), ["a", "b", "c"], "text")


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


def test_plans_of_earlier_versions():
    """They have hidden layers, mostly none, and say whether these are normalised."""
    plan = EnginePlan(HashSpec(100, 10), 4)
    older = {**plan.to_dict(), "hidden_layers": [], "batch_norm": True}
    assert EnginePlan.from_dict(older) == plan
    del older["hidden_layers"], older["batch_norm"]
    assert EnginePlan.from_dict(older) == plan
    with pytest.raises(ModelFileError, match=r"hidden layers \(1000, 500\), which"):
        EnginePlan.from_dict({**older, "hidden_layers": [1000, 500]})


def test_there_are_no_hidden_layers():
    with pytest.raises(TypeError, match="hidden_layers"):
        TextClassifier(hidden_layers=(8,))
    with pytest.raises(ValueError, match="hidden_layers"):
        TextClassifier().set_params(hidden_layers=(8,))


def test_plans_that_cannot_be():
    with pytest.raises(ValueError, match="members"):
        EnginePlan(HashSpec(100, 10), 4, members=0)
    with pytest.raises(TypeError, match="multilabel must be True or False, found 1"):
        EnginePlan(HashSpec(100, 10), 4, multilabel=1)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from hashembed import TextClassifier
TextClassifier(members=2, device="auto").fit(["a", "b"], ["x", "y"]).predict(["a"])
try:
    TextClassifier(device="cuda").fit(["a", "b"], ["x", "y"])
except ValueError as error:
    assert 'pip install "hashembed[torch]"' in str(error), error
else:
    raise SystemExit("no error")
"""


def test_without_torch_a_sentence():
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)
