"""Processes and nodes that are killed change nothing but time."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
import ray
from tests.cases.ray_cluster import cluster_of
from tests.distributed.test_two_nodes import rows, state_of

import hashembed.distributed as hd
from hashembed import TextClassifier
from hashembed.classify.training import FitOptions, run_training
from hashembed.distributed import groups, training
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # warnings are Ray's own

ROWS, FILES = 60_000, 60


@pytest.fixture(scope="module")
def table():
    return rows(ROWS)


@pytest.fixture(scope="module")
def files(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    size = ROWS // FILES
    for number in range(FILES):
        pa.parquet.write_table(table.slice(number * size, size), folder / f"{number:03d}.parquet")
    return str(folder)


@pytest.fixture
def cluster():
    with cluster_of(1, 1) as found:
        yield found


def dataset(files, marks=None):
    """16 blocks of several files; with `marks`, each leaves a file there when it was read."""
    ds = hd.read(f"{files}/*.parquet", text="text", label="label", keep=["id"])
    if marks is None:
        return ds

    def mark(table):
        Path(marks, f"{table['id'][0]}-{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.05)
        return table

    return ds.map_batches(mark, batch_format="pyarrow", batch_size=None)


def in_one_process(table, options):
    """A classifier that was trained without a cluster."""
    halves = [slice(0, 100), slice(100, None)]
    batches = [(table["text"][half], table["label"][half]) for half in halves]
    return TextClassifier(**options).fit_batches(batches)


def when_read(marks, count, act):
    """Do something once so many blocks were read; in the background."""

    def watch():
        while len(list(Path(marks).iterdir())) < count:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def processes_of(name):
    """The processes of Ray that run a task of this name."""
    found = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
    return [p.pid for p in found if p.info["cmdline"][0].startswith(f"ray::{name}")]


def lose_node(cluster):
    """Kill the node without the driver; the other one has to do the rest."""
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)


@pytest.mark.parametrize("after", [1, 8, 15])
def test_a_node_is_lost_while_predicting(cluster, files, table, tmp_path, after):
    clf = TextClassifier(effort="fast").fit(table["text"], table["label"])
    watching = when_read(tmp_path, after, lambda: lose_node(cluster))
    found = hd.predict(clf, dataset(files, tmp_path), keep=["id"], probabilities=True).to_pandas()
    watching.join(60)
    assert not watching.is_alive()
    assert found["id"].tolist() == table["id"].to_pylist()
    assert found["prediction"].tolist() == clf.predict(table["text"]).tolist()
    best = clf.predict_proba(table["text"]).max(axis=1)
    assert found["probability"].to_numpy(np.float32).tobytes() == best.tobytes()


@pytest.mark.parametrize("after", [1, 8, 15])
def test_a_node_is_lost_while_counting(cluster, files, table, tmp_path, after, monkeypatch):
    monkeypatch.setattr(groups, "GROUP_BLOCKS", 4)
    watching = when_read(tmp_path, after, lambda: lose_node(cluster))
    found = hd.count_dictionary(dataset(files, tmp_path), config=TextConfig((1, 2)), size=2000)
    watching.join(60)
    assert not watching.is_alive()
    want = Dictionary.count(table["text"], TextConfig((1, 2)), 2000)
    assert np.array_equal(found.keys, want.keys)
    assert np.array_equal(found.counts, want.counts)
    assert found.strings.equals(want.strings)


@pytest.mark.parametrize("after", [1, 8, 15])
def test_a_node_is_lost_while_keys_are_made(cluster, files, table, tmp_path, after, monkeypatch):
    monkeypatch.setattr(groups, "GROUP_BLOCKS", 4)
    marks, storage = tmp_path / "marks", tmp_path / "storage"
    marks.mkdir()
    watching = when_read(marks, after, lambda: lose_node(cluster))
    found = hd.fit(TextClassifier(seed=1), dataset(files, marks), storage=storage)
    watching.join(60)
    assert not watching.is_alive()
    assert state_of(found) == state_of(in_one_process(table, {"seed": 1}))


@pytest.mark.parametrize("members", [None, 2])
def test_the_trainer_is_killed_and_resumes(cluster, files, table, tmp_path, members):
    options = {"seed": 1, "passes": 40, "members": members}
    name = "training-state" if members is None else "member-1"
    train = hd.fit if members is None else hd.fit_members
    killed = []

    def kill():
        state = tmp_path / f"{name}.safetensors"
        while not state.exists():
            time.sleep(0.005)
        time.sleep(0.5)  # in a later pass, or within one
        for pid in processes_of("hashembed: train" if members is None else "hashembed: member"):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ds = dataset(files)
    found = train(TextClassifier(**options), ds, storage=tmp_path, state_seconds=0.05)
    killer.join()
    assert killed
    assert state_of(found) == state_of(in_one_process(table, options))
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["model.safetensors"]


def test_a_second_call_resumes(cluster, files, table, tmp_path):
    """The driver dies, say; another one begins again with the same storage."""
    ds, small = dataset(files), {"seed": 1, "passes": 3}
    with pytest.raises(Stop):
        train_half(TextClassifier(**small), ds, tmp_path)
    assert (tmp_path / training.STATE).exists()
    assert not list((tmp_path / training.KEYS).rglob("*.arrow"))
    found = hd.fit(TextClassifier(**small), ds, storage=tmp_path)
    assert state_of(found) == state_of(in_one_process(table, small))


class Stop(Exception):
    pass


def train_half(clf, ds, folder):
    """Train as `fit` does, but stop in the second pass."""

    def stop(progress):
        if progress.epoch == 1:
            raise Stop

    with training.stage(clf, ds, "text", "label", folder, None, "stop") as staged:
        trainer = training.Resources(1, 0, None, 0.0)
        with training.loaded(staged, trainer) as (bags, targets, _):
            options = FitOptions(None, str(folder / training.STATE), (stop,), None, 0.0)
            run_training(staged.prepare(training.unfitted(clf), bags, targets, options))


def test_a_slow_trainer_does_not_fill_the_object_store(cluster, tmp_path):
    """Blocks of 8 MB, ten times the object store: only some are made before tasks take them."""
    text = "word " * 800
    made = tmp_path / "made"
    made.mkdir()

    def make(table):
        Path(made, f"{table['id'][0]}").touch()
        return pa.table({"text": [text] * 2000})

    ds = ray.data.range(240, override_num_blocks=240).map_batches(
        make, batch_format="pyarrow", batch_size=None
    )
    taken = groups.make_groups(ds)
    for _ in range(3):
        next(taken)
    time.sleep(3)
    assert len(list(made.iterdir())) < 60
    taken.close()
