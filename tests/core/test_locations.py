"""Files by path and by URI: local ones, and those of a real S3 server."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.cases.s3_server import BUCKET, s3_server

from hashembed import TextClassifier
from hashembed.core import locations
from hashembed.core.locations import (
    delete_folder,
    delete_location,
    exists,
    is_uri,
    join_location,
    list_files,
    local_copy,
    read_location,
    size_of,
    write_location,
)
from hashembed.readers import DataError, read, read_texts

ROWS = b"label,text\na,good film\nb,bad film\n"


@pytest.fixture(scope="module")
def server():
    with s3_server() as found:
        yield found


@pytest.fixture(params=["path", "file", "s3"])
def folder(request, tmp_path):
    """An empty folder: a path, the same as a URI, and one of S3."""
    if request.param == "s3":
        request.getfixturevalue("server")
        return f"s3://{BUCKET}/{tmp_path.name}"
    return str(tmp_path) if request.param == "path" else f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("s3://b/x", True),
        ("file:///x", True),
        ("gs://b", True),
        ("C:\\x", False),
        ("C://x", False),
        ("/a/b", False),
        ("hub:a/b", False),
        ("a://b", False),
        (None, False),
    ],
)
def test_what_a_uri_is(path, found):
    assert is_uri(path) is found


def test_a_file_is_written_whole(folder):
    place = join_location(folder, "sub", "a.bin")
    assert not exists(place)
    delete_location(place)  # nothing to do
    for data in (b"first", b"", b"x" * 6_000_000):
        write_location(place, data)
        assert read_location(place) == data
        assert size_of(place) == len(data)
    if is_uri(folder):
        assert list_files(folder) == [place]
    delete_location(place)
    assert not exists(place)
    write_location(place, b"again")
    for _ in range(2):  # the second time there is nothing to do
        delete_folder(join_location(folder, "sub"))
        assert not exists(place)


def test_a_copy_on_this_machine(folder):
    place = join_location(folder, "a.bin")
    with local_copy(place, read=False) as file, open(file, "wb") as out:
        out.write(b"content")
    assert read_location(place) == b"content"
    with local_copy(place) as file, open(file, "rb") as source:
        assert source.read() == b"content"
    if is_uri(folder):
        assert not os.path.exists(file)  # it was temporary

    def spoil():
        with local_copy(place, read=False) as file, open(file, "wb") as out:
            out.write(b"half")
            raise RuntimeError("no more")

    if is_uri(folder):
        with pytest.raises(RuntimeError, match="no more"):
            spoil()
        assert read_location(place) == b"content"


def test_an_upload_that_fails_leaves_nothing(monkeypatch, tmp_path):
    place = f"file://{tmp_path}/a.bin"

    def fail(system, path, data):
        with system.open_output_stream(path) as stream:
            stream.write(data[:3])
        raise OSError("the disk is full")

    monkeypatch.setattr(locations, "_write", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_location(place, b"content")
    assert list(tmp_path.iterdir()) == []


def test_readers_take_uris(server, tmp_path):
    base = f"s3://{BUCKET}/readers"
    for name in ("a.csv", "deep/b.csv", "_SUCCESS", "deep/.hidden"):
        write_location(f"{base}/{name}", ROWS)
    table = pa.table({"label": ["a", "b"], "text": ["one", "two"]})
    pa.parquet.write_table(table, tmp_path / "c.parquet")
    write_location(f"s3://{BUCKET}/parquet/c.parquet", (tmp_path / "c.parquet").read_bytes())
    assert read(base).report.files == [f"{base}/a.csv", f"{base}/deep/b.csv"]
    assert len(read(f"{base}/*.csv")) == 2
    assert len(read(f"{base}/**/*.csv")) == 4
    settings = "?region=us-east-1&allow_bucket_creation=true"
    assert len(read(f"{base}/*.csv{settings}")) == 2
    assert read(f"{base}/deep{settings}").report.files == [f"{base}/deep/b.csv{settings}"]
    assert read(f"s3://{BUCKET}/parquet").texts.to_pylist() == ["one", "two"]
    assert len(read_texts(f"{base}/a.csv", text="text")) == 2


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (f"s3://{BUCKET}/none.csv", "s3://bucket/none.csv: cannot be read: no such file"),
        ("s3://nobody/none.csv", "s3://nobody/none.csv: cannot be read: no such file"),
        (f"s3://{BUCKET}/none*", r"s3://bucket/none\*: no file matches this pattern"),
        ("strange://x/y", "strange://x/y: cannot be reached: "),
        ("strange://x/*", r"strange://x/\*: cannot be reached: "),
    ],
)
def test_what_cannot_be_read(server, uri, words):
    with pytest.raises(DataError, match=words):
        read(uri)


def test_models_and_states(server):
    base = f"s3://{BUCKET}/models"
    texts, labels = ["good film", "bad film"] * 40, ["+", "-"] * 40
    state = f"{base}/state.safetensors"
    clf = TextClassifier(effort="fast", passes=2).fit(texts, labels, checkpoint=state)
    assert exists(state)
    clf.save(f"{base}/model.safetensors")
    again = TextClassifier.load(f"{base}/model.safetensors")
    assert again.predict(texts[:2]).tolist() == ["+", "-"]
    resumed = TextClassifier(effort="fast", passes=2).fit(texts, labels, checkpoint=state)
    for name, array in clf.model_.state().items():
        assert np.array_equal(array, resumed.model_.state()[name])


@pytest.mark.slow  # the client tries again for some seconds
def test_a_server_that_is_gone():
    with s3_server() as server:
        write_location(f"s3://{BUCKET}/a.csv", ROWS)
        server.stop()
        with pytest.raises(OSError, match=r"bucket/b\.csv"):
            write_location(f"s3://{BUCKET}/b.csv", ROWS)
