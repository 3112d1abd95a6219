"""Commands with a model on the hub, and model cards."""

import csv
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import main

TEXTS, LABELS = ["a good film", "a bad film", "good", "bad"] * 10, ["+", "-"] * 20


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli-hub")
    for name, labels in (("model", LABELS), ("other", ["yes", "no"] * 20)):
        clf = TextClassifier(num_embeddings=40, num_buckets=10, embedding_dim=4, effort="fast")
        clf.fit(TEXTS, labels).save(path / name)
    with open(path / "test.csv", "w", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *zip(LABELS, TEXTS, strict=True)])
    return path


@pytest.fixture
def hub(monkeypatch, tmp_path, folder):
    pytest.importorskip("huggingface_hub")
    from tests.cases.hub_server import local_hub

    with local_hub(monkeypatch, tmp_path) as server:
        server.repositories["owner/name"] = {
            "main": {"model.safetensors": (folder / "model").read_bytes()},
            "v1": {"model.safetensors": (folder / "other").read_bytes()},
        }
        yield server


# Commands -> what they print for the model on the hub.
COMMANDS = {
    "predict {}": "+",
    "test {} test.csv --quiet": "accuracy 1.0000",
    "explain {} good": "good",
    "words {} test.csv --quiet": "n-grams",
    "info {}": "2: +, -",
    "compare {0} {0}@main test.csv --quiet": "accuracy",
    "card {}": "library_name: hashembed",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_name(command, hub, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(*command.format("hub:owner/name").split(), input="a good film\n")
    assert COMMANDS[command] in result.stdout
    assert result.stderr == ""
    if command.startswith(("predict", "explain", "words", "test")):
        assert result.stdout == run(*command.format("model").split(), input="a good film\n").stdout


def test_a_revision(hub):
    assert run("predict", "hub:owner/name@v1", input="good\n").stdout == "yes\n"
    assert run("predict", "hub:owner/name@main", input="good\n").stdout == "+\n"


def test_comparisons_name_models_as_they_were_given(hub, folder):
    models = ("hub:owner/name", folder / "model")
    shown = run("compare", *models, folder / "test.csv", "--quiet").stdout
    assert shown.split()[:2] == ["hub:owner/name", "model"]
    models = ("hub:owner/name", "hub:owner/name@main")
    shown = run("compare", *models, folder / "test.csv", "--quiet").stdout
    assert shown.split()[:2] == [*models]
    found = json.loads(run("compare", *models, folder / "test.csv", "--json", "--quiet").stdout)
    assert found["models"] == [*models]


def test_errors_are_one_sentence(hub):
    for name, message in {
        "hub:owner/nothing": "has no such model",
        "hub:owner/name@v9": "it has no revision v9",
        "hub:a/b/c": "is neither a folder nor a name on the hub",
    }.items():
        result = run("predict", name, code=1, input="good\n")
        assert result.stderr.startswith("Error: cannot download ")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""
    for name in ("hub:", "hub:owner/name@", "hub:@v1"):
        message = run("info", name, code=2).stderr
        assert f"found {name}, expected hub:owner/name or hub:owner/name@revision" in message


def test_wrong_usage_is_found_before_a_download(hub):
    run("predict", "hub:owner/name", "--no-such-option", code=2)
    assert "Examples" in run("predict", "hub:owner/name", "--help").stdout
    assert hub.requests == []


def test_damaged_models_are_refused(hub):
    hub.repositories["owner/name"]["main"]["model.safetensors"] = b"<html>"
    result = run("predict", "hub:owner/name", code=1, input="good\n")
    assert "is damaged or not a safetensors file" in result.stderr


def test_a_process_reads_hf_endpoint(hub, tmp_path):
    """The whole way, with nothing patched."""
    order = [sys.executable, "-m", "hashembed", "predict", "hub:owner/name"]
    here = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path), "HF_TOKEN_PATH": "none"}
    for extra, code in (({}, 0), ({"HF_HUB_OFFLINE": "1"}, 0), ({"HF_HOME": "none"}, 1)):
        env = {**os.environ, **here, **({**extra, "HF_HUB_OFFLINE": "1"} if code else extra)}
        done = subprocess.run(
            order, env=env, cwd=tmp_path, input="good\nbad\n", capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        if code:
            assert "it is not on this machine, and downloads are switched off" in done.stderr
        else:
            assert (done.stdout, done.stderr) == ("+\n-\n", "")
    assert hub.asked_for("GET").count("/owner/name/resolve/main/model.safetensors") == 1


# --- card --------------------------------------------------------------------------------------


def test_a_card_with_an_evaluation(folder, tmp_path):
    out = tmp_path / "README.md"
    options = ("--license", "mit", "--language", "en", "--language", "de", "--dataset", "films")
    result = run(
        *("card", folder / "model", "--test", folder / "test.csv", "-o", out, *options),
        *("--name", "owner/name", "--description", "For films."),
    )
    assert f"Wrote {out}" in result.stderr
    assert result.stdout == ""
    card = out.read_text()
    for line in (
        'license: "mit"',
        '- "de"',
        "| accuracy | 1.0000 |",
        "hub:owner/name",
        "For films.",
    ):
        assert line in card
    again = run(
        *("card", folder / "model", "--test", folder / "test.csv", "--quiet", *options),
        *("--name", "owner/name", "--description", "For films."),
    )
    assert again.stdout == card
    assert again.stderr == ""


def test_a_card_of_somebody_is_not_replaced(folder, tmp_path):
    out = tmp_path / "README.md"
    out.write_text("my own")
    message = run("card", folder / "model", "-o", out, code=2).stderr
    assert "already exists and may have been written by hand" in message
    assert out.read_text() == "my own"
    run("card", folder / "model", "-o", out, "--force")
    assert out.read_text().startswith("---\nlibrary_name: hashembed\n")
    assert "is also an input" in run("card", out, "-o", out, "--force", code=2).stderr


def test_files_that_are_no_model(folder, tmp_path):
    assert "not a safetensors file" in run("card", folder / "test.csv", code=1).stderr
    from hashembed.engine.tensor_file import save_tensors

    save_tensors(tmp_path / "x", "TextClassifier", {}, {"classes": json.loads("5")})
    assert "cannot be understood" in run("card", tmp_path / "x", code=1).stderr
    save_tensors(tmp_path / "y", "Snapshot", {}, {})
    refused = run("card", tmp_path / "y", code=1).stderr
    assert "holds a training state, not a text classifier" in refused
