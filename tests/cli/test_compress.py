"""`hashembed compress`."""

import json

import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import main

ROWS = [("+", f"a good film {i}") for i in range(60)] + [
    ("-", f"a bad film {i}") for i in range(60)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    lines = "".join(f"{label},{text}\n" for label, text in ROWS)
    (tmp_path / "data.csv").write_text("label,text\n" + lines)
    clf = TextClassifier(effort="fast")
    clf.fit([text for _, text in ROWS], [label for label, _ in ROWS])
    clf.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["compress", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_table_of_sizes_and_accuracies(folder):
    result = run("model", "-o", "small", "--size", "8kB", "--data", "data.csv")
    assert "accuracy on 12 rows" in result.stdout
    assert (folder / "small").stat().st_size <= 8000
    assert "Wrote small" in result.stderr
    assert TextClassifier.load("small").predict(["good"]).tolist() == ["+"]


def test_json_and_quiet(folder):
    result = run("model", "-o", "small", "-d", "data.csv", "-t", "data.csv", "--json", "-q")
    found = json.loads(result.stdout)
    assert found["measured"] == 120
    assert found["bytes_after"] == (folder / "small").stat().st_size
    assert result.stderr == ""
    tested = CliRunner().invoke(main, ["test", "small", "data.csv", "--json"])
    assert json.loads(tested.stdout)["accuracy"] == found["accuracy_after"]


def test_without_data(folder):
    run("model", "-o", "small", "--bits", "4", "-q")
    assert (folder / "small").stat().st_size < (folder / "model").stat().st_size


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "small", "--size", "1kB", "-d", "data.csv"], 1, "alone take"),
        (
            ["-o", "small", "--bits", "4", "--size", "1MB"],
            1,
            "give one of --size, --bits and --max-loss, found --size 1000000 and --bits 4",
        ),
        (["-o", "small", "--max-loss", "1"], 1, "--max-loss"),
        (["-o", "small", "--bits", "9"], 2, "--bits"),
        (["-o", "small", "--size", "little"], 2, "--size"),
        (["-o", "model"], 2, "input"),
        (["-o", "data.csv", "-d", "data.csv"], 2, "input"),
        ([], 2, "--output"),
    ],
)
def test_refusals(folder, arguments, code, message):
    result = run("model", *arguments, code=code)
    assert message in result.output
    assert not (folder / "small").exists()


def test_the_rest_works_with_it(folder):
    run("model", "-o", "small", "-d", "data.csv", "-q")
    words = ["words", "small", "data.csv", "--by", "evidence"]
    for command in (["info", "small"], ["explain", "small", "good"], words):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output


def test_a_small_model_learns_a_stream(folder):
    """And stays small."""
    run("model", "-o", "small", "--data", "data.csv", "-q")
    size = (folder / "small").stat().st_size
    before = TextClassifier.load("small").predict_proba(["a bad film"])[0, 0]  # of "+"
    (folder / "more.csv").write_text("label,text\n" + "+,a bad film\n" * 300)
    order = ["train", "--stream", "more.csv", "-o", "small", "--continue", "-q"]
    for texts in (420, 720):
        result = CliRunner().invoke(main, order)
        assert result.exit_code == 0, result.output
        assert TextClassifier.load("small").texts_seen_ == texts
    loaded = TextClassifier.load("small")
    assert loaded.predict_proba(["a bad film"])[0, 0] > before + 0.05
    assert loaded.packed_
    assert (folder / "small").stat().st_size < 2 * size


def test_what_is_told_about_a_small_model(folder):
    """What is kept; not only the shapes of tables that are nearly all zeros."""
    run("model", "-o", "small", "-d", "data.csv", "-q")
    run("model", "-o", "tables", "--bits", "4", "-q")
    kept = f"compressed: {len(TextClassifier.load('small').model_.listed.rows):,} of B = 4,194,304 "
    for command in (["info", "small"], ["card", "small"]):
        assert kept in CliRunner().invoke(main, command).stdout
    assert "It was made small" in CliRunner().invoke(main, ["card", "small"]).stdout
    told = CliRunner().invoke(main, ["info", "tables"]).stdout
    assert "k = 2, d = 1, compressed: " in told
    assert f"({(folder / 'tables').stat().st_size / 1000:.1f} kB)" in told
    CliRunner().invoke(main, ["page", "small", "-o", "small.html"])
    assert f"<dt>Tables</dt><dd>{kept}" in (folder / "small.html").read_text()
