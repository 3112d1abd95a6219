"""`predict`, `explain` and `words`: files out, thresholds, hostile labels, closed streams."""

import csv
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests import golden

from hashembed import TextClassifier
from hashembed.cli import main
from hashembed.cli.writers import JsonTexts, whole_file, writer_for
from hashembed.readers import read_texts

COMMAND = [sys.executable, "-c", "from hashembed.cli import main; main()"]
SETTINGS = {"passes": 10, "batch_size": 2, "num_embeddings": 1000}
EVIL = "evil\x1b[31m\u202e"


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of one label a text, one of several, one with a label of line ends and escapes."""
    path = tmp_path_factory.mktemp("answers")
    texts = ["good", "bad", "so so"]
    for name, labels in (
        ("one", ["+", "-", "?"]),
        ("several", [["+"], ["-"], ["+", "-"]]),
        ("numbers", [1, 0, 2]),
        ("evil", [EVIL, "-", "two\nlines\tand a tab"]),
        ("comma", [["a,b"], ["c"], ["a,b", "c"]]),
    ):
        TextClassifier(**SETTINGS).fit(texts * 5, labels * 5).save(path / name)
    (path / "data.csv").write_text(
        'id,text,label,note\n7,good,+,"a ""b"", c"\nbroken\n9,bad,-,"two\nlines"\n4,so so,?,\n'
    )
    return path


def rows_of(path):
    with open(path, newline="", encoding="utf8") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


# --- thresholds ---------------------------------------------------------------------------------


def test_predict_with_a_threshold(folder):
    lines = "good\nso so\nx\n"
    all_of = run("predict", folder / "one", "--threshold", 0, input="good\n").stdout.split()
    assert len(all_of) == 3
    assert run("predict", folder / "one", "--threshold", 1, input=lines).stdout == "\n\n\n"
    sure = run("predict", folder / "one", "--threshold", 0.6, input=lines).stdout.split("\n")
    assert sure == ["+", "?", "", ""]
    assert run("predict", folder / "several", input="so so\n").stdout.split() == ["+", "-"]
    strict = run("predict", folder / "several", "--threshold", 0.999, input="so so\n")
    assert strict.stdout == "\n"
    best = run("predict", folder / "several", "--top", 1, "--threshold", 0.5, input="x\ngood\n")
    assert len(best.stdout.splitlines()[1].split("\t")) == 2
    empty = json.loads(
        run("predict", folder / "one", "--json", "--threshold", 1, input="x\n").stdout
    )
    assert empty == {"label": None, "probabilities": {}}
    bad = run("predict", folder / "one", "--threshold", "7", input="x\n", code=2)
    assert "7.0 is not in the range 0<=x<=1" in bad.stderr


# --- the report ---------------------------------------------------------------------------------


def test_predict_says_which_columns_it_took(folder, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("id,text\n1,good\n2,bad\n")
    told = run("predict", folder / "one", data)
    assert told.stderr.startswith("read 2 rows from 1 file (CSV), text = column 'text', with a he")
    assert told.stdout == "+\n-\n"
    assert run("predict", folder / "one", data, "-q").stderr == ""
    assert run("predict", folder / "one", input="good\n").stderr == ""
    plain = tmp_path / "d.txt"
    plain.write_text("good\n")
    assert "(lines)" in run("predict", folder / "one", plain).stderr
    assert "text = column 'text'" in run("words", folder / "one", data, "--min-count", 1).stderr
    assert run("words", folder / "one", data, "--min-count", 1, "-q").stderr == ""


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_answers_beside_the_columns_of_the_data(folder, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    told = run(
        *("predict", folder / "one", folder / "data.csv", "--text", "text"),
        *("-o", out, "-p", "--on-error", "skip"),
    )
    rows = rows_of(out)
    assert list(rows[0]) == ["id", "text", "label", "note", "prediction", "probability"]
    assert [row["id"] for row in rows] == ["7", "", "9", "4"]
    assert [row["prediction"] for row in rows] == ["+", "", "-", "?"]
    assert [row["note"] for row in rows] == ['a "b", c', "", "two\nlines", ""]
    assert float(rows[0]["probability"]) > 0.5
    assert rows[1]["probability"] == ""
    assert "line 3: found 1 column, expected 4" in told.stderr
    assert "1 row could not be read and got an empty answer." in told.stderr
    assert f"Wrote {out}, 4 rows." in told.stderr
    assert told.stdout == ""
    assert os.listdir(tmp_path) == [out.name]


def test_unreadable_rows_on_standard_output_keep_their_line(folder):
    skip = ("predict", folder / "one", folder / "data.csv", "--text", "text", "--on-error", "skip")
    assert run(*skip).stdout == "+\n\n-\n?\n"
    objects = [json.loads(line) for line in run(*skip, "--json").stdout.splitlines()]
    assert [found["label"] for found in objects] == ["+", None, "-", "?"]


def test_chosen_columns(folder, tmp_path):
    out = tmp_path / "out.csv"
    asked = ("predict", folder / "one", folder / "data.csv", "--text", "text", "-o", out)
    run(*asked, "--keep", "label,id", "--on-error", "skip")
    assert rows_of(out)[0] == {"label": "+", "id": "7", "prediction": "+"}
    there = run(*asked, code=2).stderr
    assert "already exists" in there
    assert "or add --force" in there
    asked = (*asked, "--force")
    run(*asked, "--keep", "1", "--on-error", "skip", "-q")
    assert rows_of(out)[0] == {"id": "7", "prediction": "+"}
    missing = run(*asked, "--keep", "colour", code=1)
    assert "found no column 'colour' to keep: the columns are 'id', 'text'" in missing.stderr
    assert rows_of(out)[0] == {"id": "7", "prediction": "+"}  # a failure leaves what was there
    assert os.listdir(tmp_path) == ["out.csv"]
    other = tmp_path / "other.csv"
    lines = run("predict", folder / "one", "-o", other, "--keep", "id", input="x\n", code=1)
    assert "found no column 'id' to keep: the only column is 'text'" in lines.stderr


def test_answers_do_not_overwrite_columns_of_the_same_name(folder, tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    run("predict", folder / "one", "-o", first, input="good\nbad\n")
    run("predict", folder / "one", first, "--text", "text", "-o", second)
    assert rows_of(second)[1] == {"text": "bad", "prediction": "-", "prediction_2": "-"}


def test_json_lines_keep_their_values(folder, tmp_path):
    data, out = tmp_path / "d.jsonl", tmp_path / "out.jsonl"
    objects = [
        {"id": 1, "text": "good", "tags": ["a", {"b": None}], "label": None},
        {"id": None, "text": "bad", "more": 0.5},
    ]
    data.write_text("\n".join([*map(json.dumps, objects), "nonsense", '{"id": 3, "text": 5}']))
    run("predict", folder / "numbers", data, "-o", out, "-p", "--on-error", "skip")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    chances = [row.pop("probability") for row in found]
    assert found == [
        {**objects[0], "prediction": 1},
        {**objects[1], "prediction": 0},
        {"prediction": None},
        {"id": 3, "text": 5, "prediction": None},
    ]
    assert chances[0] > 0.5
    assert chances[2:] == [None, None]
    out = tmp_path / "lists.jsonl"
    run("predict", folder / "several", data, "-o", out, "--keep", "id", "--on-error", "skip")
    lists = [json.loads(line) for line in out.read_text().splitlines()]
    asked = ("predict", folder / "several", data, "-o", out, "--force")
    wrong = run(*asked, "--keep", "idd", code=1)
    assert "found no key 'idd' to keep: the keys are 'id', 'text'" in wrong.stderr
    assert lists[0] == {"id": 1, "predictions": ["+"]}
    assert lists[2] == {"predictions": None}


def test_keys_within_keys_are_kept_by_their_path(folder, tmp_path):
    data, out = tmp_path / "d.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"r": {"body": "good", "id": [1]}}\n{"r": {"body": "bad"}}\n')
    run("predict", folder / "one", data, "--text", "r.body", "--keep", "r.id", "-o", out)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert found == [{"r.id": [1], "prediction": "+"}, {"prediction": "-"}]
    table = pa.table({"r": [{"body": "good", "id": 1}, {"body": "bad", "id": None}]})
    pq.write_table(table, tmp_path / "d.parquet")
    parquet = ("predict", folder / "one", tmp_path / "d.parquet", "--text", "r.body")
    run(*parquet, "--keep", "r.id", "-o", out, "--force")
    assert [json.loads(line)["r.id"] for line in out.read_text().splitlines()] == [1, None]
    run(*parquet, "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").drop(["prediction"]).equals(table)


def test_json_becomes_columns(folder, tmp_path):
    data, out = tmp_path / "d.jsonl", tmp_path / "out.csv"
    data.write_text('{"text": "good", "n": [1]}\n' * 10_000 + '{"text": "x", "late": true}\n')
    run("predict", folder / "one", data, "-o", out)
    rows = rows_of(out)
    assert rows[0] == {"text": "good", "n": "[1]", "late": "", "prediction": "+"}
    assert (rows[-1]["n"], rows[-1]["late"]) == ("", "true")
    assert len(rows) == 10_001
    run("predict", folder / "one", data, "-o", tmp_path / "out.parquet", "-q")
    assert pq.read_table(tmp_path / "out.parquet")["n"].to_pylist()[9_999:] == ["[1]", None]


@pytest.mark.parametrize(("format", "first"), [("csv", b"a,p\n1,+\n,-\n"), ("parquet", None)])
def test_keys_that_come_too_late_for_a_table_are_named(tmp_path, capsys, format, first):
    out = tmp_path / "out"
    with whole_file(str(out)) as file:
        writer = writer_for(format, file)
        writer.write({"a": JsonTexts(pa.array(["1"])), "p": pa.array(["+"])})
        writer.write({"late": JsonTexts(pa.array(["2"])), "p": pa.array(["-"])})
        writer.close()
    told = capsys.readouterr().err
    assert "Left out keys that first appear in later rows: late. A .jsonl file keeps them" in told
    if first is None:
        assert pq.read_table(out).to_pydict() == {"a": ["1", None], "p": ["+", "-"]}
    else:
        assert out.read_bytes() == first


def test_parquet_keeps_its_types(folder, tmp_path):
    data, out = tmp_path / "d.parquet", tmp_path / "out.parquet"
    table = pa.table(
        {
            "id": pa.array([5, None, 7, 8], pa.int16()),
            "text": ["good", "bad", None, "so so"],
            "when": pa.array([0, 1, 2, 3], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, data)
    run("predict", folder / "several", data, "-o", out, "-p", "--on-error", "skip")
    found = pq.read_table(out)
    assert found.drop(["predictions", "probabilities"]).equals(table)
    predicted = [x if x is None else set(x) for x in found["predictions"].to_pylist()]
    assert predicted == [{"+"}, {"-"}, None, {"+", "-"}]
    assert len(found["probabilities"][3]) == 2
    out = tmp_path / "numbers.parquet"
    run("predict", folder / "numbers", data, "-o", out, "--keep", "id", "--on-error", "skip")
    assert pq.read_table(out)["prediction"].to_pylist() == [1, 0, None, 2]
    assert pq.read_table(out).schema.field("prediction").type == pa.int64()


def test_no_rows_give_a_file_that_can_be_read(folder, tmp_path):
    for suffix, names in ((".csv", "prediction\n"), (".jsonl", "")):
        out = tmp_path / f"out{suffix}"
        run("predict", folder / "one", "-o", out, input="")
        assert out.read_text() == names
    run("predict", folder / "one", "-o", tmp_path / "out.parquet", input="")
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["prediction"]


def test_several_labels_in_a_column(folder, tmp_path):
    out = tmp_path / "out.csv"
    run("predict", folder / "several", "-o", out, "-p", input="so so\ngood\n")
    rows = rows_of(out)
    assert sorted(rows[0]["predictions"].split(",")) == ["+", "-"]
    assert len(rows[0]["probabilities"].split(",")) == 2
    assert rows[1]["predictions"] == "+"
    other = tmp_path / "other.csv"
    refused = run("predict", folder / "comma", "-o", other, input="x\n", code=2)
    assert "'a,b' has a comma in it. Write a .jsonl or .parquet file" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "out.xls"], "expected a file name that ends in .csv, .tsv"),
        (["--keep", "id"], "--keep needs --output"),
        (["-o", "out.csv", "--json"], "Use --output FILE.jsonl"),
        (["-o", "data.csv"], "data.csv is also an input of this command"),
        (["-o", "./data.csv", "data.csv"], "data.csv is also an input of this command"),
    ],
)
def test_predict_refuses(folder, arguments, words, monkeypatch):
    monkeypatch.chdir(folder)
    data = [] if "data.csv" in arguments[-1] and len(arguments) == 3 else ["data.csv"]
    before = (folder / "data.csv").read_bytes()
    assert words in run("predict", "one", *data, *arguments, code=2).stderr
    assert (folder / "data.csv").read_bytes() == before


def test_no_output_replaces_the_model(folder, tmp_path):
    model = tmp_path / "m.parquet"
    model.write_bytes((folder / "one").read_bytes())
    for command in (
        ["predict", model, "-o", model],
        ["explain", model, "good", "--html", model],
        ["explain", model, "good", "--plot", model],
        ["test", model, folder / "data.csv", "--plot", model],
        ["words", model, folder / "data.csv", "--plot", model],
    ):
        assert "is also an input of this command" in run(*command, code=2, input="x\n").stderr
    assert TextClassifier.load(model).predict(["good"])[0] == "+"


def test_readers_keep_columns_of_several_files(tmp_path):
    (tmp_path / "a.csv").write_text("text,id\nx,1\n")
    (tmp_path / "b.csv").write_text("id,text\n2,y\n")
    found = read_texts([tmp_path / "a.csv", tmp_path / "b.csv"], keep=["id"])
    assert found.kept.to_pydict() == {"id": ["1", "2"]}
    assert read_texts(tmp_path / "a.csv").kept is None
    (tmp_path / "c.csv").write_text("text,,note,note\nx,1,2,3\n")
    names = read_texts(tmp_path / "c.csv", keep=True, header=True).kept.column_names
    assert names == ["text", "column 2", "note", "note (column 4)"]
    (tmp_path / "d.csv").write_text("1,some words\n2,others\n" * 20)
    assert read_texts(tmp_path / "d.csv", keep=True).kept.column_names == ["column 1", "column 2"]


# --- explanations -------------------------------------------------------------------------------


def test_explain_a_chosen_class(folder, tmp_path):
    shown = run("explain", folder / "one", "good", "--class", "-", "--html", tmp_path / "e.html")
    assert "for -" in shown.stdout
    assert "<title>Why -?</title>" in (tmp_path / "e.html").read_text()
    number = json.loads(run("explain", folder / "numbers", "good", "--class", "2", "--json").stdout)
    assert number["class"] == 2
    assert number["predicted"] == 1
    wrong = run("explain", folder / "one", "good", "--class", "x", code=2)
    assert "found 'x', but the classes of the model are +, -, ?" in wrong.stderr


def test_explain_a_file(folder, tmp_path):
    out, page = tmp_path / "why.jsonl", tmp_path / "why.html"
    asked = ("explain", folder / "one", "--file", folder / "data.csv", "--text", "text")
    skip = (*asked, "--on-error", "skip")
    told = run(*skip, "-o", out, "--html", page)
    assert told.stdout == ""
    assert "text = column 'text'" in told.stderr
    assert f"Wrote {out}." in told.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4]
    assert lines[1] == {"row": 2, "problem": "this row could not be read"}
    clf = TextClassifier.load(folder / "one")
    assert lines[2] == {"row": 3, **json.loads(json.dumps(clf.explain("bad").summary()))}
    html = page.read_text()
    assert html.count("<section>") == 4
    assert html.count("<!doctype html>") == 1
    assert "this row could not be read" in html
    short = run(*skip, "--json", "--top", "1", "--class", "?").stdout.splitlines()
    assert json.loads(short[3])["class"] == "?"
    assert len(json.loads(short[3])["ngrams"]) == 1
    full = run(*skip, "--json", "--full").stdout.splitlines()
    whole = json.loads(json.dumps(clf.explain("good").to_dict()))
    assert json.loads(full[0]) == {"row": 1, **whole}
    people = run(*skip).stdout
    assert people.count("for ") == 3
    run(*asked, "-o", tmp_path / "none.jsonl", code=1)
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give either a text or --file FILE, found neither"),
        (["good", "--file", "data.csv"], "Give either a text or --file FILE, found both"),
        (["--file", "data.csv", "--plot", "x.png"], "--plot draws one text"),
        (["good", "-o", "x.jsonl"], "--output needs --file"),
        (["good", "--full"], "--full needs --file"),
        (["good", "--text", "body"], "--text needs --file"),
        (["good", "--on-error", "skip"], "--on-error needs --file"),
        (["--file", "data.csv", "-o", "x.csv"], "ends in .jsonl or .ndjson"),
        (["--file", "data.csv", "--html", "data.csv"], "is also an input of this command"),
    ],
)
def test_explain_refuses(folder, arguments, words, monkeypatch):
    monkeypatch.chdir(folder)
    assert words in run("explain", "one", *arguments, code=2).stderr


def test_words_of_an_ensemble(tmp_path):
    TextClassifier(**SETTINGS, members=2, subwords=None).fit(["a", "b"], ["x", "y"]).save(
        tmp_path / "m"
    )
    (tmp_path / "d.txt").write_text("a b\n")
    asked = ("words", tmp_path / "m", tmp_path / "d.txt", "--min-count", "1")
    assert "The same vector in all members" in " ".join(run(*asked).stdout.split())
    found = json.loads(run(*asked, "--json").stdout)
    assert {word["text"] for word in found["most"] + found["least"]} == {"a", "b", "a b"}
    assert found["members"] == 2
    shown = run("explain", tmp_path / "m", "--file", tmp_path / "d.txt", "--json").stdout
    assert json.loads(shown)["exact"] is True
    assert "an ensemble of 2, mean of logits" in run("info", tmp_path / "m").stdout


def test_models_that_are_not_linear_get_a_sentence(tmp_path):
    model = golden.FOLDER / "members_older.safetensors"
    (tmp_path / "d.txt").write_text("w1 w2\n")
    told = run("words", model, tmp_path / "d.txt", code=1).stderr
    assert "is an ensemble that averages probabilities. hashembed explain works for" in told
    shown = run("explain", model, "--file", tmp_path / "d.txt", "--json").stdout
    assert json.loads(shown)["exact"] is False
    assert "an ensemble of 3, mean of probabilities" in run("info", model).stdout


# --- hostile labels -----------------------------------------------------------------------------


def test_labels_for_a_terminal_are_escaped(folder, tmp_path):
    data = tmp_path / "d.jsonl"
    data.write_text(json.dumps({"label": EVIL, "text": "good"}) + "\n")
    for command in (
        ["test", folder / "evil", data],
        ["compare", folder / "evil", folder / "one", data],
        ["explain", folder / "evil", "good"],
        ["words", folder / "evil", data, "--min-count", "1"],
    ):
        shown = run(*command).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "evil\\x1b[31m\\u202e" in shown
    assert json.loads(run("test", folder / "evil", data, "--json").stdout)["classes"][1]["class"]
    exact = json.loads(run("predict", folder / "evil", "--json", input="good\n").stdout)
    assert exact["label"] == EVIL


def test_predict_escapes_what_a_terminal_obeys_and_what_breaks_lines(folder, monkeypatch):
    lines = "good\nso so\n"
    into_a_file = run("predict", folder / "evil", input=lines).stdout
    assert into_a_file == f"{EVIL}\ntwo\\nlines\\tand a tab\n"
    monkeypatch.setattr("hashembed.cli.predict.is_terminal", lambda stream: True)
    on_a_terminal = run("predict", folder / "evil", input=lines).stdout
    assert on_a_terminal == "evil\\x1b[31m\\u202e\ntwo\\nlines\\tand a tab\n"


# --- closed streams -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict M", "test M -", "explain M -", "words M -"])
def test_a_closed_standard_input_gets_a_sentence(folder, command):
    closed = subprocess.run(
        [
            "bash",
            "-c",
            f"{COMMAND[0]} -c '{COMMAND[2]}' {command.replace('M', str(folder / 'one'))} <&-",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert closed.returncode == 1
    assert closed.stderr == "Error: Standard input is closed: name a file to read.\n"


@pytest.mark.parametrize(("command", "code"), [("predict M M", 1), ("explain M good", 0)])
def test_a_closed_standard_output_is_no_traceback(folder, command, code):
    closed = subprocess.run(
        [
            "bash",
            "-c",
            f"{COMMAND[0]} -c '{COMMAND[2]}' {command.replace('M', str(folder / 'one'))} >&-",
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert closed.returncode == code, closed.stderr
    assert "Traceback" not in closed.stderr
    if code:
        assert "Standard output is closed" in closed.stderr
