"""Model cards: what they say, and that no label or name can break them."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import TextClassifier
from hashembed.classify.card import MOST_LABELS, CardFacts, model_card
from hashembed.core.markup import markdown, yaml_text
from hashembed.engine.tensor_file import read_header

yaml = pytest.importorskip("yaml")

TEXTS = ["a good film", "a bad film", "good", "bad"] * 10
ANY = st.text(st.characters(codec=None), max_size=40)  # also halves of surrogate pairs


def fitted(labels, **options):
    return TextClassifier(
        num_embeddings=40, num_buckets=10, embedding_dim=4, effort="fast", **options
    ).fit(TEXTS, labels)


def header_of(clf, folder):
    clf.save(folder / "model")
    return read_header(folder / "model")


@pytest.fixture(scope="module")
def clf():
    return fitted(["+", "-"] * 20)


@pytest.fixture(scope="module")
def header(clf, tmp_path_factory):
    return header_of(clf, tmp_path_factory.mktemp("card"))


def front_matter(card):
    found = re.match(r"---\n(.*?)\n---\n\n# ", card, re.S)
    return yaml.safe_load(found[1])


def test_the_card_tells_what_the_model_is(clf, header):
    result = clf.evaluate(TEXTS[:4], ["+", "-", "+", "+"])
    facts = CardFacts("For films.", "mit", ["en", "no"], "owner/films", result)
    card = model_card(header, "owner/name", facts)
    data = front_matter(card)
    assert data["library_name"] == "hashembed"
    assert data["pipeline_tag"] == "text-classification"
    assert (data["license"], data["language"]) == ("mit", ["en", "no"])
    assert data["datasets"] == ["owner/films"]
    (index,) = data["model-index"]
    (found,) = index["results"]
    assert index["name"] == "owner/name"
    assert found["dataset"] == {"name": "owner/films", "type": "owner/films"}
    values = {metric["type"]: metric["value"] for metric in found["metrics"]}
    assert values == {"accuracy": 0.75, "f1": round(result.macro_f1, 4)}
    for line in (
        "It gives each text one of 2 labels.",
        f"safetensors file of {header['bytes']:,} bytes",
        "For films.",
        "| + | 20 | 50.0% |",
        "On 4 texts of owner/films.",
        "| accuracy | 0.7500 |",
        "| - | 0.500 | 1.000 | 0.667 | 1 |",
        "| training texts | 40 |",
        "| tables | K = 40, B = 10, k = 2, d = 4 |",
        f"| parameters | {clf.report_.parameters:,} |",
        "- Licence: mit.",
        'TextClassifier.from_pretrained("owner/name")',
        "hashembed predict hub:owner/name",
    ):
        assert line in card, line
    assert "not stated" not in card
    assert model_card(header, "owner/name", facts) == card


def test_what_is_not_known_is_said(header):
    card = model_card(header, "a folder", CardFacts())
    data = front_matter(card)
    assert data.keys() == {"library_name", "pipeline_tag", "tags"}
    for line in (
        "The author has not described what the model is for",
        "No evaluation was given, so the accuracy of the model is not known.",
        "| data set | not stated |",
        "No licence was stated.",
        "The language of the training texts was not stated.",
        "Write the name of this repository for `owner/name`.",
        "Probabilities were not calibrated.",
    ):
        assert line in card, line


def test_chosen_settings_and_calibration_are_told(header):
    meta = {**header["meta"], "calibration": {"temperature": 1.5, "threshold": 0.4, "rows": 90}}
    card = model_card({**header, "meta": meta}, "m", CardFacts())
    assert "| calibration | temperature 1.5, on 90 texts left out of training |" in card
    assert "Probabilities were calibrated on texts like those of the training." in card


def test_a_stream_has_no_passes(tmp_path):
    clf = TextClassifier(num_embeddings=40, num_buckets=10, embedding_dim=4, effort="fast")
    clf.partial_fit(TEXTS, ["+", "-"] * 20)
    assert "| passes | not recorded |" in model_card(header_of(clf, tmp_path), "m", CardFacts())


def test_a_searched_model_tells_how_to_repeat_it(tmp_path):
    clf = TextClassifier(members=1).fit(
        [f"{word} film {i}" for i in range(200) for word in ("good", "bad")], ["+", "-"] * 200
    )
    assert clf.search_ is not None
    card = model_card(header_of(clf, tmp_path), "m", CardFacts())
    assert f"`{clf.search_.chosen.command()}`" in card
    assert f"by accuracy, from {len(clf.search_.trials)} trials on training texts" in card


def test_multi_label_models(tmp_path):
    clf = fitted([["a", "b"], ["b"], ["a"], []] * 10)
    result = clf.evaluate(TEXTS, [["a", "b"], ["b"], ["a"], []] * 10, threshold=0.3)
    card = model_card(header_of(clf, tmp_path), "m", CardFacts(evaluation=result))
    assert "It gives each text any number of 2 labels." in card
    assert "Answers: with a probability above 0.3" in card
    assert "probabilities that are the shares above" in card


def test_labels_that_the_model_does_not_know(clf, header):
    result = clf.evaluate(["good", "fine"], ["+", "new"])
    card = model_card(header, "m", CardFacts(evaluation=result))
    assert "Labels that the model does not know, and so misses: 1." in card
    assert "| new | 0.000 | 0.000 | 0.000 | 1 |" in card


def test_an_evaluation_of_another_model_is_refused(header):
    other = fitted(["yes", "no"] * 20)
    with pytest.raises(ValueError, match="the evaluation is of another model"):
        model_card(header, "m", CardFacts(evaluation=other.evaluate(["good"], ["yes"])))


def test_many_labels_are_cut(header):
    count = MOST_LABELS + 7
    meta = {**header["meta"], "classes": [*range(count)], "class_counts": [1] * count}
    card = model_card({**header, "meta": meta}, "m", CardFacts())
    assert f"| {MOST_LABELS - 1} | 1 |" in card
    assert f"| {MOST_LABELS} | 1 |" not in card
    assert "7 more are not shown" in card


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=5, unique=True), ANY, ANY, ANY, ANY)
def test_no_text_breaks_a_card(header, labels, name, license, language, dataset):
    """Every table keeps its columns, the YAML its fields, and nothing becomes HTML."""
    meta = {**header["meta"], "classes": labels, "class_counts": [8] * len(labels)}
    card = model_card({**header, "meta": meta}, name, CardFacts("d", license, language, dataset))
    card.encode()
    data = front_matter(card)
    assert data.get("license", "") == license
    assert data["language"] == [language]
    body = card.partition("\n---\n\n")[2]
    table = body.partition("## Labels\n\n")[2].partition("\n\n## ")[0].split("\n")
    assert len(table) == 2 + len(labels)
    for line in table:
        assert line.count("|") == 4
    assert body.count("\n## ") == 5
    assert "<" not in body.replace("pip install", "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", body)


@given(ANY)
def test_quoted_text_is_the_same_in_yaml(text):
    assert yaml.safe_load(f"a: {yaml_text(text)}\nb: 1") == {"a": text, "b": 1}
    assert "\n" not in yaml_text(text)


def test_markdown_shows_the_text():
    assert markdown("cc-by-4.0: sci.space (new)") == "cc-by-4.0: sci.space (new)"
    assert markdown("a|b") == "a&#124;b"
    assert markdown("<b>&") == "&#60;b&#62;&#38;"
    assert markdown("two\nlines") == "two&#92;nlines"
    assert markdown("") == markdown("   ") == "&nbsp;"
    assert markdown("x" * 200) == "x" * 100 + "…"
    assert json.loads(yaml_text('a "quoted" \\ text')) == 'a "quoted" \\ text'
