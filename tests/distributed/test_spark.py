"""The code of docs/guides/spark.md, on two executors: the same bits as one process."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from hashembed import TextClassifier

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]  # Spark's own warnings

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"
ROWS = 3000
WORDS = np.array([f"w{i}" for i in range(300)])


def corpus():
    """Texts and labels; every text is distinct enough for a probability of its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=ROWS)
    places = (rng.random((ROWS, 9)) ** 2 * 300).astype(int)
    places[:, 0] = np.where(rng.random(ROWS) < 0.8, 290 + labels, places[:, 0])
    lengths = rng.integers(1, 10, ROWS)
    texts = [" ".join(WORDS[p[:n]]) for p, n in zip(places, lengths, strict=True)]
    return texts, [f"c{label}" for label in labels]


@pytest.fixture(scope="module")
def texts():
    """As Spark gets them: two are missing, one is empty."""
    found = corpus()[0]
    found[5] = found[1234] = None
    found[6] = ""
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models that the page loads."""
    folder = tmp_path_factory.mktemp("spark")
    texts, labels = corpus()
    TextClassifier(passes=3, seed=1).fit(texts, labels).save(folder / "model.safetensors")
    several = [[label, "odd"] if i % 2 else [label] for i, label in enumerate(labels)]
    TextClassifier(passes=3, seed=1).fit(texts, several).save(folder / "topics.safetensors")
    return folder


@pytest.fixture(scope="module")
def spark(tmp_path_factory, folder):
    """Two executors, each a process of its own with one core; Java runs in the models' folder."""
    import pyspark.sql

    home = tmp_path_factory.mktemp("home")  # executors write into it
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SPARK_HOME", str(home))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            pyspark.sql.SparkSession.builder.master("local-cluster[2,1,1024]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "128")
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.fixture(scope="module")
def page(spark, texts):
    """The names that the blocks of the page define."""
    table = spark.createDataFrame(list(enumerate(texts)), "id long, text string")
    names = {"__name__": "__main__", "spark": spark, "df": table.repartition(6)}
    for block in re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def collect(answers):
    """The rows in the order of their ids."""
    return answers.toArrow().sort_by("id").to_pydict()


def without(values, missing):
    return [value for number, value in enumerate(values) if number not in missing]


def test_predictions_and_probabilities(page, folder, texts):
    found = collect(page["answers"])
    clf = TextClassifier.load(folder / "model.safetensors")
    assert found["id"] == list(range(ROWS))
    missing = {5, 1234}
    for name in ("prediction", "probability"):
        assert {i for i, value in enumerate(found[name]) if value is None} == missing
    rest = without(texts, missing)
    assert without(found["prediction"], missing) == clf.predict(rest).tolist()
    best = clf.predict_proba(rest).max(axis=1)
    chances = np.array(without(found["probability"], missing), np.float32)
    assert chances.tobytes() == best.tobytes()
    assert len(np.unique(best)) > ROWS / 2  # so that rows in a wrong order would be noticed


def test_both_executors_worked(page):
    """Else the test would say nothing about how the model gets there."""

    def places(batches):
        import os

        import pyarrow as pa
        from pyspark import SparkFiles

        count = sum(len(batch) for batch in batches)
        columns = [pa.array([os.path.abspath(SparkFiles.getRootDirectory())]), pa.array([count])]
        yield pa.RecordBatch.from_arrays(columns, ["folder", "rows"])

    found = page["df"].mapInArrow(places, "folder string, rows long").toArrow().to_pydict()
    assert len(set(found["folder"])) == 2
    assert sum(found["rows"]) == ROWS


def test_a_broadcast_model(page, folder, texts):
    found = collect(page["labels"])
    rest = without(texts, {5, 1234})
    clf = TextClassifier.load(folder / "model.safetensors")
    assert found["id"] == without(range(ROWS), {5, 1234})
    assert found["prediction"] == clf.predict(rest).tolist()


def test_several_labels(page, folder, texts):
    found = collect(page["topics"])["topics"]
    clf = TextClassifier.load(folder / "topics.safetensors")
    assert found[5] is found[1234] is None
    rest = without(texts, {5, 1234})
    want = [sorted(labels) for labels in clf.predict(rest)]
    assert [sorted(labels) for labels in without(found, {5, 1234})] == want
    assert len({len(labels) for labels in want}) > 1
