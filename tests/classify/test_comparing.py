"""Two models on the same texts."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binomtest

from hashembed import TextClassifier
from hashembed.classify.comparing import SHOWN_CLASSES, compare, mcnemar
from hashembed.cli import main

TEXTS = ["good", "bad", "fine", "poor", "dull"] * 4
LABELS = ["+", "-", "+", "-", "-"] * 4


def trained(texts, labels):
    return TextClassifier(passes=10, batch_size=2, num_embeddings=1000).fit(texts, labels)


@pytest.fixture(scope="module")
def models():
    """The first takes fine for bad, the second poor for good."""
    wrong = {"fine": "-"}, {"poor": "+"}
    return [
        trained(TEXTS, [w.get(t, y) for t, y in zip(TEXTS, LABELS, strict=True)]) for w in wrong
    ]


@pytest.mark.parametrize(
    ("a", "b"),
    [(0, 0), (0, 1), (1, 9), (30, 50), (400, 601), (480, 521), (4800, 5200), (10**6, 10**6 + 9000)],
)
def test_mcnemar_is_the_exact_binomial_test(a, b):
    want = binomtest(a, a + b, 0.5).pvalue if a + b else 1.0
    assert mcnemar(a, b) == mcnemar(b, a) == pytest.approx(want, rel=1e-8)
    assert 0 <= mcnemar(a, b) <= 1


def test_mcnemar_where_chance_is_tiny():
    assert mcnemar(0, 1000) == math.ldexp(1, -999)
    assert mcnemar(0, 10**6) == 0


def test_counts_and_differences(models):
    labels = [*LABELS[:5], "-"]
    result = compare(*models, [*TEXTS[:5], "fine"], labels, names=("old", "new"))
    counts = (result.both_right, result.only_first, result.only_second, result.both_wrong)
    assert counts == (3, 2, 1, 0)  # good bad dull; poor, fine as -; fine as +
    assert result.first.accuracy == pytest.approx(5 / 6)
    assert result.second.accuracy == pytest.approx(4 / 6)
    assert result.p_value == 1
    found = [(d.number, d.text, d.truth, d.first, d.second) for d in result.differences]
    assert found == [
        (3, "fine", "+", "-", "+"),
        (4, "poor", "-", "-", "+"),
        (6, "fine", "-", "-", "+"),
    ]
    changes = {c.label: c for c in result.classes}
    assert changes["+"].texts == 2
    assert changes["-"].change == pytest.approx(result.second.f1[1] - result.first.f1[1])
    for view in (str(result), result._repr_html_()):
        assert "only old right 2, only new right 1" in view
        assert "p = 1" in view
        assert "poor" in view


def test_models_of_different_classes(models):
    other = trained(["good", "bad", "so so"], ["+", "-", "?"])
    result = compare(models[0], other, ["good", "so so", "x"], ["+", "?", "new"])
    assert {c.label: c.texts for c in result.classes} == {"+": 1, "-": 0, "?": 1, "new": 1}
    assert (result.both_right, result.only_second, result.both_wrong) == (1, 1, 1)
    with pytest.raises(ValueError, match="the same type, found str_ and int64: train both"):
        compare(models[0], trained(["a", "b"], [0, 1]), ["a"], ["+"])


@pytest.mark.parametrize("matrix", [False, True])
def test_several_labels(matrix):
    texts = ["red", "blue", "red blue", "green"] * 5
    lists = [["a"], ["b"], ["a", "b"], []] * 5
    truth = np.array([["a" in x, "b" in x] for x in lists], int) if matrix else lists
    names = (0, 1) if matrix else ("a", "b")
    good, wrong = trained(texts, truth), trained(texts, [*truth[1:], truth[0]])
    result = compare(good, wrong, texts, truth)
    assert (result.only_first, result.both_right) == (20, 0)
    assert result.p_value == pytest.approx(2**-19)
    assert [d.truth for d in result.differences[:3]] == [names[:1], names[1:], names]
    assert all(d.truth == d.first != d.second for d in result.differences)
    assert "(none)" in str(result)
    single = trained(texts[:2], list(names))
    mixed = compare(single, good, texts[:2], list(names))
    assert mixed.both_right == 2


def test_the_command(models, tmp_path):
    for name, model in zip(("old", "new"), models, strict=True):
        model.save(tmp_path / name)
    data = tmp_path / "d.csv"
    rows = "".join(f"{y},{t}\n" for t, y in zip(TEXTS, LABELS, strict=True))
    data.write_text(f"label,text\n{rows}")
    command = ["compare", str(tmp_path / "old"), str(tmp_path / "new"), str(data)]
    shown = CliRunner().invoke(main, [*command, "--show", "3"])
    assert shown.exit_code == 0, shown.output
    assert "label = column 'label'" in shown.stderr
    assert "answers differ for 8 texts; McNemar's exact test: p = 1" in shown.stdout
    assert shown.stdout.count("fine") + shown.stdout.count("poor") == 3
    none = CliRunner().invoke(main, [*command, "--show", "0", "-q"])
    assert "fine" not in none.stdout
    assert none.stderr == ""
    found = json.loads(CliRunner().invoke(main, [*command, "--json", "-q"]).stdout)
    assert found["only_first"] == found["only_second"] == 4
    assert found["models"] == command[1:3]
    assert len(found["differences"]) == 8
    assert found["differences"][0] == {
        "number": 3,
        "text": "fine",
        "truth": "+",
        "first": "-",
        "second": "+",
    }


def test_only_the_most_changed_classes_are_shown():
    names = [f"c{i:02}" for i in range(SHOWN_CLASSES + 3)]
    clf = trained([f"w{i}" for i in range(len(names))], names)
    assert "and 3 classes that change less" in str(compare(clf, clf, ["w1"], ["c01"]))
