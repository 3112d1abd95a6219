"""The experiments on tiny made data: loaders, runs that resume, tables."""

import csv
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments import __main__ as command
from experiments import datasets, plans, report, zhang
from experiments.collisions import Collisions, share_in_collision
from experiments.datasets import Dataset, Part
from experiments.rivals import FastText, LinearModel, NaiveBayesSVM
from experiments.runs import Run, records
from experiments.shallow import Shallow

TINY = Shallow(num_embeddings=1000, num_buckets=100, embedding_dim=16)


def made(rows: int, classes: int = 2, seed: int = 0) -> Part:
    """Texts whose class shows in one word of ten."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    words = rng.integers(0, 40, (rows, 10)).astype(str).tolist()
    for row, label in zip(words, labels, strict=True):
        row[int(rng.integers(10))] = f"class{label}"
    return Part(pa.chunked_array([[" ".join(row) for row in words]]), labels)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made", made(2000), made(100, seed=1), 2)


def write_csv(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


# --- loaders ----------------------------------------------------------------------------------

ROWS = [["2", 'A "title"', "first\\nsecond, line", ""], ["1", "NA", "", "ünï\nx"]]


def test_the_form_of_zhang(tmp_path):
    write_csv(tmp_path / "a.csv", ROWS)
    part = datasets.zhang_csv(tmp_path / "a.csv")
    assert part.labels.tolist() == [1, 0]
    assert part.texts.to_pylist() == ['A "title" first second, line ', "NA  ünï\nx"]


@pytest.fixture
def small_yahoo(monkeypatch):
    small = replace(zhang.SETS["yahoo"], rows=(3, 2), md5="")
    monkeypatch.setitem(zhang.SETS, "yahoo", small)
    return small


def yahoo_archive(folder: Path, train: int = 3) -> Path:
    path = folder / "yahoo_answers_csv.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for part, count in (("train", train), ("test", 2)):
            text = "".join(
                f'"{i + 1}","title {i}","question","answer\\n{part}"\n' for i in range(count)
            )
            member = tarfile.TarInfo(f"yahoo_answers_csv/{part}.csv")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_an_archive_and_the_hub_give_the_same(tmp_path, small_yahoo, monkeypatch):
    yahoo_archive(tmp_path)
    archive = datasets.load("yahoo", tmp_path)
    assert archive.test.texts.to_pylist() == [f"title {i} question answer test" for i in (0, 1)]
    assert archive.train.labels.tolist() == [0, 1, 2]

    hub = tmp_path / "hub"
    hub.mkdir()
    for part, count in (("train", 3), ("test", 2)):
        rows = {
            "id": list(range(count)),
            "topic": list(range(count)),
            "question_title": [f"title {i}" for i in range(count)],
            "question_content": ["question"] * count,
            "best_answer": [f"answer\\n{part}"] * count,
        }
        pq.write_table(pa.table(rows), hub / f"{part}-00000-of-00001.parquet")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(zhang.SETS, "yahoo", replace(small_yahoo, hub=str(hub)))
    from_hub = datasets.load("yahoo", None)
    assert from_hub.checksum() == archive.checksum()


def test_row_counts_and_checksums_are_verified(tmp_path, small_yahoo, monkeypatch):
    path = yahoo_archive(tmp_path, train=4)
    with pytest.raises(SystemExit, match="yahoo has 3 train rows, found 4"):
        zhang.load("yahoo", tmp_path)
    monkeypatch.setitem(zhang.SETS, "yahoo", replace(small_yahoo, md5="0" * 32))
    with pytest.raises(SystemExit, match=f"{path} has the MD5 checksum .* get it again"):
        zhang.load("yahoo", tmp_path)
    with pytest.raises(SystemExit, match=r"found neither .*dbpedia_csv\.tar\.gz"):
        zhang.load("dbpedia", tmp_path)
    with pytest.raises(SystemExit, match="Amazon full is not on the hub"):
        zhang.load("amazon_full", None)
    write_csv(tmp_path / "ag_news_csv" / "train.csv", ROWS)
    with pytest.raises(SystemExit, match=r"MD5 checksum .* expected b1a00f826fdfbd24"):
        zhang.load("ag_news", tmp_path)


def test_the_sets_of_other_forms(tmp_path):
    small = tmp_path / "zhang_small"
    small.mkdir()
    for part, labels in (("train", "ba"), ("test", "ab")):
        lines = [f'"some\ttext, {x}"\t{x}' for x in labels]
        (small / f"bolt_yahoo_{part}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    yahoo = datasets.load("yahoo_small", tmp_path)
    assert yahoo.train.labels.tolist() == [1, 0]
    assert yahoo.test.texts.to_pylist() == ["some\ttext, a", "some\ttext, b"]
    rows = [{"label": "xy"[i % 2], "sentence": f"text {i}"} for i in range(100)]
    (small / "olora_yelp_train.json").write_text(json.dumps(rows))
    yelp = datasets.load("yelp_full_small", tmp_path)
    assert len(yelp.train) + len(yelp.test) == 100
    assert 10 < len(yelp.test) < 30
    assert not set(yelp.train.texts.to_pylist()) & set(yelp.test.texts.to_pylist())
    rent = [["rating", "review_text", "review_summary"], ["10", "good", "yes"], ["", "?", "?"]]
    write_csv(tmp_path / "renttherunway" / "rtr.csv", rent + [["8", "ok", "well"]] * 30)
    runway = datasets.load("renttherunway", tmp_path)
    assert len(runway.train) + len(runway.test) == 31
    assert runway.classes == 2
    with pytest.raises(SystemExit, match=r"found no folder .*imdb for the set imdb"):
        datasets.load("imdb", tmp_path)
    with pytest.raises(SystemExit, match="found no set 'imbd'; there are: imdb"):
        datasets.load("imbd", tmp_path)


# --- methods ----------------------------------------------------------------------------------


def test_shallow_models_learn_and_count_their_parameters(data):
    reached = TINY.run(data, 0)
    assert reached["test_accuracy"] > 0.95
    assert reached["parameters"] == 100 * 16 + 1000 * 2 + 2 * 16 + 2
    paper = replace(TINY, protocol="paper").run(data, 0)
    assert paper["test_accuracy"] > 0.9
    assert paper["validation_accuracy"] > 0.9
    assert paper["passes"] > 10
    with pytest.raises(ValueError, match="protocol must be 'paper' or 'default', found 'mine'"):
        replace(TINY, protocol="mine").run(data, 0)


def test_runs_repeat_to_the_bit_and_differ_by_seed(data):
    one, again, other = (TINY.run(data, seed)["test_loss"] for seed in (1, 1, 2))
    assert one == again != other


def test_a_dictionary_takes_the_place_of_the_hash(data):
    sizes = {"num_embeddings": 30, "num_buckets": 25, "embedding_dim": 20}
    reached = replace(TINY, dictionary=30, indexing="identity", **sizes).run(data, 0)
    assert reached["parameters"] == 25 * 20 + 30 * 2 + 2 * 20 + 2
    assert reached["test_accuracy"] > 0.9


@pytest.mark.parametrize(
    "method",
    [
        LinearModel((1, 1), 100),
        LinearModel((1, 3), 500, tfidf=True, strengths=(1.0,)),
        NaiveBayesSVM(),
    ],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_rivals_learn(method, classes):
    data = Dataset("made", made(400, classes), made(100, classes, seed=1), classes)
    reached = method.run(data, 0)
    assert reached["test_accuracy"] > 0.9
    assert reached["parameters"] > 40


def test_fasttext_learns(data):
    pytest.importorskip("fasttext")
    reached = FastText(buckets=1000).run(data, 0, threads=1)
    assert reached["test_accuracy"] > 0.9
    assert reached["chosen"]["lr"] in FastText.rates


def test_collisions_are_counted():
    assert share_in_collision(np.array([[1], [2], [1], [3]])) == 0.5
    assert share_in_collision(np.array([[1, 5], [2, 5], [1, 6], [1, 5]])) == 0.5
    texts = Part(pa.chunked_array([[f"w{i}" for i in range(20_000)]]), np.zeros(20_000, np.int64))
    found = Collisions((1, 1)).run(Dataset("words", texts, texts, 1), 0)
    assert found["vocabulary"] == 20_000
    for row in found["shares"]:
        assert row["same_row"] == pytest.approx(row["same_row_expected"], abs=0.01)
        assert row["same_vector"] == pytest.approx(row["same_vector_expected"], abs=0.01)


# --- runs and tables --------------------------------------------------------------------------


def test_a_run_is_a_file_and_is_made_once(data, tmp_path):
    run = Run("table2", "made", "hash 40M, default protocol", 1, TINY)
    assert not run.done(tmp_path)
    record = run.make(data, tmp_path, 1, quiet=False)
    assert run.done(tmp_path)
    assert list(records(tmp_path, "table2")) == [record]
    assert record["configuration"]["num_buckets"] == 100
    assert {"seed", "commit", "device", "seconds", "quiet", "metrics"} <= record.keys()
    path = run.path(tmp_path)
    older = json.loads(path.read_text())
    del older["configuration"]["rate_scale"]  # as if the setting were new
    path.write_text(json.dumps(older))
    assert run.done(tmp_path)
    assert TINY.rate_scale == 1.0
    with pytest.raises(SystemExit, match="is of another configuration"):
        replace(run, method=replace(TINY, rate_scale=2.0)).done(tmp_path)
    other = replace(run, method=replace(TINY, num_buckets=99))
    with pytest.raises(SystemExit, match="is of another configuration"):
        other.done(tmp_path)


def test_the_command_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    train, test = made(60), made(20, seed=1)
    for name, part in (("train", train), ("test", test)):
        texts = part.texts.to_pylist()
        rows = [[str(y + 1), t] for y, t in zip(part.labels, texts, strict=True)]
        write_csv(tmp_path / "data" / "imdb" / f"{name}.csv", rows)
    monkeypatch.setattr(plans, "TABLE2", {"hash 40M": TINY, "standard 200M": TINY})
    arguments = ["x", "table2", "--dataset", "imdb", "--protocol", "default"]
    arguments += ["--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", arguments)
    command.main()
    assert len(capsys.readouterr().out.splitlines()) == 6
    next((tmp_path / "runs").rglob("*seed1.json")).unlink()
    command.main()
    assert len(capsys.readouterr().out.splitlines()) == 1
    command.main()
    assert "all 6 runs are there" in capsys.readouterr().out


def fake(experiment, dataset, name, seed, accuracy, quiet=False, **metrics):
    return {
        "experiment": experiment,
        "dataset": dataset,
        "name": name,
        "seed": seed,
        "metrics": {
            "test_accuracy": accuracy,
            "parameters": 40_000_042,
            "train_seconds": 12.3,
            **metrics,
        },
        "note": "",
        "quiet": quiet,
        "rows": [10, 10],
    }


def put(folder: Path, run: dict) -> None:
    path = folder / run["experiment"] / run["dataset"] / f"{run['name']}-{run['seed']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run))


def test_tables_are_means_of_the_files(tmp_path):
    for seed, accuracy in enumerate([0.90, 0.91, 0.92]):
        put(tmp_path, fake("table2", "imdb", "hash 40M, default protocol", seed, accuracy))
    put(tmp_path, fake("table2", "imdb", "standard 200M, default protocol", 0, 0.8))
    put(tmp_path, fake("table3", "imdb", "BoW", 0, 0.85))
    table = report.table2(tmp_path)
    assert "| imdb | 91.00 ± 1.00 | 80.00 (1 seed) |" in table
    assert "12.3" not in table  # a time that was not measured on a quiet machine
    assert "| imdb | 85.00 | " in report.table3(tmp_path)
    put(tmp_path, fake("table2", "imdb", "standard 200M, default protocol", 0, 0.8, quiet=True))
    assert "12.3 s" in report.table2(tmp_path)


def test_the_report_replaces_what_is_between_its_marks(tmp_path):
    for experiment in plans.ABLATIONS:
        for name in list(plans.ABLATIONS[experiment])[:2]:
            put(tmp_path / "runs", fake(experiment, "imdb", name, 0, 0.9))
    readme = tmp_path / "README.md"
    readme.write_text(
        "before\n<!-- table2 -->\nold\n<!-- end -->\nafter\n<!-- hashes -->\n<!-- end -->\n"
    )
    report.write(tmp_path / "runs", readme, tmp_path / "figures")
    text = readme.read_text()
    assert text.startswith("before\n<!-- table2 -->\n")
    assert "old" not in text
    assert "| k = 1 | 90.00 (1 seed) |" in text
    assert "after" in text
    if report.can_plot():
        assert (tmp_path / "figures" / "buckets.png").exists()
