"""What people see of results: tables in text and HTML, safe whatever labels hold."""

from html.parser import HTMLParser

import numpy as np
import pytest

from hashembed import TextClassifier
from hashembed.classify.metrics import WIDEST
from hashembed.engine.history import Epoch, History

TEXTS = ["good film", "bad film", "so so"] * 20
EVIL = "<b>\x1b[31m&\u202e\n"  # HTML, a colour, a turn of the writing, a line end


class Cells(HTMLParser):
    """The text of cells and paragraphs; tags must be closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag in ("td", "th", "p"):
            self.texts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts[-1] += data


@pytest.fixture(scope="module")
def classifier():
    labels = ["+", EVIL, "?"] * 20
    return TextClassifier(passes=5, batch_size=4, validation_fraction=0.2).fit(TEXTS, labels)


def safe(text):
    assert not set("\x1b\u202e") & set(text)
    return text


def test_an_evaluation_is_a_table(classifier):
    result = classifier.evaluate([*TEXTS, "x"], [*["+", EVIL, "?"] * 20, "new"])
    lines = safe(str(result)).splitlines()
    assert lines[0].split() == ["class", "precision", "recall", "F1", "texts"]
    assert "<b>\\x1b[31m&\\u202e\\n" in lines[3]
    assert lines[3].split()[-1] == "20"
    assert any(line.split()[:3] == ["truth", "\\", "answer"] for line in lines)
    assert "accuracy 0.9836" in lines[-2]
    assert lines[-1] == "The model does not know these labels, so it is wrong about them: new"
    html = safe(result._repr_html_())
    assert "<b>" not in html
    texts = Cells(html).texts
    assert texts[:5] == ["class", "precision", "recall", "F1", "texts"]
    assert texts[10] == "<b>\\x1b[31m&\\u202e\\n"
    assert "accuracy 0.9836" in texts[-2]


def test_many_classes_show_their_worst_mistakes():
    names = [f"c{i:02}" for i in range(WIDEST + 1)]
    texts = [f"w{i}" for i in range(WIDEST + 1)]
    clf = TextClassifier(passes=20, batch_size=2).fit(texts, names)
    wrong = clf.evaluate([*texts, texts[0], texts[0]], [*names, "c01", "c01"])
    for view in (str(wrong), "".join(Cells(wrong._repr_html_()).texts)):
        assert "most frequent mistakes:" in view
        assert "2  c01 taken for c00" in view
        assert "truth" not in view


def test_important_ngrams_in_a_notebook(classifier):
    table = classifier.important_ngrams(TEXTS, top=2, min_count=5)
    texts = Cells(safe(table._repr_html_())).texts
    assert texts[0] == "most important"
    assert "least important" in texts
    assert texts[-2] == "180 n-grams, 7 of them distinct; 7 seen at least 5 times."
    rare = classifier.important_ngrams(["x"], min_count=5)
    assert "No n-gram was seen at least 5 times" in Cells(rare._repr_html_()).texts[0]
    safe(str(table))


def test_a_history_in_a_notebook(classifier):
    texts = Cells(classifier.history_._repr_html_()).texts
    assert texts[:4] == ["pass", "loss", "learning rate", "seconds"]
    assert texts[5] == "validation accuracy"
    assert len(texts) == 6 * (1 + len(classifier.history_.epochs)) + 1
    assert texts[-1].startswith("Kept pass ")
    plain = History([Epoch(0, 0.5, 0.1, 1.25)], stopped="<interrupted>")
    texts = Cells(plain._repr_html_()).texts
    assert texts[4:] == ["1", "0.5000", "0.1", "1.25", "Stopped: <interrupted>."]


def test_explanations_show_labels_safely(classifier, tmp_path):
    explanation = classifier.explain("bad film\x1b[0m", EVIL)
    for view in (str(explanation), explanation._repr_html_()):
        safe(view)
    assert "for <b>\\x1b[31m&\\u202e\\n" in str(explanation)
    explanation.plot(tmp_path / "e.svg")


def test_an_explanation_about_a_chosen_class(classifier):
    usual = classifier.explain("good film")
    asked = classifier.explain("good film", "?")
    assert usual.predicted == asked.predicted == "+"
    assert "for +" in str(usual)
    assert "for ?" in str(asked)
    assert asked.top() == usual.top("?") != usual.top()
    assert asked.to_dict()["class"] == "?"
    assert np.array_equal(asked.contributions, usual.contributions)
    told = asked.summary(1)
    assert told["class"] == "?"
    assert told["probability"] == usual.probabilities[asked.classes.index("?")]
    total = sum(term["evidence"] for term in told["ngrams"]) + told["others"] + told["bias"]
    assert total == pytest.approx(told["sum"])
    with pytest.raises(ValueError, match="found no class 'x', the classes are '"):
        classifier.explain("good film", "x")
