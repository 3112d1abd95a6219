"""The page of `hashembed explain --html`: the numbers of explain, and nothing that runs."""

from html.parser import HTMLParser

import pytest
from tests.cases.browser import open_browser

from hashembed import TextClassifier
from hashembed.classify.explain.render import NO_NGRAMS, visible
from hashembed.web.explained import END, head, section, unreadable

EVIL = "<b>\x1b[31m&\u202e</title><script>window.attacked=1</script>"
TEXT = "good <i>film</i>,\nbut a bad\x07 ending & \u202emore"


@pytest.fixture(scope="module")
def classifier():
    clf = TextClassifier(passes=5, subwords=(3, 4), ngrams=(1, 2), punctuation="drop")
    return clf.fit(["good film", "bad film", "so so"] * 20, ["+", EVIL, "?"] * 20)


class Checker(HTMLParser):
    """Tags are closed in their order; words and their numbers are collected."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "b", "i") or (tag == "b" and "sum small" in self.open[-1][1])
        if tag != "meta":
            self.open.append((tag, str(attrs)))
        if dict(attrs).get("class", "").split()[:1] == ["w"]:
            self.words.append((dict(attrs).get("title"), ""))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and "'w" in self.open[-1][1] and self.open[-1][0] == "span":
            title, text = self.words[-1]
            self.words[-1] = title, text + data


@pytest.mark.parametrize("label", [None, "+", EVIL])
def test_words_have_the_numbers_of_the_explanation(classifier, label):
    explanation = classifier.explain(TEXT, label)
    html = head(f"Why {EVIL}?") + section(explanation, "1") + unreadable(EVIL, "2") + END
    assert not set("\x1b\x07") & set(html)
    found = [word for word in Checker(html).words if word[0] is not None]
    column = explanation.relative(explanation.word_contributions)[:, explanation.class_index()]
    assert [title for title, _ in found] == [f"{value:+.3f}" for value in column]
    assert [text for _, text in found] == [visible(TEXT[a:b]) for a, b in explanation.words]
    summary = explanation.summary()
    assert f"<b>{summary['sum']:+.3f} in all</b>" in html
    for term in explanation.top(n=8):
        assert f"{term.evidence:+.3f}</td>" in html


def test_a_text_without_words(classifier):
    assert NO_NGRAMS in section(classifier.explain("?!"))


def test_a_browser_shows_it_under_its_policy(classifier, tmp_path):
    path = tmp_path / "why.html"
    html = head(f"Why {EVIL}?") + section(classifier.explain(TEXT, EVIL)) + END
    path.write_text(html, encoding="utf8", errors="replace")
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 700})
        trouble = []
        page.on("console", lambda message: trouble.append(message.text))
        page.goto(path.as_uri())
        assert page.evaluate("window.attacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        colour = page.locator("section .w.for, section .w.against").first
        assert colour.evaluate("e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"
        assert trouble == []
