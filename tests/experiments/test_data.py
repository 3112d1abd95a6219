"""The data sets of the experiments: their formats, archives and checks."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.data import datasets, zhang
from tests.cases.experiments import write_csv

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


@pytest.mark.parametrize("name", [name for name, spec in zhang.SETS.items() if spec.hub])
def test_an_archive_and_the_hub_give_the_same(name, tmp_path, monkeypatch):
    spec, hub = replace(zhang.SETS[name], rows=(3, 2), md5=""), tmp_path / "hub"
    hub.mkdir()
    for part, count in zip(zhang.PARTS, spec.rows, strict=True):
        texts = [[f"{column} {i}\\n{part}" for i in range(count)] for column in spec.columns]
        rows = [[str(i + 1), *row] for i, row in enumerate(zip(*texts, strict=True))]
        write_csv(tmp_path / spec.archive / f"{part}.csv", rows)
        columns = {"id": list(range(count)), spec.label: list(range(count))}
        columns |= dict(zip(spec.columns, texts, strict=True))
        pq.write_table(pa.table(columns), hub / f"{part}-00000-of-00001.parquet")
    monkeypatch.setattr(zhang, "AG_FILES", {})
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(zhang.SETS, name, replace(spec, hub=str(hub)))
    from_archive, from_hub = datasets.load(name, tmp_path), datasets.load(name, None)
    assert from_hub.checksum() == from_archive.checksum()
    assert from_hub.train.labels.tolist() == [0, 1, 2]
    assert from_hub.test.texts[1].as_py() == " ".join(f"{c} 1 test" for c in spec.columns)


def test_an_archive(tmp_path, small_yahoo):
    yahoo_archive(tmp_path)
    archive = datasets.load("yahoo", tmp_path)
    assert archive.test.texts.to_pylist() == [f"title {i} question answer test" for i in (0, 1)]
    assert archive.train.labels.tolist() == [0, 1, 2]


def test_a_hub_that_cannot_be_reached(tmp_path, small_yahoo, monkeypatch):
    monkeypatch.setitem(zhang.SETS, "yahoo", replace(small_yahoo, hub=str(tmp_path / "none")))
    with pytest.raises(SystemExit, match=r"could not get .*none from the hub .*--data"):
        datasets.load("yahoo", None)


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
