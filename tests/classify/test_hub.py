"""Models on the hub: folders, downloads and uploads, against a server on this machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("huggingface_hub")

from huggingface_hub import ModelCard
from tests.cases.hub_server import COMMIT, local_hub

from hashembed import TextClassifier
from hashembed.classify.hub import HubError, HubModel
from hashembed.engine.tensor_file import ModelFileError

TEXTS, LABELS = ["a good film", "a bad film", "good", "bad"] * 10, ["+", "-"] * 20
FILES = ["README.md", "config.json", "model.safetensors"]


def small(labels=LABELS, **options):
    return TextClassifier(
        num_embeddings=40, num_buckets=10, embedding_dim=4, effort="fast", **options
    ).fit(TEXTS, labels)


@pytest.fixture(scope="module")
def classifier():
    return small()


@pytest.fixture(scope="module")
def data(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "model"
    classifier.save(path)
    return path.read_bytes()


@pytest.fixture
def hub(monkeypatch, tmp_path, data):
    with local_hub(monkeypatch, tmp_path) as server:
        server.repositories["owner/name"] = {"main": {"model.safetensors": data}}
        yield server


def same(one, other):
    return np.array_equal(one.predict_proba(TEXTS), other.predict_proba(TEXTS))


# --- folders -----------------------------------------------------------------------------------


def test_a_folder_has_three_files_and_loads(classifier, data, tmp_path):
    assert classifier.save_pretrained(tmp_path / "new" / "folder") is None
    folder = tmp_path / "new" / "folder"
    assert sorted(os.listdir(folder)) == FILES
    assert (folder / "model.safetensors").read_bytes() == data
    for path in (folder, str(folder)):
        loaded = TextClassifier.from_pretrained(path, threads=1)
        assert same(loaded, TextClassifier.load(folder / "model.safetensors"))
        assert loaded.threads == 1


def test_the_same_model_gives_the_same_bytes(classifier, tmp_path):
    given = {"license": "mit", "evaluation": classifier.evaluate(TEXTS, LABELS)}
    for name in ("a", "b"):
        classifier.save_pretrained(tmp_path / name / "model", model_card_kwargs=given)
    for name in FILES:
        one, other = (tmp_path / folder / "model" / name for folder in "ab")
        assert one.read_bytes() == other.read_bytes()


def test_the_configuration_is_readable_and_never_read(classifier, tmp_path):
    classifier.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["labels"] == ["+", "-"]
    assert config["problem_type"] == "single_label_classification"
    assert config["training_texts"] == len(TEXTS)
    assert config["parameters"] == classifier.report_.parameters
    for damage in ("{", "[[[[", '{"ngrams": "nonsense", "classifier_class": 5}'):
        (tmp_path / "config.json").write_text(damage)
        assert same(
            TextClassifier.from_pretrained(tmp_path),
            TextClassifier.load(tmp_path / "model.safetensors"),
        )
    (tmp_path / "config.json").unlink()
    TextClassifier.from_pretrained(tmp_path)


def test_labels_that_no_encoding_writes_are_valid_json(tmp_path):
    small(["ü", "日本"] * 20).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text("utf8"))["labels"] == ["ü", "日本"]
    assert "日本" in (tmp_path / "config.json").read_text("utf8")


def test_the_users_own_configuration_is_written(classifier, tmp_path):
    classifier.save_pretrained(tmp_path, config={"mine": 1})
    assert json.loads((tmp_path / "config.json").read_text()) == {"mine": 1}


def test_a_card_of_the_user_stays_unless_forced(classifier, tmp_path):
    (tmp_path / "README.md").write_text("my own")
    classifier.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own"
    classifier.save_pretrained(tmp_path, force=True)
    assert "library_name: hashembed" in (tmp_path / "README.md").read_text()


def test_options_of_save_are_passed_on(classifier, tmp_path):
    sizes = {}
    for bits in (16, 8, 4):
        classifier.save_pretrained(tmp_path / str(bits), bits=bits)
        sizes[bits] = (tmp_path / str(bits) / "model.safetensors").stat().st_size
        card = (tmp_path / str(bits) / "README.md").read_text()
        assert f"| bits of a number in the tables | {bits} |" in card
    assert sizes[16] > sizes[8] > sizes[4]
    classifier.save_pretrained(tmp_path / "t", for_training=True)
    again = TextClassifier.from_pretrained(tmp_path / "t").partial_fit(["good"], ["+"])
    assert again.texts_seen_ == len(TEXTS) + 1
    assert "| bits of a number in the tables | 32 |" in (tmp_path / "t" / "README.md").read_text()


def test_a_subclass_loads_as_itself(classifier, tmp_path):
    class Own(TextClassifier):
        pass

    classifier.save_pretrained(tmp_path)
    assert type(Own.from_pretrained(tmp_path)) is Own


def test_wrong_arguments_write_nothing(classifier, tmp_path):
    folder = tmp_path / "new"
    with pytest.raises(TypeError, match="licence"):
        classifier.save_pretrained(folder, model_card_kwargs={"licence": "mit"})
    with pytest.raises(TypeError, match="license must be a str, found int"):
        classifier.save_pretrained(folder, model_card_kwargs={"license": 5})
    with pytest.raises(TypeError, match=r"evaluation must be what TextClassifier.evaluate returns"):
        classifier.save_pretrained(folder, model_card_kwargs={"evaluation": 0.9})
    with pytest.raises(Exception, match="not fitted"):
        TextClassifier().save_pretrained(folder)
    assert not folder.exists()
    with pytest.raises(ValueError, match="bits must be 16, 8 or 4"):
        classifier.save_pretrained(folder, bits=5)
    with pytest.raises(TypeError, match="revison"):
        TextClassifier.from_pretrained(tmp_path, revison="v1")


def test_folders_and_files_that_are_no_model(tmp_path, data):
    with pytest.raises(HubError, match=r"has no file model\.safetensors"):
        TextClassifier.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(data[:-1] + b"x")
    with pytest.raises(ModelFileError, match="damaged"):
        TextClassifier.from_pretrained(tmp_path)
    with pytest.raises(HubError, match=r"is a file: load it by TextClassifier\.load"):
        TextClassifier.from_pretrained(tmp_path / "model.safetensors")


# --- downloads ---------------------------------------------------------------------------------


def test_a_model_is_loaded_by_name(hub, classifier):
    loaded = TextClassifier.from_pretrained("owner/name")
    assert loaded.predict(["good", "bad"]).tolist() == ["+", "-"]
    path = "/owner/name/resolve/main/model.safetensors"
    assert hub.asked_for("GET").count(path) == 1
    TextClassifier.from_pretrained("owner/name")  # from the cache
    assert hub.asked_for("GET").count(path) == 1
    TextClassifier.from_pretrained("owner/name", force_download=True)
    assert hub.asked_for("GET").count(path) == 2


def test_only_two_files_are_asked_for(hub):
    hub.repositories["owner/name"]["main"]["pytorch_model.bin"] = b"a pickle"
    TextClassifier.from_pretrained("owner/name")
    files = {p for _, p in hub.requests if "/resolve/" in p}
    folder = "/owner/name/resolve/main"
    assert files == {f"{folder}/model.safetensors", f"{folder}/config.json"}


def test_the_hub_counts_downloads_by_the_configuration(hub):
    """It counts every request for config.json, and only these; what it sends is not read."""
    path = "/owner/name/resolve/main/config.json"
    TextClassifier.from_pretrained("owner/name")  # has none
    assert hub.asked_for("HEAD").count(path) == 1
    hub.repositories["owner/name"]["main"]["config.json"] = b"{ no JSON"
    for times in (2, 3):
        TextClassifier.from_pretrained("owner/name")
        assert hub.asked_for("HEAD").count(path) == times
    assert hub.asked_for("GET").count(path) == 1


def test_revisions(hub, tmp_path):
    other = small(["yes", "no"] * 20)
    other.save(tmp_path / "other")
    files = {"model.safetensors": (tmp_path / "other").read_bytes()}
    hub.repositories["owner/name"]["refs/pr/1"] = files
    hub.repositories["owner/name"]["v1"] = files
    assert TextClassifier.from_pretrained("owner/name").predict(["good"]) == ["+"]
    for revision in ("v1", "refs/pr/1"):
        loaded = TextClassifier.from_pretrained("owner/name", revision=revision)
        assert loaded.predict(["good"]) == ["yes"]


def test_a_cached_model_needs_no_connection(hub, tmp_path):
    cache = tmp_path / "own cache"
    TextClassifier.from_pretrained("owner/name", cache_dir=cache)
    assert not Path(tmp_path / "cache").exists()
    hub.failures["owner/name"] = (503, None)
    TextClassifier.from_pretrained("owner/name", cache_dir=cache)
    count = len(hub.requests)
    TextClassifier.from_pretrained("owner/name", cache_dir=cache, local_files_only=True)
    assert len(hub.requests) == count


def refused(name="owner/name", **options):
    with pytest.raises(HubError) as caught:
        TextClassifier.from_pretrained(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


def test_a_missing_model(hub):
    message = refused("owner/nothing")
    assert "cannot download owner/nothing" in message
    assert "has no such model" in message
    assert "hf auth login" in message


def test_a_missing_revision(hub):
    message = refused(revision="v9")
    assert "cannot download owner/name (revision v9): it has no revision v9" in message


def test_a_model_of_something_else(hub):
    hub.repositories["owner/name"]["main"] = {"pytorch_model.bin": b"x"}
    assert "has no file model.safetensors, so it is no model of hashembed" in refused()


def test_no_permission(hub):
    hub.failures["owner/name"] = (403, "GatedRepo")
    assert "gives access on request" in refused()
    hub.failures["owner/name"] = (403, None)
    assert "gives no permission" in refused()


def test_a_hub_that_is_down(hub):
    hub.failures["owner/name"] = (503, None)
    assert "answered 503" in refused()
    assert "answered 503" in refused(force_download=True)


def test_a_server_that_is_no_hub(hub):
    hub.gives_no_metadata = True
    assert "does not answer like a hub" in refused()


def test_no_connection(hub, monkeypatch):
    from huggingface_hub import constants

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    assert f"found no connection to {address}" in refused()
    assert f"found no connection to {address}" in refused(force_download=True)


def test_downloads_that_are_switched_off(hub, monkeypatch):
    from huggingface_hub import constants

    assert "it is not on this machine, and downloads are switched" in refused(local_files_only=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "it is not on this machine, and downloads are switched off" in refused()


@pytest.mark.parametrize("name", ["a/b/c", "no such/folder", "./x", "owner/name@v1", "a--b/c"])
def test_what_is_neither_a_folder_nor_a_name(name):
    assert "is neither a folder nor a name on the hub" in refused(name)


def test_damaged_downloads_are_refused(hub, data):
    files = hub.repositories["owner/name"]["main"]
    for damage in (data[:-1] + b"x", data[:100], b"", b"<html>"):
        files["model.safetensors"] = damage
        with pytest.raises(ModelFileError, match="damaged") as caught:
            TextClassifier.from_pretrained("owner/name", force_download=True)
        assert "\n" not in str(caught.value)


# --- uploads -----------------------------------------------------------------------------------


def test_what_is_pushed_can_be_loaded(hub, classifier, tmp_path):
    given = {"license": "mit", "evaluation": classifier.evaluate(TEXTS, LABELS)}
    url = classifier.push_to_hub(
        "me/new", private=True, token="hf_none", commit_message="first", model_card_kwargs=given
    )
    assert url.endswith(f"/me/new/commit/{COMMIT}")
    assert hub.created[0]["name"] == "new"
    assert hub.created[0]["organization"] == "me"
    assert "private" in hub.created[0].values()
    assert hub.commits[0][1] == "first"
    files = hub.repositories["me/new"]["main"]
    assert sorted(files) == FILES
    assert b'TextClassifier.from_pretrained("me/new")' in files["README.md"]
    assert ModelCard(files["README.md"].decode()).data.license == "mit"
    assert same(TextClassifier.from_pretrained("me/new"), classifier_of(files, tmp_path))


def classifier_of(files, folder):
    (folder / "pushed").write_bytes(files["model.safetensors"])
    return TextClassifier.load(folder / "pushed")


def test_arguments_of_the_mixin(hub, classifier, tmp_path):
    classifier.push_to_hub(
        "me/new",
        token="hf_none",
        branch="next",
        ignore_patterns=["README.md"],
        bits=4,
    )
    assert sorted(hub.repositories["me/new"]["next"]) == ["config.json", "model.safetensors"]
    folder = tmp_path / "model"
    url = classifier.save_pretrained(
        folder, push_to_hub=True, repo_id="me/other", token="hf_none", commit_message="second"
    )
    assert url.endswith(f"/me/other/commit/{COMMIT}")
    assert hub.commits[1][1] == "second"
    classifier.push_to_hub("me/other", token="hf_none", create_pr=True)
    assert sorted(hub.repositories["me/other"]["refs/pr/1"]) == FILES
    for name in FILES:
        assert hub.repositories["me/other"]["main"][name] == (folder / name).read_bytes()
    with pytest.raises(TypeError, match="pirvate"):
        classifier.push_to_hub("me/new", pirvate=True)


def test_uploads_that_fail(hub, classifier):
    hub.failures["me/new"] = (403, None)
    with pytest.raises(HubError, match=r"cannot upload me/new: .* gives no permission"):
        classifier.push_to_hub("me/new", token="hf_none")
    hub.failures["me/new"] = (500, None)
    with pytest.raises(HubError, match=r"cannot upload me/new: .* answered 500: not yours"):
        classifier.push_to_hub("me/new", token="hf_none")
    with pytest.raises(HubError, match="neither a folder nor a name on the hub"):
        classifier.push_to_hub("a/b/c", token="hf_none")
    assert hub.commits == []


# --- the installation --------------------------------------------------------------------------


def test_it_is_the_hubs_own_mixin():
    from huggingface_hub import ModelHubMixin

    assert issubclass(HubModel, ModelHubMixin)
    assert HubModel.push_to_hub is ModelHubMixin.push_to_hub
    assert HubModel.save_pretrained is ModelHubMixin.save_pretrained


WITHOUT = """
import sys
from hashembed import TextClassifier
assert "huggingface_hub" not in sys.modules
sys.modules["huggingface_hub"] = None  # as if it were not installed
clf = TextClassifier(effort="fast").fit(["good", "bad"], ["+", "-"])
for call in (
    lambda: TextClassifier.from_pretrained("owner/name"),
    lambda: clf.save_pretrained("folder"),
    lambda: clf.push_to_hub("owner/name"),
):
    try:
        call()
    except ImportError as error:
        assert 'pip install "hashembed[hub]"' in str(error), error
    else:
        raise SystemExit("no error")
"""


def test_without_the_extra_the_error_names_the_command(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], check=True, cwd=tmp_path)
    assert os.listdir(tmp_path) == []
