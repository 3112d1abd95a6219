"""The commands around a classifier, as people and scripts use them."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import demo_task as demo
from hashembed.cli import main


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exit_code == code, result.output
    return result


def columns_of(path):
    with open(path, encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [r["text"] for r in rows], [r["language"] for r in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.csv and test.csv of six languages, and a model."""
    path = tmp_path_factory.mktemp("cli")
    table = demo.read_sentences().to_pylist()
    chosen = sorted({row["language"] for row in table})[:6]
    for split in ("train", "test"):
        rows = [r for r in table if r["split"] == split and r["language"] in chosen]
        order = np.random.default_rng(0).permutation(len(rows))
        with open(path / f"{split}.csv", "w", newline="", encoding="utf8") as file:
            writer = csv.writer(file)
            writer.writerow(["language", "text"])
            writer.writerows([rows[i]["language"], rows[i]["text"]] for i in order)
    run("train", path / "train.csv", "-o", path / "m", *SETTINGS, "--quiet")
    return path


SETTINGS = ("--ngrams", "1", "--subwords", "2-3", "--batch-size", "32", "--effort", "fast")


def test_train_says_what_it_read_and_made(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    result = run("train", folder / "train.csv", "-o", model, *SETTINGS)
    assert "read 2,400 rows from 1 file (CSV), label = column 'language'" in result.stderr
    assert "6 classes" in result.stderr
    assert "pass 1/1: 2,400 of 2,400 texts" in result.stderr
    assert f"Wrote {model}" in result.stderr
    assert result.stdout == ""
    quiet = run("train", folder / "train.csv", "-o", model, *SETTINGS, "--quiet")
    assert quiet.output == ""


def test_train_is_the_classifier_in_python(folder, tmp_path):
    texts, labels = columns_of(folder / "train.csv")
    clf = TextClassifier(ngrams=(1, 1), subwords=(2, 3), batch_size=32, effort="fast")
    clf.fit(texts, labels)
    clf.save(tmp_path / "python")
    want = TextClassifier.load(tmp_path / "python").predict_proba(texts[:50])
    got = TextClassifier.load(folder / "m").predict_proba(texts[:50])
    assert np.array_equal(want, got)


@pytest.mark.parametrize("extra", [(), ("--cache-dir", "cache")])
def test_train_in_json_with_validation(folder, tmp_path, extra, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(
        *("train", folder / "train.csv", "-o", "m", *SETTINGS, *extra, "--json", "--quiet"),
        *("--validate", folder / "test.csv", "--passes", "3", "--patience", "1"),
        *("--plot", "history.png", "--balanced"),
    )
    found = json.loads(result.stdout)
    assert found["data"]["rows"] == 2400
    assert found["training"]["texts"] == 2400
    assert found["history"]["epochs"][0]["validation_accuracy"] > 0.9
    assert found["model"]["bytes"] == Path("m").stat().st_size
    assert Path("history.png").stat().st_size > 1000


def test_test_counts(folder, tmp_path):
    result = run("test", folder / "m", folder / "test.csv", "--plot", tmp_path / "c.png")
    assert "precision" in result.stdout
    assert "truth \\ answer" in result.stdout
    assert (tmp_path / "c.png").exists()
    found = json.loads(run("test", folder / "m", folder / "test.csv", "--json", "-q").stdout)
    assert found["accuracy"] > 0.95
    assert found["texts"] == 600
    assert len(found["classes"]) == 6
    (tmp_path / "other.csv").write_text("language,text\nKlingon,nuqneH\nKlingon,Qapla\n")
    odd = run("test", folder / "m", tmp_path / "other.csv")
    assert "The model does not know these labels, so it is wrong about them: Klingon" in odd.stdout


def test_test_judges_probabilities(folder, tmp_path):
    command = ("test", folder / "m", folder / "test.csv")
    picture = tmp_path / "r.png"
    result = run(*command, "--plot-reliability", picture, "--plot", tmp_path / "c.png")
    assert re.search(
        r"^log loss 0\.\d{4}   average precision 0\.9\d{3}   calibration error 0\.\d{4}\naccuracy",
        result.stdout,
        re.M,
    )
    assert f"Wrote {picture}." in result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.read_bytes() != (tmp_path / "c.png").read_bytes()
    found = json.loads(run(*command, "--json", "-q").stdout)
    assert 0 < found["log_loss"] < 0.5
    assert 0.9 < found["macro_average_precision"] < 1
    assert 0 < found["calibration_error"] < 0.3
    assert all(0.9 < row["average_precision"] <= 1 for row in found["classes"])
    assert sum(row["answers"] for row in found["reliability"]) == 600
    assert len(found["reliability"]) == 15
    same = run(
        *command, "--plot-reliability", tmp_path / "x.png", "--plot", tmp_path / "x.png", code=2
    )
    assert "is also the file of --plot" in same.stderr
    odd = run(*command, "--plot-reliability", tmp_path / "r.odd", code=2).stderr
    assert "Invalid value for --plot-reliability" in odd


def test_predict_answers_each_line(folder):
    model, n = folder / "m", "\n"
    lines = ["Где вокзал?", "", "   ", "Wo ist der Bahnhof?"]
    answers = run("predict", model, input=n.join(lines)).stdout.splitlines()
    assert len(answers) == 4
    assert answers[1] == answers[2]
    detailed = run("predict", model, "--top", "3", input="x\n").stdout.strip().split("\t")
    assert len(detailed) == 6
    likely = [float(p) for p in detailed[1::2]]
    assert likely == sorted(likely, reverse=True)
    found = json.loads(run("predict", model, "--json", input="x\n").stdout)
    assert set(found) == {"label", "probabilities"}
    assert run("predict", model, input="").stdout == ""
    whole = run("predict", model, folder / "test.csv").stdout.splitlines()
    assert len(whole) == 600
    assert run("predict", model, "-p", input="a\n").stdout.count("\t") == 1


def test_several_labels_from_a_file(tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("__label__a __label__b x y\n__label__a x\n__label__b y\n" * 20)
    run("train", data, "-o", tmp_path / "m", "--passes", "8", "--batch-size", "4", "-q")
    both, one = run("predict", tmp_path / "m", input="x y\nx\n").stdout.splitlines()
    assert sorted(both.split("\t")) == ["a", "b"]  # the likelier first
    assert one == "a"
    found = json.loads(run("test", tmp_path / "m", data, "--json", "-q").stdout)
    assert found["accuracy"] == 1
    assert found["confusion"] is None
    assert json.loads(run("predict", tmp_path / "m", "--json", input="y\n").stdout)["labels"] == [
        "b"
    ]


def test_numbers_as_labels(tmp_path):
    TextClassifier(passes=5, batch_size=2).fit(["good", "bad"] * 5, [1, 0] * 5).save(tmp_path / "m")
    (tmp_path / "d.csv").write_text("label,text\n1,good\n0,bad\n")
    assert (
        json.loads(run("test", tmp_path / "m", tmp_path / "d.csv", "--json", "-q").stdout)[
            "accuracy"
        ]
        == 1
    )
    (tmp_path / "d.csv").write_text("label,text\n7,good\n")
    result = run("test", tmp_path / "m", tmp_path / "d.csv", "-q", code=1)
    assert (
        "found the label '7', which is no class of the model (whole numbers, such as 0)"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("labels", "spelled"),
    [
        ([True, False], ["true", "False"]),
        ([1.0, 0.0], ["1", "0.0"]),
        ([[3], [17]], ["3", "17"]),
        (np.eye(2, dtype=int), ["0", "1"]),
    ],
)
def test_labels_of_a_file_are_the_classes_they_look_like(tmp_path, labels, spelled):
    texts = ["good", "bad"]
    TextClassifier(passes=20, batch_size=2).fit(texts, labels).save(tmp_path / "m")
    (tmp_path / "d.csv").write_text(f"label,text\n{spelled[0]},good\n{spelled[1]},bad\n")
    found = run("test", tmp_path / "m", tmp_path / "d.csv", "--json", "-q").stdout
    assert json.loads(found)["accuracy"] == 1


def test_test_with_a_threshold(folder, tmp_path):
    best = json.loads(run("test", folder / "m", folder / "test.csv", "--json", "--top", 2).stdout)
    usual = json.loads(run("test", folder / "m", folder / "test.csv", "--json").stdout)
    assert best["accuracy"] == best["micro_recall"] > usual["accuracy"] > 0.9
    assert best["micro_precision"] == pytest.approx(best["accuracy"] / 2)
    sure = run("test", folder / "m", folder / "test.csv", "--threshold", 0.9).stdout
    assert re.search(
        r"answers above 0.9: precision (0\.9\d+|1\.0000)   recall 0\.\d+   \d+ texts", sure
    )
    (tmp_path / "two.txt").write_text("__label__German __label__Dutch ja\n")
    several = run("test", folder / "m", tmp_path / "two.txt", code=1).stderr
    assert "text 1 has 'German' and 'Dutch'" in several
    assert "give one label for each text, or train a model on texts with several" in several


def test_explain(folder, tmp_path):
    result = run("explain", folder / "m", "Wo ist der Bahnhof?", "--html", tmp_path / "e.html")
    assert "Bahnhof" in result.stdout
    page = (tmp_path / "e.html").read_text(encoding="utf8")
    assert page.startswith('<!doctype html>\n<html lang="en">\n<meta charset="utf-8">')
    assert f"<title>Why {result.stdout.split()[0]}?</title>" in page
    assert ">Bahnhof<" in page
    found = json.loads(run("explain", folder / "m", "-", "--json", input="Wo ist").stdout)
    assert found["text"] == "Wo ist"
    total = np.array(found["bias"]) + np.sum([n["contributions"] for n in found["ngrams"]], axis=0)
    np.testing.assert_allclose(total, found["logits"], atol=1e-5)
    assert "This text has no n-grams" in run("explain", folder / "m", "!?").stdout
    run("explain", folder / "m", "Wo ist", "--plot", tmp_path / "e.svg")
    assert (tmp_path / "e.svg").exists()


def test_an_explained_text_without_words_has_the_prior():
    clf = TextClassifier(batch_size=4).fit(["a", "b", "c", "d"], ["x", "x", "x", "y"])
    np.testing.assert_allclose(clf.explain("").probabilities, [0.75, 0.25], rtol=1e-6)
    with pytest.raises(TypeError, match="one text, a str, found list"):
        clf.explain(["a"])


def test_words(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # no head is broken into two lines
    result = run("words", folder / "m", folder / "train.csv", "--top", "3", "--min-count", "5")
    assert "most important" in result.stdout
    found = json.loads(
        run("words", folder / "m", folder / "train.csv", "--top", "3", "--json").stdout
    )
    assert len(found["most"]) == len(found["least"]) == 3


def test_a_model_of_fewer_bits(folder, tmp_path):
    path = tmp_path / "small"
    run("train", folder / "train.csv", "-o", path, *SETTINGS, "--bits", "4", "--quiet")
    assert path.stat().st_size < 0.6 * (folder / "m").stat().st_size
    told = run("info", path).stdout
    assert "parameters, in 4 bits" in told
    parameters = re.search(r"([\d,]+) parameters", told)[1]
    assert f"{parameters} parameters, in 8 bits\n" in run("info", folder / "m").stdout
    refused = run("train", "--stream", folder / "train.csv", "-o", path, "--bits", "8", code=2)
    assert "--bits cannot be used with --stream" in refused.output


def test_info_reads_the_header_only(folder):
    result = run("info", folder / "m")
    assert "trained on  2,400 texts" in result.stdout
    assert "words 1-1, characters 2-3, case ignored" in result.stdout
    found = json.loads(run("info", folder / "m", "--json").stdout)
    assert found["meta"]["texts_seen"] == 2400


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["predict", "no-such-model"], 1, "no-such-model"),
        (["info", "train.csv"], 1, "is damaged or not a safetensors file"),
        (["train", "nothing.csv", "-o", "x"], 1, "nothing.csv"),
        (["train", "train.csv", "-o", "no/such/folder/x"], 2, "found no folder"),
        (["train", "train.csv", "-o", "x", "--label", "colour"], 1, "colour"),
        (
            ["train", "train.csv", "-o", "x", "--ngrams", "2-1"],
            2,
            "expected a length from 1 to 99 or a range",
        ),
        (["train", "train.csv", "-o", "x", "--resume"], 2, "--resume needs --stream"),
        (["train", "train.csv"], 2, "Missing option"),
        (["train", "train.csv", "-o", "x", "--rate", "-1"], 1, "--learning-rate must be above 0"),
    ],
)
def test_mistakes_get_a_sentence_and_a_code(folder, arguments, code, words, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(*arguments, code=code)
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_bad_rows_are_skipped_when_asked(tmp_path):
    data = tmp_path / "d.csv"
    data.write_text('label,text\na,x\nb,y\n,missing\nb,"z\n' * 1)
    result = run("train", data, "-o", tmp_path / "m", code=1)
    assert "d.csv" in result.stderr
    result = run("train", data, "-o", tmp_path / "m", "--on-error", "skip")
    assert "skipped 2 rows" in result.stderr


def test_every_command_shows_an_example():
    for name, command in main.commands.items():
        assert f"hashembed {name}" in (command.epilog or ""), name
        assert run(name, "--help").exit_code == 0
    assert "complet" in run("--help").stdout.lower()


# --- processes ---------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from hashembed.cli import main; main()"]


def test_first_answers_come_at_once(folder):
    """A line in, a line out, while the input stays open."""
    with subprocess.Popen(
        [*COMMAND, "predict", str(folder / "m")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for _ in range(3):
            process.stdin.write("Wo ist der Bahnhof?\n")
            process.stdin.flush()
            assert process.stdout.readline().strip()
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0


def test_a_broken_pipe_makes_no_noise(folder):
    command = f"yes 'Wo ist' | {sys.executable} -c 'from hashembed.cli import main; main()' predict"
    result = subprocess.run(
        ["bash", "-c", f"{command} {folder / 'm'} | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.count("\n") == 1
    assert "Error" not in result.stderr
    assert "Traceback" not in result.stderr


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_stream_resumes(folder, tmp_path):
    """kill -9 in the middle; then the same command with --resume ends with the same model."""
    lines = (folder / "train.csv").read_text(encoding="utf8").splitlines(keepends=True)
    header, rows = lines[0], lines[1:]
    data, model = tmp_path / "data.csv", tmp_path / "m"
    data.write_text(header + "".join(rows), encoding="utf8")
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    stream = ["train", "--stream", "-o", str(model), *SETTINGS, "--rows", "20k"]
    columns = ["--header", "--label", "language", "--text", "text", "--format", "csv"]
    process = subprocess.Popen(
        [*COMMAND, *stream, *columns, "--save-seconds", "0", str(pipe)], stderr=subprocess.DEVNULL
    )
    with open(pipe, "w", encoding="utf8") as file:
        file.write(header + "".join(rows[:1200]))
        file.flush()
        wait_for(model.exists)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    seen = TextClassifier.load(model).texts_seen_
    assert 0 < seen <= 1200
    result = run(*stream, *columns, "--resume", data)
    assert f"the first {seen:,} texts of the stream" in result.stderr
    resumed = TextClassifier.load(model)
    assert resumed.texts_seen_ == 2400
    assert resumed.score(*columns_of(folder / "test.csv")) > 0.9


def test_a_stream_in_json(folder, tmp_path):
    result = run(
        *("train", "--stream", folder / "train.csv", "-o", tmp_path / "m", *SETTINGS),
        *("--rows", "20k", "--json"),
    )
    found = json.loads(result.stdout)
    assert found["texts"] == 2400
    assert 0.8 < found["accuracy"] < 1
    assert "1,0" in result.stderr  # a report after about a thousand
    empty = tmp_path / "empty.csv"
    empty.write_text("label,text\n")
    result = run("train", "--stream", empty, "-o", tmp_path / "x", code=1)
    assert "found no rows with a label" in result.stderr


def test_control_c_ends_without_a_traceback(folder, tmp_path):
    with subprocess.Popen(
        [*COMMAND, "predict", str(folder / "m")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that a shell runs in the background ignore the signal, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        process.stdin.write("x\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        error = process.stderr.read()
    assert "Traceback" not in error
    assert "interrupted" in error


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path):
    result = run("train", tmp_path / "missing.csv", "-o", tmp_path / "m", "--device", "gpu", code=1)
    assert "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', found 'gpu'" in result.stderr
    assert "missing.csv" not in result.output
