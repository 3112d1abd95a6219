"""The command with --on, on a real cluster of two nodes, with files of a real S3 server."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.cases.ray_cluster import cluster_of
from tests.cases.s3_server import BUCKET, s3_server
from tests.distributed.test_two_nodes import rows

from hashembed import TextClassifier
from hashembed.core.locations import list_files, read_location, write_location
from hashembed.readers import read

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # warnings are Ray's own

BASE = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def table():
    return rows(3000)


@pytest.fixture(scope="module")
def address(table):
    with s3_server(), cluster_of(1, 1) as cluster:  # the nodes know the server
        for number in range(6):
            part = table.slice(500 * number, 500).select(["label", "text", "id"])
            sink = pa.BufferOutputStream()
            pa.csv.write_csv(part, sink)
            write_location(f"{BASE}/corpus/{number}.csv", sink.getvalue().to_pybytes())
        yield cluster.address


def run(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "hashembed", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_train_test_predict(address, table, tmp_path):
    model, storage = f"{BASE}/model.safetensors", f"{BASE}/run"
    columns = ["--label", "label", "--text", "text"]
    done = run(
        "train", f"{BASE}/corpus", *columns, "--on", address, "--storage", storage, "-o", model
    )
    assert "3,000 texts" in done.stderr
    assert f"Wrote {model}" in done.stderr
    assert list_files(storage) == [f"{storage}/model.safetensors"]
    local = str(tmp_path / "local.safetensors")
    run("train", f"{BASE}/corpus", *columns, "-o", local)
    want = TextClassifier.load(local)
    found = TextClassifier.load(model)
    for name, array in want.model_.tensors().items():
        assert array.tobytes() == found.model_.tensors()[name].tobytes()

    here = run("test", local, f"{BASE}/corpus", *columns)
    there = run("test", model, f"{BASE}/corpus", *columns, "--on", address)
    assert there.stdout == here.stdout

    out = f"{BASE}/answers"
    run("predict", model, f"{BASE}/corpus", "--text", "text", "--on", address, "-o", out, "-p")
    parts = [pa.parquet.read_table(pa.py_buffer(read_location(f))) for f in list_files(out)]
    answers = pa.concat_tables(parts)
    order = np.argsort(answers["id"].to_numpy().astype(int))  # CSV keeps numbers as text
    answers = answers.take(pa.array(order))
    assert answers.column_names == ["text", "label", "id", "prediction", "probability"]
    assert answers["prediction"].to_pylist() == want.predict(table["text"]).tolist()


def test_a_model_with_numbers_as_classes(address, table, tmp_path):
    numbers = [int(label[1:]) for label in table["label"].to_pylist()]
    clf = TextClassifier(effort="fast").fit(table["text"], numbers)
    clf.save(tmp_path / "model")
    data = pa.table({"label": numbers, "text": table["text"]})
    pa.csv.write_csv(data, tmp_path / "a.csv")
    arguments = [str(tmp_path / "model"), str(tmp_path / "a.csv"), "--text", "text"]
    here = run("test", *arguments, "--label", "label")
    there = run("test", *arguments, "--label", "label", "--on", address)
    assert there.stdout == here.stdout
    assert "does not know" not in there.stdout


def test_bad_rows_and_mistakes(address, tmp_path):
    write_location(f"{BASE}/bad/a.csv", b"label,text\na,one two\nb\nb,three\n")
    model = str(tmp_path / "model")
    storage = str(tmp_path / "storage")
    there = ["--on", address, "--storage", storage, "-o", model, "--effort", "fast"]
    done = run("train", f"{BASE}/bad", *there, code=1)
    assert done.stderr.endswith(
        "Error: s3://bucket/bad/a.csv, line 3: found 1 column, expected 2 (to skip such rows, give "
        "--on-error skip)\n"
    )
    assert "Traceback" not in done.stderr
    done = run("train", f"{BASE}/bad", *there, "--on-error", "skip")
    assert "skipped 1 row: s3://bucket/bad/a.csv, line 3" in done.stderr
    assert len(read(f"{BASE}/bad", on_error="skip")) == 2
    without = ["-o", model, "--on", address]
    done = run("train", f"{BASE}/corpus", "--label", "label", "--text", "text", *without, code=1)
    assert "--storage is missing: found 2 nodes" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "local", "--stream"], "--stream cannot be used with --on"),
        (["--on", "local", "--checkpoint", "x"], "--checkpoint cannot be used with --on"),
        (["--on", "local", "--time-limit", "3"], "--time-limit cannot be used with --on"),
        (["--storage", "x"], "--storage needs --on"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, options, words):
    (tmp_path / "a.csv").write_text("label,text\na,x\n")
    done = run("train", str(tmp_path / "a.csv"), "-o", str(tmp_path / "m"), *options, code=2)
    assert words in done.stderr


def test_an_address_without_a_cluster(tmp_path):
    (tmp_path / "a.csv").write_text("label,text\na,x\n")
    there = ["-o", str(tmp_path / "m"), "--on", "127.0.0.1:1"]
    done = run("train", str(tmp_path / "a.csv"), *there, code=1)
    assert "Cannot connect to the Ray cluster '127.0.0.1:1'" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_this_machine(tmp_path, table):
    pa.csv.write_csv(table.select(["label", "text"]), tmp_path / "a.csv")
    data = [str(tmp_path / "a.csv"), "--label", "label", "--text", "text", "--seed", "4"]
    run("train", *data, "-o", str(tmp_path / "one"))
    run("train", *data, "-o", str(tmp_path / "two"), "--on", "local")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.fixture
def far_cluster():
    """The address for clients of a cluster that this process does not belong to."""
    short = tempfile.mkdtemp()  # the names of sockets must be short
    port, own = 20_701, {**os.environ, "RAY_TMPDIR": short, "RAY_AUTH_MODE": "disabled"}
    own["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block"]
    command += ["--port", "6701", "--ray-client-server-port", str(port), "--num-cpus", "2"]
    command += ["--include-dashboard", "false", "--node-ip-address", "127.0.0.1"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    node = subprocess.Popen(command, env=own, **silent)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"ray://127.0.0.1:{port}", own
    finally:
        node.terminate()
        node.wait(60)
        shutil.rmtree(short, ignore_errors=True)


def test_a_client_of_a_cluster(far_cluster, table, tmp_path, monkeypatch):
    address, environment = far_cluster
    for name in ("RAY_TMPDIR", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, environment[name])
    pa.csv.write_csv(table.select(["label", "text"]), tmp_path / "a.csv")
    data = [str(tmp_path / "a.csv"), "--label", "label", "--text", "text", "--effort", "fast"]
    run("train", *data, "-o", str(tmp_path / "one"))
    run("train", *data, "-o", str(tmp_path / "two"), "--on", address)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    here = run("test", str(tmp_path / "one"), *data[:-2])
    there = run("test", str(tmp_path / "one"), *data[:-2], "--on", address)
    assert there.stdout == here.stdout
