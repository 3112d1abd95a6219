"""A classifier that keeps punctuation: what it learns, shows and saves."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import main

TEXTS = ["I write C++", "I write C#", "well :-)", "well :-("] * 30
LABELS = ["cpp", "csharp", "happy", "sad"] * 30
SMALL = {"num_embeddings": 2000, "num_buckets": 200, "passes": 5, "threads": 1}


@pytest.fixture(scope="module")
def keeper():
    return TextClassifier(punctuation="keep", **SMALL).fit(TEXTS, LABELS)


def test_what_differs_in_punctuation_only_is_told_apart(keeper):
    assert keeper.predict(TEXTS[:4]).tolist() == LABELS[:4]
    dropper = TextClassifier(punctuation="drop", **SMALL).fit(TEXTS, LABELS)
    assert dropper.predict(["I write C++"]) == dropper.predict(["I write C#"])


def test_explanations_show_the_punctuation(keeper):
    explanation = keeper.explain("well,  :-)")
    found = {n.text: (n.start, n.end) for n in explanation.ngrams}
    assert found[":-)"] == (7, 10)
    assert found[", :-)"] == (4, 10)
    np.testing.assert_allclose(
        explanation.bias + explanation.contributions.sum(axis=0),
        keeper.decision_function(["well,  :-)"])[0],
        atol=1e-5,
    )


def test_important_ngrams_may_be_punctuation(keeper):
    table = keeper.important_ngrams(TEXTS, min_count=1, top=100)
    words = {word.text for word in [*table.most, *table.least]}
    assert {"++", "c ++", ":-)", ":-("} <= words


def test_a_saved_model_still_keeps_it(keeper, tmp_path):
    keeper.save(tmp_path / "model")
    loaded = TextClassifier.load(tmp_path / "model")
    assert loaded.punctuation == loaded.text_config_.punctuation == "keep"
    assert loaded.predict(TEXTS[:4]).tolist() == LABELS[:4]


def test_the_command(tmp_path):
    data = tmp_path / "data.csv"
    rows = [f"{label},{text}" for label, text in zip(LABELS, TEXTS, strict=True)]
    data.write_text("\n".join(["label,text", *rows]))
    model = str(tmp_path / "model")
    options = ["--punctuation", "keep", "--passes", "5", "--effort", "fast", "--quiet"]
    done = CliRunner().invoke(main, ["train", str(data), "-o", model, *options])
    assert done.exit_code == 0, done.output
    info = CliRunner().invoke(main, ["info", model])
    assert "words 1-2, case ignored, punctuation kept" in info.output
    found = CliRunner().invoke(main, ["predict", model], input="well :-(\n")
    assert found.output.split()[0] == "sad"


def test_plan_counts_it(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b a, b\n")
    counts = {}
    for punctuation in ("drop", "keep"):
        options = ["--text", str(text), "--dim", "4", "--json", "--punctuation", punctuation]
        done = CliRunner().invoke(main, ["plan", *options])
        counts[punctuation] = json.loads(done.stdout)["text"]["distinct_ngrams"]
    assert counts == {"drop": 4, "keep": 7}  # and ",", "a ,", ", b"
