"""What commands write never costs anybody anything: inputs, and files of another kind."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import hashembed
from hashembed import TextClassifier
from hashembed.cli import main
from hashembed.cli.outputs import Output, check_outputs, kind_of_file
from hashembed.engine.tensor_file import kind_of

ROWS = "label,text\n" + "+,good film\n-,bad film\n" * 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data.csv").write_text(ROWS)
    (tmp_path / "notes.txt").write_text("my notes\n")
    clf = TextClassifier(passes=3, batch_size=4)
    clf.fit(["good film", "bad film"] * 9, ["+", "-"] * 9)
    clf.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("train data.csv -o data.csv", "--output"),
        ("train data.csv -o data.csv --force", "--output"),
        ("train data.csv -o ./data.csv", "--output"),
        ("train d*.csv -o data.csv", "--output"),
        ("train data.csv -o linked", "--output"),
        ("train data.csv -o hard", "--output"),
        ("train linked -o data.csv", "--output"),
        ("train data.csv --stream -o data.csv", "--output"),
        ("train data.csv -o m --validate notes.txt --plot notes.txt", "--plot"),
        ("train data.csv -o m --plot m", "--plot"),
        ("train data.csv -o m --checkpoint m", "--checkpoint"),
        ("train data.csv -o m --checkpoint data.csv", "--checkpoint"),
        ("train data.csv -o m --plot data.csv", "--plot"),
        ("explain model text --html model", "--html"),
        ("explain model text --plot model --force", "--plot"),
        ("explain model text --html x --plot x", "--plot"),
        ("test model data.csv --plot data.csv", "--plot"),
        ("test model data.csv --plot model", "--plot"),
        ("test model data.csv --plot-reliability data.csv", "--plot-reliability"),
        ("test model data.csv --plot x --plot-reliability x", "--plot-reliability"),
        ("words model data.csv --plot data.csv", "--plot"),
        ("page model -o model --force", "--output"),
        ("page model -o data.csv --test data.csv", "--output"),
        ("page model -o notes.txt --examples notes.txt", "--output"),
        ("plan --dim 8 --text data.csv --plot data.csv", "--plot"),
    ],
)
def test_an_output_is_never_an_input(folder, command, option):
    (folder / "linked").symlink_to("data.csv")
    os.link(folder / "data.csv", folder / "hard")
    before = contents(folder)
    result = run(*command.split(), code=2)
    assert option in result.stderr
    assert (
        "is also an input of this command" in result.stderr
        or "is also the file of --" in result.stderr
    )
    assert contents(folder) == before


def test_an_output_is_not_put_among_documents(folder):
    for name in ("good", "bad"):
        (folder / "docs" / name).mkdir(parents=True)
        (folder / "docs" / name / "1.txt").write_text("x")
    result = run("train", "docs", "-o", "docs/good/model", code=2)
    assert "is in docs" in result.stderr


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("train data.csv -o notes.txt", "is not a model"),
        ("train data.csv -o page.html", "is an HTML page"),
        ("train data.csv -o plot.png", "is a picture"),
        ("train data.csv -o snapshot", "is a training state"),
        ("train data.csv -o m --checkpoint model", "is a model"),
        ("train data.csv -o m --checkpoint model --force", "is a model"),
        ("train data.csv -o m --checkpoint notes.txt", "is not a training state"),
        ("explain model text --html notes.txt", "is not an HTML page"),
        ("explain model text --html other", "is a model"),
        ("explain model text --plot page.html", "is an HTML page"),
        ("page model -o notes.txt", "is not an HTML page"),
        ("page model -o other", "is a model"),
        ("plan --dim 8 --vocabulary 1k --plot notes.txt", "is not a picture"),
    ],
)
def test_a_file_of_another_kind_is_kept(folder, command, found):
    run("explain", "model", "good", "--html", "page.html", "--plot", "plot.png")
    run("train", "data.csv", "-o", "other", "--checkpoint", "snapshot", "-q")
    before = contents(folder)
    result = run(*command.split(), code=2)
    assert "already exists" in result.stderr
    assert found in result.stderr
    assert contents(folder) == before


def test_a_table_replaces_nothing_without_force(folder):
    """Answers cannot be told from data."""
    for name, found in (("data.csv", "may be data"), ("model", "is a model")):
        with pytest.raises(click.BadParameter, match=f"already exists and {found}: .*--force"):
            check_outputs([], [Output("--output", name, "table")])
        check_outputs([], [Output("--output", name, "table")], force=True)
    check_outputs([], [Output("--output", "new.csv", "table")])


def test_files_of_their_own_kind_are_replaced(folder):
    (folder / "empty").touch()
    for _ in range(2):
        run("train", "data.csv", "-o", "other", "--plot", "p.svg", "--checkpoint", "s", "-q")
        run("explain", "model", "good", "--html", "page", "--plot", "plot.pdf")
    run("train", "data.csv", "-o", "empty", "-q")
    run("train", "data.csv", "-o", "notes.txt", "--force", "-q")
    for name in ("other", "empty", "notes.txt"):
        assert kind_of(folder / name) == "TextClassifier"
    kinds = {name: kind_of_file(str(folder / name)) for name in ("p.svg", "s", "page", "plot.pdf")}
    assert kinds == {"p.svg": "picture", "s": "snapshot", "page": "page", "plot.pdf": "picture"}
    assert kind_of_file(str(folder / "data.csv")) is None
    assert kind_of_file(str(folder / "absent")) is None


@pytest.mark.parametrize("ending", ["png", "jpg", "svg", "svgz", "pdf", "eps", "ps", "tif", "webp"])
def test_pictures_are_recognised(folder, ending):
    run("explain", "model", "good", "--plot", f"plot.{ending}")
    assert kind_of_file(f"plot.{ending}") == "picture"


def test_devices_and_pipes(folder):
    null, pipe, received = folder / "null", folder / "pipe", []
    null.symlink_to("/dev/null")
    run("train", "data.csv", "-o", null, "-q")
    assert null.is_symlink()
    assert stat.S_ISCHR(os.stat(null).st_mode)
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    run("train", "data.csv", "-o", pipe, "-q")
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (folder / "received").write_bytes(received[0])
    assert TextClassifier.load(folder / "received").classes_.tolist() == ["+", "-"]
    assert "is a folder" in run("train", "data.csv", "-o", "m", "--checkpoint", ".", code=2).stderr


def command(text):
    """As a shell runs it."""
    line = text.replace("hashembed", f"{sys.executable} -m hashembed")
    source = {"PYTHONPATH": str(Path(hashembed.__file__).parent.parent)}
    return subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **source},
    )


def test_standard_output_is_not_an_input(folder):
    done = command("hashembed predict model notes.txt >> notes.txt")
    assert done.returncode == 2
    assert "Standard output goes to notes.txt" in done.stderr
    assert Path("notes.txt").read_text() == "my notes\n"


@pytest.mark.parametrize(
    "line",
    [
        "hashembed info model >&-",
        "hashembed info model 2>&-",
        "hashembed info model <&- >&- 2>&-",
        "hashembed test model data.csv >&-",
        "hashembed predict model <&-",
        "hashembed explain model good >&- 2>&-",
    ],
)
def test_closed_streams(folder, line):
    before = contents(folder)
    done = command(line)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert contents(folder) == before


def test_a_full_disk_behind_standard_output(folder):
    done = command("hashembed info model > /dev/full")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_labels_are_printed_without_obeying_them(folder):
    labels = ["\x1b[31mred", "two\nlines", "\u202egnisrever"]
    clf = TextClassifier(passes=1).fit(["a b", "c d", "e f"] * 5, labels * 5)
    clf.save(folder / "odd")
    out = run("info", "odd").output
    assert not {"\x1b", "\u202e"} & set(out)
    assert r"\x1b[31mred, two\nlines, \u202egnisrever" in out
