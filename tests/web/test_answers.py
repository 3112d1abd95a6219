"""The JavaScript module answers as Python does."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import golden
from tests.cases.many_scripts import FIXED, as_javascript, long_text, many_texts
from tests.cases.text_reference import split
from tests.cases.web_models import COMPRESSED, NAMES, make

from hashembed import TextClassifier
from hashembed.engine.tensor_file import read_header
from hashembed.text.spans import word_spans

TEXTS, SOME = 10_000, 400
LONG = ["usual", "pieces", "packed"]  # models that get all texts; the others get some
EXPLAINED = 25
REPEATING = ["to be or not to be, " * n for n in (1, 2, 3, 8, 500)]
GOLDEN = sorted(p for p in golden.FOLDER.glob("*.safetensors") if p.stem != golden.REFUSED)

# Any string that JavaScript can hold.
strings = st.text(st.characters() | st.characters(categories=["Cs", "P", "Z", "Lu"])).map(
    as_javascript
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def compare(server, path, texts):
    model, found = TextClassifier.load(path), server.ask(answer=str(path), texts=texts)
    assert found["labels"] == [str(label) for label in model.classes_.tolist()]
    assert found["multilabel"] == (model.label_form_ != "single")
    assert found["threshold"] == (model.threshold_ if found["multilabel"] else None)
    z = model._logits(texts)
    if model.engine_plan_.votes == "logits" or model.engine_plan_.members == 1:
        np.testing.assert_array_equal(np.array(found["logits"], np.float32), z)
    np.testing.assert_allclose(found["logits"], z, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(texts), atol=1e-5)
    likeliest = model.classes_[z.argmax(axis=1)].tolist()
    assert found["first"] == [str(label) for label in likeliest]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers(server, folder, name):
    """Logits are the same bits, or close where probabilities are averaged."""
    texts = [*FIXED, *REPEATING, *many_texts(TEXTS if name in LONG else SOME)]
    compare(server, make(folder, name), texts)


@pytest.mark.parametrize(
    ("name", "text"),
    [("usual", long_text()), ("pieces", long_text()), ("usual", "x" * 1_000_000)],
    ids=["words", "pieces", "one word"],
)
def test_a_million_characters(server, folder, name, text):
    compare(server, make(folder, name), [text])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_old_model_files(server, path):
    compare(server, path, [*FIXED, *golden.texts(50), *many_texts(100)])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_string(server, folder, data):
    name = data.draw(st.sampled_from(["usual", "pieces", "cased", "short_pieces", "packed"]))
    compare(server, make(folder, name), [data.draw(strings)])


# --- words ---------------------------------------------------------------------------------------


def units(text: str, place: int) -> int:
    """UTF-16 units before a character."""
    return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.parametrize("name", ["usual", "pieces", "cased"])
def test_words(server, folder, name):
    path = make(folder, name)
    config = TextClassifier.load(path).text_config_
    texts = [*FIXED, *many_texts(SOME)]
    for text, found in zip(texts, server.ask(words=str(path), texts=texts), strict=True):
        whole = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        assert [word["text"] for word in found] == split(
            whole, config.lowercase, config.punctuation
        )
        places = [(units(text, start), units(text, end)) for start, end in word_spans(text, config)]
        assert [(word["start"], word["end"]) for word in found] == places


# --- explanations --------------------------------------------------------------------------------


def check_explanation(found, expected, label):
    """`found` in JavaScript and `expected` in Python are the same."""
    text, c = expected.text, expected.class_index(label)
    assert found["label"] == str(expected.classes[c])
    assert found["exact"] == expected.exact
    near = {"rel": 1e-5, "abs": 1e-5}
    assert found["logit"] == pytest.approx(expected.logits[c], **near)
    assert found["bias"] == pytest.approx(expected.bias[c], **near)
    assert found["unexplained"] == pytest.approx(expected.unexplained[c], abs=1e-4)
    assert found["probability"] == pytest.approx(expected.probabilities[c], abs=1e-5)
    terms = {(term.text, term.subword): term for term in expected.top(label, None)}
    assert len(found["ngrams"]) == len(terms)
    sums = dict.fromkeys(terms, 0.0)
    for ngram, contribution in zip(expected.ngrams, expected.contributions[:, c], strict=True):
        sums[ngram.text, ngram.subword] += contribution
    for own in found["ngrams"]:
        name = own["text"], own["kind"] == "characters"
        assert own["evidence"] == pytest.approx(terms[name].evidence, **near)
        assert own["contribution"] == pytest.approx(sums[name], **near)
        spans = [[units(text, start), units(text, end)] for start, end in terms[name].places]
        assert own["spans"] == spans
        assert own["count"] == len(spans)
    sizes = [abs(own["evidence"]) for own in found["ngrams"]]
    assert sizes == sorted(sizes, reverse=True)
    places = [(units(text, start), units(text, end)) for start, end in expected.words]
    assert [(word["start"], word["end"]) for word in found["words"]] == places
    shares = expected.word_contributions
    evidence = expected.relative(shares)
    for i, word in enumerate(found["words"]):
        assert word["contribution"] == pytest.approx(shares[i, c], **near)
        assert word["evidence"] == pytest.approx(evidence[i, c], **near)


@pytest.mark.parametrize("name", NAMES)
def test_explanations(server, folder, name):
    path = make(folder, name)
    model = TextClassifier.load(path)
    texts = ["", "...", *many_texts(EXPLAINED, seed=1), "Straße und STRASSE, straße 😀 \ud800"]
    labels = model.classes_.tolist()
    asked = [(text, None if i % 2 else labels[i % len(labels)]) for i, text in enumerate(texts)]
    sent = [[text, None if label is None else str(label)] for text, label in asked]
    answers = server.ask(answer=str(path), texts=[], explain=sent)
    for (text, label), found in zip(asked, answers["explanations"], strict=True):
        check_explanation(found, model.explain(text, label), label)


# --- what a model tells --------------------------------------------------------------------------


def test_labels_keep_their_values(server, folder):
    def classes(name):
        return server.ask(answer=str(make(folder, name)), texts=[])["classes"]

    assert classes("cased") == [False, True]
    assert classes("members") == TextClassifier.load(make(folder, "members")).classes_.tolist()
    large = TextClassifier.load(make(folder, "one_hash")).classes_.tolist()
    assert classes("one_hash") == [f"{label}n" for label in large]
    assert (
        classes("short_pieces")
        == TextClassifier.load(make(folder, "short_pieces")).classes_.tolist()
    )


def test_large_labels_that_are_floats(server, tmp_path):
    """They are no whole numbers that only a BigInt can hold."""
    clf = TextClassifier(effort="fast").fit(["a b", "c d", "e f"] * 9, [1e20, 2.5e22, -3.0] * 9)
    clf.save(tmp_path / "model")
    found = server.ask(answer=str(tmp_path / "model"), texts=[])
    assert found["classes"] == [-3.0, 1e20, 2.5e22]
    assert found["labels"] == ["-3.0", "1e+20", "2.5e+22"]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("usual", 8),
        ("pieces", 16),
        ("members", 4),
        ("cased", 32),
        ("packed", 8),
        ("packed_two", 8),
        ("tables_members", 8),
    ],
)
def test_info(server, folder, name, bits):
    path = make(folder, name)
    model, info = TextClassifier.load(path), server.ask(answer=str(path), texts=[])["info"]
    plan, config = model.engine_plan_, model.text_config_
    assert info["bits"] == bits
    assert info["bytes"] == path.stat().st_size
    assert info["parameters"] == model.model_.num_parameters
    assert info["sizes"] == {
        "K": plan.spec.num_embeddings,
        "B": plan.spec.num_buckets,
        "k": plan.spec.num_hashes,
        "d": plan.embedding_dim,
        "members": plan.members,
    }
    assert tuple(info["ngrams"]) == config.ngrams
    assert info["subwords"] == (list(config.subwords) if config.subwords else None)
    assert info["lowercase"] == config.lowercase
    assert info["punctuation"] == config.punctuation
    assert info["seed"] == str(plan.spec.seed)
    assert info["class_counts"] == model.class_counts_.tolist()
    assert info["texts_seen"] == model.texts_seen_
    assert info["unicode"] == "14.0.0"
    assert info["packed"] == read_header(path)["meta"].get("packed")
    assert info["format"] == (2 if name in COMPRESSED else 1)


def test_the_compressed_models_are_of_every_kind(folder):
    """One table or two for each member, wide and narrow, few rows and many."""
    headers = [read_header(make(folder, name))["meta"] for name in COMPRESSED]
    tables = [len(meta["packed"]) / meta["engine"]["members"] for meta in headers]
    widths = [meta["engine"]["embedding_dim"] for meta in headers]
    counts = [count for meta in headers for count in meta["packed"].values()]
    assert set(tables) == {1, 2}
    assert {meta["engine"]["members"] for meta in headers} == {1, 2, 3}
    assert min(widths) == 1
    assert max(widths) > 16
    assert min(counts) < 400
    assert max(counts) > 5000
