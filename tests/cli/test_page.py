"""`hashembed page`: what goes into the file, and what is refused. A browser is in `tests/web`."""

import json
import re
from base64 import b64decode

import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import main

ROWS = "label,text\n" + '1,"good ""film"""\n2,bad film\n' * 9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    clf = TextClassifier(passes=3, batch_size=4)
    clf.fit(["good film", "bad film"] * 9, [1, 2] * 9).save(tmp_path / "model")
    (tmp_path / "test.csv").write_text(ROWS)
    (tmp_path / "lines.txt").write_text("so good\n\nso bad\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["page", "model", *arguments])
    assert result.exit_code == code, result.output
    return result


def content(page, name):
    return re.search(rf'<script[^>]* id="{name}">(.*?)</script>', page)[1]


def test_a_page_has_the_model_and_what_was_said_about_it(folder):
    told = run(
        *("-o", "page.html", "--title", "Films & more", "--description", "<b>"),
        *(
            "--example",
            "</script><script>alert(1)",
            "--examples",
            "lines.txt",
            "--test",
            "test.csv",
        ),
    )
    assert "Wrote page.html, 0." in told.stderr
    page = (folder / "page.html").read_text()
    assert b64decode(content(page, "model")) == (folder / "model").read_bytes()
    examples = json.loads(content(page, "given"))["examples"]
    assert examples == ["</script><script>alert(1)", "so good", "so bad"]
    assert page.count("<script") == 3
    assert "<title>Films &amp; more</title>" in page
    assert '<p class="lead" dir="auto">&lt;b&gt;</p>' in page
    right = TextClassifier.load("model").score(["good film", "bad film"], [1, 2])
    assert f"<dt>right on 18 test texts</dt><dd>{right:.1%}</dd>" in page
    run("-o", "page.html", "-q")  # a page may be replaced
    page = (folder / "page.html").read_text()
    assert "Tells 2 kinds of text apart: 1 and 2." in page
    assert "right on" not in page


@pytest.mark.parametrize("kind", [str, int])
def test_names_of_numbers_are_in_the_order_of_the_numbers(folder, kind):
    """As in classes.txt: labels from a file are text, of which 10 comes before 2."""
    texts, labels = [f"word{n} text" for n in range(1, 13)] * 9, [*map(kind, range(1, 13))] * 9
    clf = TextClassifier(passes=20, batch_size=4, members=1, effort="fast").fit(texts, labels)
    clf.save(folder / "model")
    (folder / "names.txt").write_text("".join(f"name of {n}\n" for n in range(1, 13)))
    run("-o", "page.html", "--class-names", "names.txt")
    model = b64decode(content((folder / "page.html").read_text(), "model"))
    (folder / "renamed").write_bytes(model)
    renamed = TextClassifier.load(folder / "renamed").classes_.tolist()
    assert renamed == [f"name of {label}" for label in clf.classes_.tolist()]


def test_classes_can_have_names(folder):
    (folder / "names.txt").write_text("\ufeffso good\n\n  <bad>\n", encoding="utf8")
    run("-o", "page.html", "--class-names", "names.txt", "--test", "test.csv")
    page = (folder / "page.html").read_text()
    assert "Tells 2 kinds of text apart: so good and &lt;bad&gt;." in page
    (folder / "embedded").write_bytes(b64decode(content(page, "model")))
    named, model = TextClassifier.load("embedded"), TextClassifier.load("model")
    assert named.classes_.tolist() == ["so good", "<bad>"]
    texts = ["good", "bad film", ""]
    assert (named.predict_proba(texts) == model.predict_proba(texts)).all()


def test_accuracy_can_be_given(folder):
    run("-o", "page.html", "--accuracy", "0.9173")
    assert "<dt>right on test texts</dt><dd>91.7%</dd>" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "Missing option '-o' / '--output'"),
        ("-o p --accuracy 91", 2, "91.0 is not in the range 0<=x<=1"),
        ("-o p --accuracy 0.9 --test test.csv", 2, "Give either --accuracy or --test, found both."),
        ("-o p --label x", 2, "--label needs --test"),
        ("-o nowhere/p", 2, "found no folder nowhere"),
        ("-o p --test none.csv", 1, "none.csv"),
        ("-o p --class-names none.txt", 2, "'none.txt' does not exist"),
        ("-o p --class-names many.txt", 1, "2 classes needs 2 different class names, found"),
        ("-o p --class-names model", 2, "not a text in UTF-8"),
        ("-o p --examples none.txt", 1, "none.txt"),
        ("-o p --examples many.txt", 1, "found more than 100 examples"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(folder, arguments, code, message):
    (folder / "many.txt").write_text("text\n" * 200)
    assert message in run(*arguments.split(), code=code).stderr
    assert not (folder / "p").exists()


def test_only_models_become_pages(folder):
    (folder / "model").write_bytes((folder / "model").read_bytes()[:-1])
    assert "model" in run("-o", "p", code=1).stderr
    assert not (folder / "p").exists()
