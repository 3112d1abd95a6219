"""Runs that resume, the table of all runs, the command, and the tables made from runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiments.data.datasets import Dataset
from experiments.pages import report
from experiments.plans import paper as plans
from experiments.plans.ablations import ABLATIONS
from experiments.running.run import Run
from experiments.running.store import TABLE, collect, find, records, write_file
from experiments.tables import sections
from experiments.tables.cells import can_plot
from tests.cases.experiments import TINY, TINY_DEEP, made, write_csv

from experiments import __main__ as command


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made", made(2000), made(100, seed=1), 2)


@pytest.fixture(autouse=True)
def same_threads():
    """A run sets the number of torch's threads for good."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_run_is_a_file_and_is_made_once(data, tmp_path):
    run = Run("table2", "made", "hash 40M, default protocol", 1, TINY)
    assert run.record(tmp_path) is None
    record = run.make(data, tmp_path, 1, quiet=False)
    assert run.record(tmp_path) == record
    assert list(records(tmp_path, "table2")) == [record]
    assert record["configuration"]["num_buckets"] == 100
    assert {"seed", "commit", "device", "seconds", "quiet", "metrics"} <= record.keys()
    older = json.loads(json.dumps(record))
    del older["configuration"]["rate_scale"]  # as if the setting were new
    write_file(tmp_path, run.place, older)
    assert run.record(tmp_path) == older
    assert TINY.rate_scale == 1.0
    with pytest.raises(SystemExit, match="has another configuration"):
        replace(run, method=replace(TINY, rate_scale=2.0)).record(tmp_path)
    other = replace(run, method=replace(TINY, num_buckets=99))
    with pytest.raises(SystemExit, match="has another configuration"):
        other.record(tmp_path)


def test_the_device_is_no_part_of_the_configuration(data, tmp_path):
    run = Run("table2", "made", "deep", 0, replace(TINY_DEEP, passes=1))
    record = run.on("cpu").make(data, tmp_path, 1, quiet=False)
    assert "device" not in record["configuration"]
    assert "device" not in record["metrics"]
    assert "cores of" in record["device"]
    assert run.record(tmp_path) == record
    assert run.on("cuda").record(tmp_path) == record
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


def test_the_command_resumes(tmp_path, monkeypatch, capsys):
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
    monkeypatch.setattr("sys.argv", ["x", "collect", "--runs", str(tmp_path / "runs")])
    command.main()
    assert capsys.readouterr().out.startswith("6 runs added to ")
    monkeypatch.setattr("sys.argv", arguments)
    assert runs_made() == ["imdb: all 6 runs are there"]
    monkeypatch.setattr("sys.argv", [*arguments, "--again", "--only", "hash", "--seeds", "1"])
    assert len(runs_made()) == 1


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
    place = Run(run["experiment"], run["dataset"], run["name"], run["seed"], None).place
    write_file(folder, place, run)


def test_collected_runs_are_read_as_before(tmp_path):
    runs = [fake("table2", "imdb", "hash 40M", seed, 0.1 + 0.2 * seed) for seed in (1, 0, 2)]
    runs.append(fake("table3", "emotions", "BoW", 0, 1 / 3))
    for run in runs:
        put(tmp_path, run)
    before = [list(records(tmp_path, name)) for name in ("table2", "table3")]
    assert collect(tmp_path) == 4
    assert [path.name for path in tmp_path.iterdir()] == [TABLE]
    assert [list(records(tmp_path, name)) for name in ("table2", "table3")] == before
    place = Run("table3", "emotions", "BoW", 0, None).place
    assert find(tmp_path, place) == runs[-1]
    assert find(tmp_path, ("table3", "imdb", "bow-seed0.json")) is None
    assert collect(tmp_path) == 0


def test_new_runs_join_the_table_and_replace_older_ones(tmp_path):
    for name, order in (("one", (0, 1, 2)), ("other", (2, 0, 1))):
        put(tmp_path / name, fake("hashes", "imdb", "k = 1", 1, 0.5))
        collect(tmp_path / name)
        for seed in order:
            put(tmp_path / name, fake("hashes", "imdb", "k = 1", seed, 0.6))
        assert [run["seed"] for run in records(tmp_path / name, "hashes")] == [0, 1, 2]
        collect(tmp_path / name)
    found = [run["metrics"]["test_accuracy"] for run in records(tmp_path / "one", "hashes")]
    assert found == [0.6] * 3
    assert (tmp_path / "one" / TABLE).read_bytes() == (tmp_path / "other" / TABLE).read_bytes()


def test_tables_are_means_of_the_files(tmp_path):
    for seed, accuracy in enumerate([0.90, 0.91, 0.92]):
        put(tmp_path, fake("table2", "imdb", "hash 40M, default protocol", seed, accuracy))
    put(tmp_path, fake("table2", "imdb", "standard 200M, default protocol", 0, 0.8))
    put(tmp_path, fake("table3", "imdb", "BoW", 0, 0.85))
    table = sections.SECTIONS["table2"](tmp_path)
    assert "| imdb | 91.00 ± 1.00 | 80.00 (1 seed) |" in table
    assert "12.3" not in table  # a time that was not measured on a quiet machine
    assert "| imdb | 85.00 | " in sections.SECTIONS["table3"](tmp_path)
    put(tmp_path, fake("table2", "imdb", "standard 200M, default protocol", 0, 0.8, quiet=True))
    assert "| 40 / 40 / – | – / 12.3 / – |" in sections.SECTIONS["table2"](tmp_path)


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
    table = sections.SECTIONS["table2 dictionary"](tmp_path)
    more = "(more training rows)"
    paper = f"91.5 {more} | 91.7 {more} | 92.0 {more}"
    assert f"| ag_news_partial | 91.00 ± 1.41, B = 50,000 |  |  |  | {paper} |" in table
    assert "| imdb |  |  |  | 85.00 (1 seed) |  |  |  |" in table
    assert "| ag_news_partial | 40.0M, 11 to 12 passes, 12.3 s on an abacus |" in table
    assert "| 80.00 / 70.00 | 90.00 / 99.00 | 95.00 / 90.00 |" in table
    assert "| ag_news_partial | 90.00 / 80.00 |  |" in table
    assert "Runs of this half: 8 on an abacus." in table
    assert sections.SECTIONS["table2 lengths"](tmp_path) == "No runs yet.\n"
    add("deep hash, B = 50,000, whole documents", 0, 0.9, 0.6)
    assert "| ag_news_partial | 91.00 ± 1.41 | 60.00 (1 seed) |  |  |\n" in (
        sections.SECTIONS["table2 lengths"](tmp_path)
    )
    add("deep hash, B = 50,000, mean of vectors", 0, 0.9, 0.5)
    lengths = sections.SECTIONS["table2 lengths"](tmp_path)
    assert "| deep hash, B = 50,000, mean of vectors | 50.00 (1 seed) |" in lengths
    assert "imdb" not in lengths


def test_what_is_printed_after_the_runs(tmp_path):
    for dataset in ("imdb", "emotions"):
        put(tmp_path, fake("table2", dataset, "hash 40M, default protocol", 0, 0.9))
    assert sections.sections("table2", ("shallow", "dictionary", "ensemble")) == [
        "table2",
        "table2 dictionary",
    ]
    assert sections.sections("hashes", plans.PARTS) == ["hashes"]
    table = sections.excerpt("table2", ["imdb"], tmp_path)
    assert "| set | hash 40M |" in table
    assert "| imdb | 90.00 (1 seed) |" in table
    assert "emotions" not in table
    put(tmp_path, fake("hashes", "imdb", "k = 1", 0, 0.9))
    assert "![" not in sections.excerpt("hashes", ["emotions"], tmp_path)
    for what in (*ABLATIONS, "table1", "table3", "table4", "collisions", "best"):
        assert sections.sections(what, plans.PARTS) == [what]


def test_the_report_of_other_runs_is_written_beside_them(tmp_path):
    point = {"passes": 1, "train_accuracy": 0.9, "test_accuracy": 0.8}
    kept = [{"share": share, "weight": 0.9, "count": 0.8, "both": 0.9} for share in (0.1, 0.01)]
    more = {"chosen": {"passes": 1}, "train_accuracy": 0.9, "curve": [point]}
    more |= {"kept": kept, "count_of_important": 3.0}
    for experiment in ABLATIONS:
        size = {"embedding_parameters": 8_000} if experiment == "sentence" else {}
        for name in list(ABLATIONS[experiment])[:2]:
            put(tmp_path, fake(experiment, "imdb", name, 0, 0.9, **more, **size))
    report.write(tmp_path)
    folder = tmp_path / "experiments"
    text = (folder / "results" / "sizes.md").read_text()
    assert "| k = 1 | 90.00 (1 seed) |" in text
    assert "two hash functions gain 0.0 points over one" in " ".join(text.split())
    assert (tmp_path / report.SUMMARY).exists()
    if can_plot():
        assert (folder / "figures" / "buckets.png").exists()
