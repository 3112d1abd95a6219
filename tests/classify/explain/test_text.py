"""Explanations: contributions that add up, views that hide nothing and break nothing."""

import json
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from hashembed.classify.explain.render import visible
from hashembed.classify.explain.result import Explanation
from hashembed.classify.explain.text import explain_by_occlusion, explain_text
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

CLASSES = ["bad", "so so", "good"]
TEXT = "Not good, <b>NOT</b> good — naïve & good?\nA \x1b[35mfine\x1b[0m 漢字 film 😀"


def make_model(
    *, classes: int = 3, importance: bool = True, multilabel: bool = False, seed: int = 0
):
    """Random weights of the size that trained ones have."""
    spec = HashSpec(500, 50, 3, seed=seed)
    model = ShallowModel(spec, 7, classes, importance=importance, multilabel=multilabel, seed=seed)
    rng = np.random.default_rng(seed)
    model.tables.bias[:] = rng.normal(size=classes)
    if importance:
        model.importance_weights[:] = rng.normal(size=(500, 3))
    return model


def explain(text: str = TEXT, config: TextConfig | None = None, **settings: object) -> Explanation:
    model = make_model(**settings)
    classes = CLASSES[: len(model.tables.bias)]
    return explain_text(model, config or TextConfig(), classes, text)


configs = st.sampled_from(
    [
        TextConfig(),
        TextConfig((1, 1), lowercase=False),
        TextConfig((2, 4)),
        TextConfig((3, 3), subwords=(2, 4)),
        TextConfig((1, 3), subwords=(1, 6)),
        TextConfig((1, 2), punctuation="keep"),
        TextConfig((1, 1), subwords=(1, 3), punctuation="keep"),
    ]
)
texts = st.lists(st.sampled_from(["good", "BAD", "ﬁlm", " ", "a", ", ", "😀", "漢"]), max_size=30)


# --- the numbers -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(texts.map("".join), configs, st.booleans(), st.booleans())
def test_contributions_and_bias_sum_to_the_logits_of_the_model(text, config, weights, multilabel):
    model = make_model(importance=weights, multilabel=multilabel)
    explanation = explain_text(model, config, CLASSES, text)
    bags = text_to_bags([text], config)
    assert len(explanation.ngrams) == len(bags.keys)
    total = explanation.bias + explanation.contributions.sum(axis=0)
    np.testing.assert_allclose(total, model.scores(bags)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(explanation.logits, model.scores(bags)[0], rtol=1e-5, atol=1e-5)
    by_word = explanation.bias + explanation.word_contributions.sum(axis=0)
    np.testing.assert_allclose(by_word, explanation.logits, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        explanation.probabilities, model.probabilities(bags)[0], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(explanation.unexplained, 0, atol=1e-12)


def test_each_contribution_is_the_formula():
    model, config = make_model(), TextConfig((1, 2), subwords=(3, 4))
    explanation = explain_text(model, config, CLASSES, TEXT)
    tables, P = model.tables, model.importance_weights
    for i, key in enumerate(text_to_bags([TEXT], config).keys):
        row, buckets = model.spec(key)
        for c in range(3):
            expected = sum(
                float(P[row, j]) * float(tables.E[bucket] @ tables.W[c])
                for j, bucket in enumerate(buckets)
            )
            assert explanation.contributions[i, c] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        norm = np.sqrt(sum(float(p) ** 2 for p in P[row]))
        assert explanation.importances[i] == pytest.approx(norm, rel=1e-6)


def test_an_n_gram_is_shared_equally_by_its_words():
    explanation = explain("one two three", TextConfig((3, 3)))
    (contribution,) = explanation.contributions
    for of_word in explanation.word_contributions:
        np.testing.assert_allclose(of_word, contribution / 3)


def test_character_n_grams_belong_to_their_word():
    explanation = explain("one two", TextConfig((2, 2), subwords=(3, 3)))
    pieces = [n.subword and n.word == 1 for n in explanation.ngrams]
    bigram = explanation.contributions[0]
    expected = explanation.contributions[pieces].sum(axis=0) + bigram / 2
    np.testing.assert_allclose(explanation.word_contributions[1], expected)


def test_evidence_is_relative_to_the_other_classes():
    explanation = explain()
    np.testing.assert_allclose(explanation.evidence.sum(axis=1), 0, atol=1e-12)
    shifted = explanation.contributions + np.linspace(-3, 3, len(explanation.ngrams))[:, None]
    np.testing.assert_allclose(explanation.relative(shifted), explanation.evidence)
    multilabel = explain(multilabel=True)
    np.testing.assert_array_equal(multilabel.evidence, multilabel.contributions)
    single = explain(classes=1)
    np.testing.assert_array_equal(single.evidence, single.contributions)


def test_top_puts_places_together_and_ranks_by_strength():
    explanation = explain()
    for label in [None, *CLASSES]:
        c = explanation.class_index(label)
        terms = explanation.top(label, None)
        strengths = [abs(term.evidence) for term in terms]
        assert strengths == sorted(strengths, reverse=True)
        assert sum(term.evidence for term in terms) == pytest.approx(
            explanation.evidence[:, c].sum()
        )
        assert explanation.top(label, 3) == terms[:3]
    (good,) = [term for term in terms if term.text == "good"]
    assert [TEXT[a:b] for a, b in good.places] == ["good", "good", "good"]
    (single,) = {
        explanation.evidence[i, c] for i, n in enumerate(explanation.ngrams) if n.text == "good"
    }
    assert good.evidence == pytest.approx(3 * single)


def test_unknown_classes_are_named_in_the_error():
    with pytest.raises(
        ValueError, match=r"no class 'great', the classes are 'bad', 'so so', 'good'"
    ):
        explain().top("great")
    with pytest.raises(ValueError, match=r"the model has 3 outputs, found 2 classes"):
        explain_text(make_model(), TextConfig(), ["a", "b"], "text")


@pytest.mark.parametrize("text", ["", "  \n", "?!"])
def test_an_empty_text_has_the_prior_and_says_so(text):
    explanation = explain(text)
    assert explanation.ngrams == []
    assert explanation.contributions.shape == (0, 3)
    np.testing.assert_allclose(explanation.logits, make_model().tables.bias, rtol=1e-7)
    for view in (str(explanation), explanation._repr_html_(), on_terminal(explanation)):
        assert "This text has no n-grams" in view
    assert json.loads(json.dumps(explanation.to_dict()))["ngrams"] == []


# --- models that are not linear ----------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(texts.map("".join), configs)
def test_occlusion_of_the_linear_model_is_the_exact_explanation(text, config):
    model = make_model()
    exact = explain_text(model, config, CLASSES, text)
    occluded = explain_by_occlusion(model.scores, config, CLASSES, text)
    np.testing.assert_allclose(occluded.contributions, exact.contributions, atol=2e-5)
    np.testing.assert_allclose(occluded.bias, exact.bias, atol=1e-6)
    np.testing.assert_allclose(occluded.logits, exact.logits, atol=2e-5)
    assert occluded.ngrams == exact.ngrams
    assert not occluded.exact


def test_occlusion_in_several_calls(monkeypatch):
    calls = []

    def scores(bags: Bags):
        calls.append(len(bags.keys))
        return model.scores(bags)

    model = make_model()
    expected = explain_text(model, TextConfig(), CLASSES, TEXT).contributions
    monkeypatch.setattr("hashembed.classify.explain.text._OCCLUDED_KEYS", 100)
    occluded = explain_by_occlusion(scores, TextConfig(), CLASSES, TEXT)
    np.testing.assert_allclose(occluded.contributions, expected, atol=2e-5)
    assert len(calls) > 3
    assert max(calls) <= 100


def test_occlusion_says_what_it_cannot_explain():
    def saturating(bags: Bags):
        return np.minimum(bags.lengths, 2)[:, None] * np.array([1.0, 0.0])

    occluded = explain_by_occlusion(saturating, TextConfig((1, 1)), ["a", "b"], "one two three")
    np.testing.assert_array_equal(occluded.contributions, 0)
    np.testing.assert_array_equal(occluded.unexplained, [2.0, 0.0])
    assert "(unexplained)" in str(occluded)


# --- to look at --------------------------------------------------------------------------------


def on_terminal(explanation: Explanation) -> str:
    out = StringIO()
    Console(file=out, force_terminal=True, color_system="truecolor", width=90).print(explanation)
    return out.getvalue()


def test_json_round_trip():
    saved = json.loads(json.dumps(explain(config=TextConfig(subwords=(3, 3))).to_dict()))
    total = np.array(saved["bias"]) + np.sum([n["contributions"] for n in saved["ngrams"]], axis=0)
    np.testing.assert_allclose(total, saved["logits"])
    total = np.array(saved["bias"]) + np.sum([w["contributions"] for w in saved["words"]], axis=0)
    np.testing.assert_allclose(total, saved["logits"])
    assert saved["classes"][int(np.argmax(saved["probabilities"]))] == saved["predicted"]


def test_labels_of_numpy_become_plain():
    model = make_model()
    saved = explain_text(model, TextConfig(), np.array([1, 2, 3]), "text").to_dict()
    assert json.loads(json.dumps(saved["classes"])) == [1, 2, 3]


def test_the_plain_table_adds_up():
    explanation = explain()
    lines = str(explanation).splitlines()
    assert lines[0].startswith(f"{explanation.predicted} ")
    values = [float(line.split()[0]) for line in lines if line.strip()[:1] in "+-" and line.strip()]
    assert len(values) == 12 + 3  # others, bias, sum
    assert sum(values[:-1]) == pytest.approx(values[-1], abs=0.01)
    assert "\x1b" not in str(explanation)


def test_nothing_in_a_text_can_steer_the_terminal():
    shown = on_terminal(explain())
    assert "\x1b[35m" not in shown
    assert "␛" in shown
    assert "\x1b[38;2;0;0;0;48;2;" in shown  # words are coloured


def test_words_and_pieces_of_words_can_be_told_apart():
    lines = str(explain("the", TextConfig((1, 1), subwords=(3, 5)))).splitlines()
    shown = {line.split()[1] for line in lines if line.endswith(tuple("0123456789"))}
    assert {"the", "-the-", "<the-", "-the>", "<the>", "<th-", "-he>"} == shown


def test_visible_keeps_lengths():
    text = "".join(map(chr, range(0x3000))) + "\ud800"
    assert len(visible(text)) == len(text)
    for sign in ("\x1b", "\x9b", "\u202e", "\u2066", "\ud800", "\r"):
        assert sign not in visible(text)
    assert visible("a\tb\nc") == "a\tb\nc"


class Checker(HTMLParser):
    """All text, and that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_escaped_and_whole():
    classes = ["<script>", "&amp;", '"q"']
    explanation = explain_text(make_model(), TextConfig(), classes, TEXT + "<script>x</script>")
    html = explanation._repr_html_()
    page = Checker(html)
    assert page.tags == {"div", "b", "span", "table", "tr", "th", "td"}
    assert "Not good, <b>NOT</b> good — naïve & good?\nA ␛[35mfine" in page.text
    assert "http" not in html


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    explain().plot(tmp_path / "explanation.png")
    explain_text(make_model(), TextConfig(), ["$a^", "b", "c"], TEXT).plot(
        tmp_path / "b.svg", "$a^"
    )
    explain("").plot(tmp_path / "empty.png")
    assert (tmp_path / "explanation.png").read_bytes().startswith(b"\x89PNG")
    assert "$a^" in (tmp_path / "b.svg").read_text()


def test_a_plot_without_matplotlib_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "hashembed\[plot\]"'):
        explain().plot(tmp_path / "no.png")
