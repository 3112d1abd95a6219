"""The commands tell what was tried, and how to train the same model again without a search."""

import json
import random
import re
import weakref

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from hashembed import TextClassifier
from hashembed.cli import main
from hashembed.cli.demo_task import read_sentences
from hashembed.engine.tensor_file import load_tensors, save_tensors

KIND = "TextClassifier"
REPEAT = "The same without a search: "


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    table = read_sentences()
    rows = list(zip(table["language"].to_pylist(), table["text"].to_pylist(), strict=True))
    random.Random(0).shuffle(rows)
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    lines = (json.dumps({"label": label, "text": text}) for label, text in rows[:200])
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(data):
    """The model file, and what was said."""
    model = data.parent / "model"
    return model, run("train", data, "-o", model).stderr


def same_tensors(one, other):
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_the_printed_options_repeat_the_model(data, trained, tmp_path):
    model, said = trained
    (line,) = [line for line in said.splitlines() if line.startswith(REPEAT)]
    options = line.removeprefix(REPEAT).split()
    result = run("train", data, "-o", tmp_path / "again", *options)
    assert REPEAT not in result.stderr
    assert same_tensors(model, tmp_path / "again")
    assert TextClassifier.load(tmp_path / "again").search_ is None


@pytest.mark.parametrize(
    "options",
    [
        ["--validation-fraction", "0.2", "--patience", "1"],
        ["--effort", "best", "--members", "2", "--metric", "f1", "--seed", "4"],
        ["--time-limit", "0.2", "--subwords", "none"],
    ],
    ids=" ".join,
)
def test_other_options_are_repeated_too(data, tmp_path, options):
    said = run("train", data, "-o", tmp_path / "first", *options).stderr
    repeat = re.search(f"{REPEAT}(.*)\n", said)[1].split()
    merged = (
        [*options[: options.index("--members")], *options[4:]] if "--members" in options else []
    )
    run("train", data, "-o", tmp_path / "again", *(merged or options), *repeat)
    assert same_tensors(tmp_path / "first", tmp_path / "again")


def test_the_command_chooses_as_python_does(data, trained):
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    clf = TextClassifier().fit([row["text"] for row in rows], [row["label"] for row in rows])
    assert TextClassifier.load(trained[0]).search_ == clf.search_


def test_what_was_tried_is_printed(trained):
    model, said = trained
    search = TextClassifier.load(model).search_
    assert str(search) in said
    assert said.count("\ntrial ") + said.startswith("trial ") == len(search.trials)
    for number, trial in enumerate(search.trials, 1):
        loss = min(score.loss for score in trial.scores)
        assert re.search(f"trial {number}: words .* {trial.texts:,} texts: .* {loss:.4f}\n", said)


def test_quiet_says_nothing(data, tmp_path):
    result = run("train", data, "-o", tmp_path / "model", "--quiet")
    assert result.output == ""
    assert TextClassifier.load(tmp_path / "model").search_ is not None


def test_json(data, trained, tmp_path):
    search = TextClassifier.load(trained[0]).search_
    found = json.loads(run("train", data, "-o", tmp_path / "m", "--json", "-q").stdout)
    assert found["search"] == json.loads(json.dumps(search.to_dict()))
    fast = run("train", data, "-o", tmp_path / "fast", "--json", "-q", "--effort", "fast")
    assert json.loads(fast.stdout)["search"] is None


def test_info(data, trained, tmp_path):
    model, _ = trained
    search = TextClassifier.load(model).search_
    told = run("info", model).stdout.splitlines()
    assert f"chosen      by accuracy, from {len(search.trials)} trials" in told
    assert f"the same    {search.chosen.command()}" in told
    found = json.loads(run("info", model, "--json").stdout)
    assert found["meta"]["search"] == json.loads(json.dumps(search.to_dict()))
    run("train", data, "-o", tmp_path / "fast", "--effort", "fast")
    assert "chosen " not in run("info", tmp_path / "fast").stdout


def test_info_of_older_and_of_damaged_files(trained, tmp_path):
    tensors, meta = load_tensors(trained[0], KIND)
    saved = meta.pop("search")
    save_tensors(tmp_path / "old", KIND, tensors, meta)
    assert "chosen " not in run("info", tmp_path / "old").stdout
    for damaged in (7, {**saved, "best": [0]}, {**saved, "metric": "\x1b[31m"}):
        save_tensors(tmp_path / "mutant", KIND, tensors, {**meta, "search": damaged})
        for command in (
            ["info", tmp_path / "mutant"],
            ["predict", tmp_path / "mutant", trained[0]],
        ):
            said = run(*command, code=1).stderr
            assert "mutant cannot be understood" in said
            assert "\x1b" not in said


def test_a_picture_of_the_search(data, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "tried.png"
    said = run("train", data, "-o", tmp_path / "m", "--plot-search", picture).stderr
    assert f"Wrote {picture}." in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    options = ["--plot-search", tmp_path / "none.png", "--effort", "fast"]
    said = run("train", data, "-o", tmp_path / "m", *options).stderr
    assert "Drew no search: nothing was tried." in said
    assert not (tmp_path / "none.png").exists()
    said = run(
        "train", data, "-o", tmp_path / "m", "--plot-search", tmp_path / "x.y", code=2
    ).stderr
    assert "Invalid value for --plot-search" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--effort", "much"], "'much' is not one of 'fast', 'normal', 'best'"),
        (["--metric", "auc"], "'auc' is not one of 'accuracy', 'f1', 'average_precision'"),
        (["--time-limit", "0"], "0.0 is not in the range x>0"),
        (["--ngrams", "foo"], "found 'foo'"),
        (["--ngrams", "none"], "found 'none'"),
        (["--effort", "best", "--time-limit", "3"], "Give either --effort or --time-limit"),
        (["--stream", "--effort", "best"], "--effort cannot be used with --stream"),
        (["--stream", "--metric", "f1"], "--metric cannot be used with --stream"),
        (["--stream", "--time-limit", "3"], "--time-limit cannot be used with --stream"),
        (["--stream", "--plot-search", "p.png"], "--plot-search cannot be used with --stream"),
        (["--cache-dir", "c", "--effort", "best"], "--effort cannot be used with --cache-dir"),
        (["--cache-dir", "c", "--metric", "f1"], "--metric cannot be used with --cache-dir"),
    ],
    ids=str,
)
def test_wrong_options(data, tmp_path, options, said):
    assert said in run("train", data, "-o", tmp_path / "m", *options, code=2).stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--time-limit", "nan"], "--time-limit must be a number of seconds above 0, found nan"),
        (["--time-limit", "3", "--checkpoint", "c"], "--time-limit 3.0 and --checkpoint exclude"),
        (["--learning-rate", "0"], "--learning-rate must be above 0, found 0.0"),
    ],
    ids=str,
)
def test_wrong_values(data, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    result = run("train", data, "-o", tmp_path / "m", *options, code=1)
    assert said in result.stderr
    assert "trial 1" not in result.stderr
    assert not (tmp_path / "m").exists()


def test_keys_on_disk_follow_rules(data, tmp_path):
    run("train", data, "-o", tmp_path / "m", "--cache-dir", tmp_path / "keys")
    run("train", data, "-o", tmp_path / "fast", "--effort", "fast")
    assert TextClassifier.load(tmp_path / "m").search_ is None
    assert same_tensors(tmp_path / "m", tmp_path / "fast")


def test_the_text_is_freed_before_training(data, tmp_path, monkeypatch):
    """A race needs the text, too, but lets go of it."""
    from hashembed import readers
    from hashembed.classify import training

    read, fit, refs, alive = readers.read, training.fit, [], []

    def watched_read(*arguments, **options):
        found = read(*arguments, **options)
        refs.append(weakref.ref(found.texts))
        return found

    def watched_fit(*arguments, **options):
        alive.append(refs[0]() is not None)
        return fit(*arguments, **options)

    monkeypatch.setattr(readers, "read", watched_read)
    monkeypatch.setattr(training, "fit", watched_fit)
    said = run("train", data, "-o", tmp_path / "model").stderr
    assert REPEAT in said
    assert alive == [False]
