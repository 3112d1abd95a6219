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
import torch
from experiments import __main__ as command
from experiments import collisions_table, datasets, plans, report, zhang
from experiments.collisions import Collisions, share_in_collision
from experiments.datasets import Dataset, Part
from experiments.deep import Deep, cut, hashed_bags, ranked_bags, rule_for_batch
from experiments.phrases import Phrases
from experiments.regression import MultinomialRegression
from experiments.rivals import FastText, LinearModel, NaiveBayesSVM
from experiments.runs import Run, records
from experiments.shallow import Shallow
from scipy.sparse import random
from sklearn.linear_model import LogisticRegression
from tests.cases.experiments import made

from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary

TINY = Shallow(num_embeddings=1000, num_buckets=100, embedding_dim=16)
TINY_DEEP = Deep(
    num_embeddings=1000, num_buckets=100, embedding_dim=8, learning_rate=0.01, passes=15
)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made", made(2000), made(100, seed=1), 2)


@pytest.fixture(autouse=True)
def same_threads():
    """A run sets the number of torch's threads for good."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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


def test_the_paper_protocol_with_adam(data):
    reached = TINY_DEEP.run(data, 0, 1)
    assert reached["test_accuracy"] > 0.9
    assert reached["validation_accuracy"] > 0.9
    assert reached["parameters"] == 100 * 8 + 1000 * 2 + 2 * 8 + 2
    assert reached["best_pass"] <= reached["passes"] <= 15
    assert reached["batch_size"] == 64
    again, other = TINY_DEEP.run(data, 0, 1), TINY_DEEP.run(data, 1, 1)
    assert again["test_loss"] == reached["test_loss"] != other["test_loss"]


def test_the_best_pass_is_what_is_tested(data):
    """Ten more passes at a rate that spoils everything change nothing."""
    rash = replace(TINY_DEEP, learning_rate=0.5, passes=20)
    reached = rash.run(data, 0, 1)
    assert reached["best_pass"] < reached["passes"]
    short = replace(rash, passes=reached["best_pass"]).run(data, 0, 1)
    assert short["test_loss"] == reached["test_loss"]
    assert short["validation_accuracy"] == reached["validation_accuracy"]


def test_deep_models_with_a_dictionary(data):
    ranked = len(Dictionary.count(data.train.texts, TextConfig((1, 9), lowercase=False)))
    deep = replace(TINY_DEEP, dictionary=1_000_000, hidden_layers=(16, 12), num_buckets=30)
    layers = (2 * 8 + 8 * 16 + 16) + (2 * 16 + 16 * 12 + 12) + (2 * 12 + 12 * 2 + 2)
    hashed = deep.run(data, 0, 1)
    assert hashed["dictionary"] == ranked
    assert hashed["parameters"] == 30 * 8 + 2 * ranked + layers
    standard = replace(deep, dictionary=50, num_buckets=None, num_hashes=1, importance=False)
    reached = standard.run(data, 0, 1)
    assert reached["parameters"] == 50 * 8 + layers
    assert min(hashed["test_accuracy"], reached["test_accuracy"]) > 0.9
    changes = [{}, {"weight_scale": 0.0005}, {"mode": "mean"}, {"snippets": None}]
    short = [replace(standard, passes=1, **change).run(data, 0, 1) for change in changes]
    assert len({result["test_loss"] for result in short}) == len(changes)


def test_members_differ_in_their_layers(data):
    three = replace(TINY_DEEP, hidden_layers=(16, 12), members=3, passes=5)
    reached = three.run(data, 0, 1)
    tables, first = 100 * 8 + 1000 * 2, 2 * 8 + 8 * 16 + 16
    one = first + (2 * 16 + 16 * 2 + 2)
    two = first + (2 * 16 + 16 * 12 + 12) + (2 * 12 + 12 * 2 + 2)
    assert reached["parameters"] == 3 * tables + 2 * one + two
    assert reached["test_accuracy"] > 0.9


def test_a_smaller_dictionary_is_a_cut_of_the_larger_one(data):
    train, test, size = ranked_bags(data)
    small = Dictionary.count(data.train.texts, TextConfig((1, 9), lowercase=False), 70)
    for bags, part in ((train, data.train), (test, data.test)):
        expected, found = small.bags(part.texts), cut(bags, 70)
        assert found.keys.tolist() == expected.keys.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()
    assert size == len(Dictionary.count(data.train.texts, TextConfig((1, 9), lowercase=False)))


def test_bags_are_made_once_for_all_runs(data):
    before = ranked_bags.cache_info().misses, hashed_bags.cache_info().misses
    quick = replace(TINY_DEEP, passes=1)
    for method in (quick, replace(quick, num_buckets=50), replace(quick, dictionary=9)):
        method.run(data, 0, 1)
        method.run(data, 1, 1)
    after = ranked_bags.cache_info().misses, hashed_bags.cache_info().misses
    assert after[0] - before[0] <= 1
    assert after[1] - before[1] <= 1


@pytest.mark.parametrize(
    ("rows", "batch"), [(1, 64), (6_400, 64), (25_000, 128), (40_000, 256), (10**7, 1024)]
)
def test_batches_leave_a_hundred_steps(rows, batch):
    assert rule_for_batch(rows) == batch


@pytest.mark.parametrize(("classes", "C"), [(2, 0.1), (3, 3.0), (7, 10.0)])
def test_regression_finds_the_optimum(classes, C):
    X = random(60, 20, 0.3, "csr", np.float32, random_state=classes)
    X.data *= 3
    y = np.random.default_rng(0).permutation(np.arange(60) % classes)
    ours = MultinomialRegression(C, passes=3000).fit(X, y)
    assert -1e-5 < ours.gap < 1e-5
    ones = np.hstack([X.toarray(), np.ones((60, 1))])  # the intercept is penalised, too
    # Of two classes scikit-learn keeps the difference alone: half of the penalty.
    theirs = LogisticRegression(
        C=C * (1 + (classes == 2)), tol=1e-10, max_iter=10_000, fit_intercept=False
    ).fit(ones, y)
    found = ours.W.T if classes > 2 else (ours.W[:, 1] - ours.W[:, 0])[None]
    np.testing.assert_allclose(found, theirs.coef_, atol=2e-3 * np.abs(found).max())
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(ones))
    few = MultinomialRegression(C, passes=1).fit(X, y)
    assert few.gap > ours.gap


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
    reached = method.run(data, 0, 1)
    assert reached["test_accuracy"] > 0.9
    assert reached["parameters"] > 40


def test_fasttext_learns(data):
    pytest.importorskip("fasttext")
    reached = FastText(buckets=1000).run(data, 0, threads=1)
    assert reached["test_accuracy"] > 0.9
    assert reached["chosen"]["lr"] in FastText.rates


def test_important_phrases_are_found(data, tmp_path):
    sizes = {"num_embeddings": 100, "num_buckets": 20, "dictionary": 100}
    method = Phrases(ngrams=(1, 1), top=2, min_count=20, **sizes)
    found = method.run(data, 0, threads=1)
    assert {text for text, _, _ in found["most"]} == {"class0", "class1"}
    assert found["most"][0][1] > found["most"][1][1] > found["least"][1][1] > found["least"][0][1]
    assert all(count >= 20 for _, _, count in found["most"] + found["least"])
    shares = [row["share"] for row in found["kept"]]
    assert shares == sorted(shares, reverse=True)
    assert found["kept"][0]["weight"] > 0.9 > found["kept"][-1]["weight"]
    run = Run("table4", "imdb", "important n-grams", 0, method)
    run.make(data, tmp_path, 1, quiet=False)
    table = report.table4(tmp_path)
    assert f"| imdb | {found['most'][0][0]}, {found['most'][1][0]} | " in table
    assert "| set | all | 50% | " in table
    assert f"| imdb | {100 * found['test_accuracy']:.2f} | " in table
    if report.can_plot():
        report.plot4(tmp_path, tmp_path)
        assert (tmp_path / "table4.png").stat().st_size > 1000


def test_collisions_are_counted(tmp_path):
    assert share_in_collision(np.array([[1], [2], [1], [3]])) == 0.5
    assert share_in_collision(np.array([[1, 5], [2, 5], [1, 6], [1, 5]])) == 0.5
    texts = Part(pa.chunked_array([[f"w{i}" for i in range(20_000)]]), np.zeros(20_000, np.int64))
    found = Collisions((1, 1)).run(Dataset("words", texts, texts, 1), 0)
    assert found["vocabulary"] == 20_000
    for row in found["shares"]:
        assert row["same_row"] == pytest.approx(row["same_row_expected"], abs=0.01)
        assert row["same_vector"] == pytest.approx(row["same_vector_expected"], abs=0.01)
    Run("collisions", "words", "unigrams", 0, Collisions((1, 1))).make(
        Dataset("words", texts, texts, 1), tmp_path, 1, quiet=False
    )
    independent = [row for row in found["shares"] if row["indexing"] == "independent"]
    counted = "".join(f" {100 * row['same_row']:.3f} / {{}} |" for row in independent)
    expected = (f"{100 * row['same_row_expected']:.3f}" for row in independent)
    assert f"| words | 20,000 |{counted.format(*expected)}" in collisions_table.table(tmp_path)
    if report.can_plot():
        collisions_table.plot(tmp_path, tmp_path / "figures" / "collisions.png")
        assert (tmp_path / "figures" / "collisions.png").stat().st_size > 1000


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


def test_the_device_is_no_part_of_the_configuration(data, tmp_path):
    run = Run("table2", "made", "deep", 0, replace(TINY_DEEP, passes=1))
    record = run.on("cpu").make(data, tmp_path, 1, quiet=False)
    assert "device" not in record["configuration"]
    assert "device" not in record["metrics"]
    assert "cores of" in record["device"]
    assert run.done(tmp_path)
    assert run.on("cuda").done(tmp_path)
    shallow = Run("table2", "made", "shallow", 0, TINY)
    assert shallow.on("cuda") == shallow


def command_arguments(folder: Path, rows: int, *more: str) -> list[str]:
    """A command that takes its data from the folder, where it is put."""
    for name, part in (("train", made(rows)), ("test", made(20, seed=1))):
        texts = part.texts.to_pylist()
        lines = [[str(y + 1), t] for y, t in zip(part.labels, texts, strict=True)]
        write_csv(folder / "data" / "imdb" / f"{name}.csv", lines)
    places = ["--data", str(folder / "data"), "--runs", str(folder / "runs")]
    return ["x", "table2", "--dataset", "imdb", *places, *more]


def test_a_size_is_chosen_on_validation_and_gets_more_seeds(tmp_path, monkeypatch, capsys):
    none = replace(TINY_DEEP, dictionary=1, num_buckets=10, passes=1)
    good = replace(none, dictionary=1000, passes=15)
    monkeypatch.setattr(plans, "DICTIONARY", {"hash": {"none": none, "good": good}})
    arguments = command_arguments(tmp_path, 400, "--part", "dictionary", "--threads", "1")
    monkeypatch.setattr("sys.argv", [*arguments, "--only", "none"])
    command.main()
    assert capsys.readouterr().out.count("seed 0") == 1  # nothing to choose among yet
    monkeypatch.setattr("sys.argv", [*arguments, "--seeds", "1"])
    command.main()
    assert capsys.readouterr().out.count("good, seed 0") == 1
    monkeypatch.setattr("sys.argv", arguments)
    command.main()
    made, table = capsys.readouterr().out.split("\n\n", 1)
    assert [line.split(":")[1] for line in made.splitlines()] == [" good, seed 1", " good, seed 2"]
    assert "| set | hash |" in table


def test_the_command_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plans, "TABLE2", {"hash 40M": TINY, "standard 200M": TINY})
    arguments = command_arguments(tmp_path, 60, "--part", "shallow", "--protocol", "default")
    monkeypatch.setattr("sys.argv", arguments)

    def runs_made():
        command.main()
        made, table = capsys.readouterr().out.split("\n\n", 1)
        assert "| set | hash 40M | standard 200M |" in table
        return made.splitlines()

    assert len(runs_made()) == 6
    next((tmp_path / "runs").rglob("*seed1.json")).unlink()
    assert len(runs_made()) == 1
    assert runs_made() == ["imdb: all 6 runs are there"]


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
        "device": "an abacus",
        "quiet": quiet,
        "rows": [10, 10],
    }


def put(folder: Path, run: dict) -> None:
    path = Run(run["experiment"], run["dataset"], run["name"], run["seed"], None).path(folder)
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
    assert "| 40 / 40 / – | – / 12.3 / – |" in report.table2(tmp_path)


def test_the_right_half_shows_what_validation_chose(tmp_path):
    def add(name, seed, validation, test, dataset="ag_news_partial", quiet=False):
        metrics = {"validation_accuracy": validation, "passes": 11 + seed}
        put(tmp_path, fake("table2", dataset, name, seed, test, quiet, **metrics))

    for B, validation, test in zip(
        plans.DEEP_BUCKETS, (0.8, 0.9, 0.95, 0.95, 0.9), (0.7, 0.99, 0.9, 0.98, 0.97), strict=True
    ):
        add(f"deep hash, B = {B:,}", 0, validation, test)
    add("deep hash, B = 50,000", 1, 0.9, 0.92, quiet=True)
    add("deep standard, 10,000 n-grams", 0, 0.9, 0.8)  # the other sizes are still to run
    add("deep hash, ensemble of 10", 0, 0.9, 0.85, dataset="imdb")
    table = report.SECTIONS["table2 dictionary"](tmp_path)
    more = "(more training rows)"
    paper = f"91.5 {more} | 91.7 {more} | 92.0 {more}"
    assert f"| ag_news_partial | 91.00 ± 1.41, B = 50,000 |  |  |  | {paper} |" in table
    assert "| imdb |  |  |  | 85.00 (1 seed) |  |  |  |" in table
    assert "| ag_news_partial | 40.0M, 11 to 12 passes, 12.3 s on an abacus |" in table
    assert "| 80.00 / 70.00 | 90.00 / 99.00 | 95.00 / 90.00 |" in table
    assert "| ag_news_partial | 90.00 / 80.00 |  |" in table
    assert "Runs of this half: 8 on an abacus." in table
    assert report.SECTIONS["table2 lengths"](tmp_path) == "No runs yet.\n"
    add("deep hash, B = 50,000, whole documents", 0, 0.9, 0.6)
    assert "| ag_news_partial | 91.00 ± 1.41 | 60.00 (1 seed) |  |  |\n" in (
        report.SECTIONS["table2 lengths"](tmp_path)
    )
    add("deep hash, B = 50,000, mean of vectors", 0, 0.9, 0.5)
    lengths = report.SECTIONS["table2 lengths"](tmp_path)
    assert "| deep hash, B = 50,000, mean of vectors | 50.00 (1 seed) |" in lengths
    assert "imdb" not in lengths


def test_what_is_printed_after_the_runs(tmp_path):
    for dataset in ("imdb", "emotions"):
        put(tmp_path, fake("table2", dataset, "hash 40M, default protocol", 0, 0.9))
    assert report.sections("table2", ("shallow", "dictionary", "ensemble")) == [
        "table2",
        "table2 dictionary",
    ]
    assert report.sections("hashes", plans.PARTS) == ["hashes"]
    table = report.excerpt("table2", ["imdb"], tmp_path)
    assert "| set | hash 40M |" in table
    assert "| imdb | 90.00 (1 seed) |" in table
    assert "emotions" not in table
    put(tmp_path, fake("hashes", "imdb", "k = 1", 0, 0.9))
    assert "![" not in report.excerpt("hashes", ["emotions"], tmp_path)
    for what in (*plans.ABLATIONS, "table1", "table3", "table4", "collisions", "best"):
        assert report.sections(what, plans.PARTS) == [what]


def test_the_report_replaces_what_is_between_its_marks(tmp_path):
    point = {"passes": 1, "train_accuracy": 0.9, "test_accuracy": 0.8}
    kept = [{"share": share, "weight": 0.9, "count": 0.8, "both": 0.9} for share in (0.1, 0.01)]
    more = {"chosen": {"passes": 1}, "train_accuracy": 0.9, "curve": [point]}
    more |= {"kept": kept, "count_of_important": 3.0}
    for experiment in plans.ABLATIONS:
        for name in list(plans.ABLATIONS[experiment])[:2]:
            put(tmp_path / "runs", fake(experiment, "imdb", name, 0, 0.9, **more))
    readme = tmp_path / "README.md"
    readme.write_text(
        "before\n<!-- table2 -->\nold\n<!-- end -->\nafter\n<!-- hashes -->\n<!-- end -->\n"
    )
    before = readme.read_text()
    report.write(tmp_path / "runs", readme)
    assert readme.read_text() == before  # other runs are reported beside them
    text = (tmp_path / "runs" / "README.md").read_text()
    assert text.startswith("before\n<!-- table2 -->\n")
    assert "old" not in text
    assert "| k = 1 | 90.00 (1 seed) |" in text
    assert "after" in text
    if report.can_plot():
        assert (tmp_path / "runs" / "figures" / "buckets.png").exists()
