"""Variants, sentence models, studies and the search for the best file, on tiny made data."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.best import fasttext as best_fasttext
from experiments.best import sized as best
from experiments.best.fasttext import SizedFastText
from experiments.best.search import from_files, search
from experiments.best.sized import CHOICES, FIRST, SECOND, Sized, walk
from experiments.data import datasets
from experiments.data.datasets import Dataset, Part
from experiments.models.sentence import PLAN, Sentence, ranking, ranks, table
from experiments.models.variants import Variant
from experiments.running.run import Run
from experiments.running.store import records, write_file
from experiments.studies.classes import BUCKETS, KINDS, FewerClasses, narrowed
from experiments.studies.phrases import Phrases
from experiments.studies.regularising import Gap, with_noise
from experiments.tables import best as best_report
from experiments.tables import follow_ups
from experiments.tables import regularising as curves
from experiments.tables.cells import can_plot
from tests.cases.experiments import made

from hashembed.hashing.bags import Bags


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made", made(1500), made(200, seed=1), 2)


# --- appended weights, concatenation ----------------------------------------------------------


@pytest.mark.parametrize(("settings", "width"), [({}, 16), ({"aggregation": "concat"}, 32)])
@pytest.mark.parametrize("appended", [False, True])
def test_variants_learn_and_have_the_width_they_say(data, settings, width, appended):
    pytest.importorskip("torch")
    method = Variant(
        num_embeddings=1000,
        num_buckets=100,
        embedding_dim=16,
        append_importance=appended,
        **settings,
    )
    reached = method.run(data, 0, 1)
    above = 2 * (width + (2 if appended else 0)) + 2
    assert reached["parameters"] == 100 * 16 + 1000 * 2 + above
    assert reached["test_accuracy"] > 0.9
    assert reached["test_loss"] == method.run(data, 0, 1)["test_loss"]


# --- the regularising effect ------------------------------------------------------------------


def test_wrong_labels_are_wrong_and_as_many_as_asked():
    labels = np.random.default_rng(0).integers(0, 5, 20_000)
    noisy = with_noise(labels, 0.3, 5, 1)
    assert (noisy != labels).mean() == pytest.approx(0.3, abs=0.01)
    assert noisy.min() == 0
    assert noisy.max() == 4
    assert (with_noise(labels, 0.0, 5, 1) == labels).all()
    np.testing.assert_array_equal(noisy, with_noise(labels, 0.3, 5, 1))
    assert (noisy != with_noise(labels, 0.3, 5, 2)).any()


def test_the_gap_is_measured_on_noisy_rows_and_clean_ones(data, tmp_path):
    method = Gap(
        num_embeddings=1000,
        num_buckets=100,
        embedding_dim=16,
        noise=0.3,
        passes=(1, 3),
        rates=(1.0, 2.0),
    )
    run = Run("regularising", "made", "hash, B = 500, 30% wrong labels", 0, method)
    metrics = run.make(data, tmp_path, 1, quiet=False)["metrics"]
    assert [point["passes"] for point in metrics["curve"]] == [1, 3]
    assert metrics["test_accuracy"] > 0.9  # test labels are right
    assert metrics["validation_accuracy"] < 0.8  # held-out ones are as noisy as the rest
    point = next(p for p in metrics["curve"] if p["passes"] == metrics["chosen"]["passes"])
    assert point["train_accuracy"] == metrics["train_accuracy"]
    assert "| made | 30% | hash, B = 500 | 0.0M |" in curves.table(tmp_path)


# --- sentence models --------------------------------------------------------------------------


def test_the_finer_class_of_trec_is_not_text(tmp_path):
    (tmp_path / "trec").mkdir()
    for name in ("train", "test"):
        (tmp_path / "trec" / f"{name}.csv").write_text('"2","NUM:date","When ?"\n"1","X:y","Who"\n')
    trec = datasets.load("trec", tmp_path)
    assert trec.train.texts.to_pylist() == ["When ?", "Who"]
    assert trec.test.labels.tolist() == [1, 0]
    assert "trec" not in datasets.SOURCES


def test_words_become_ranks_and_rows():
    keys = np.array([9, 7, 9, -5, 9, 7])
    ranked = ranking(keys)
    assert ranked.tolist() == [9, 7, -5]
    assert ranks(np.array([7, 9, 3, -5]), ranked).tolist() == [3, 2, 1, 4]
    assert ranks(np.array([7, 9, 3, -5]), ranked[:1]).tolist() == [1, 2, 1, 1]
    rows = table(Bags(keys, np.array([0, 2, 2, 6])))
    assert rows.tolist() == [[9, 7, 0, 0, 0], [0] * 5, [9, -5, 9, 7, 0]]


@pytest.mark.parametrize("model", ["convolution", "recurrent"])
@pytest.mark.parametrize("embedding", ["dictionary", "hash", "trick"])
def test_sentence_models_learn(data, model, embedding):
    pytest.importorskip("torch")
    size = {"dictionary": None, "hash": 60, "trick": None}[embedding]
    method = Sentence(model, embedding, size, 1000, dim=20, passes={"made": 3})
    reached = method.run(data, 0, 1)
    assert reached["test_accuracy"] > 0.95
    expected = {"dictionary": 44 * 20, "hash": 1000 * 20 + 60 * 2, "trick": 1000 * 20}
    assert reached["embedding_parameters"] == expected[embedding]
    assert len(PLAN) == 10


# --- the best in a file of some size ----------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, {"members": 3}, {"share": 0.8}, {"bits": 8}, {"bits": 4, "members": 2}],
)
def test_models_fill_their_file_and_no_more(data, settings):
    reached = Sized(1, 16, held=False, **settings).run(data, 0, 1)
    assert 0.97e6 < reached["file_bytes"] <= 1e6
    assert reached["test_accuracy"] > 0.9


def test_hidden_layers_only_name_earlier_runs(data):
    earlier = Sized(1, 16, hidden_layers=(100,))
    assert earlier.label() == f"{Sized(1, 16).label()}, hidden 100"
    with pytest.raises(ValueError, match="no hidden layers any more"):
        earlier.run(data, 0, 1)


def test_trials_see_no_test_rows(data):
    blind = replace(data, test=Part(data.test.texts.slice(0, 0), data.test.labels[:0]))
    reached = Sized(1, 16).run(blind, 0, 1)
    assert reached["validation_accuracy"] > 0.9
    assert "test_accuracy" not in reached


def test_the_walk_takes_the_best_of_each_choice_and_ignores_noise():
    worth = {"ngrams": {(1, 3): 0.02, (1, 4): 0.03}, "rate": {2.0: 0.0005}, "members": {4: 0.1}}

    def score(model: Sized) -> float:
        return 0.5 + sum(of.get(getattr(model, name), 0.0) for name, of in worth.items())

    steps = list(walk(Sized(1, 16), ("n-grams", "rate", "members", "n-grams"), score))
    assert steps[-1].model == Sized(1, 16, ngrams=(1, 4), members=4)
    assert [round(step.accuracy, 4) for step in steps] == [0.53, 0.53, 0.63, 0.63]
    assert {*FIRST, *SECOND} == CHOICES.keys()
    labels = {m.label() for m in [Sized(1, 16), *(step.model for step in steps)]}
    assert len(labels) == 3


def test_the_search_is_a_function_of_its_files(data, tmp_path, monkeypatch):
    monkeypatch.setattr(best_report, "MEGABYTES", (1,))
    monkeypatch.setattr("experiments.best.search.MEGABYTES", (1,))
    monkeypatch.setattr("experiments.best.search.FIRST", ("n-grams",))
    monkeypatch.setattr("experiments.best.search.SECOND", ("bits",))
    monkeypatch.setattr(best, "CHOICES", {"n-grams": ("ngrams", ((1, 1),)), "bits": ("bits", (8,))})
    count = 0

    def make(run: Run) -> dict:
        nonlocal count
        if record := run.record(tmp_path):
            return record
        count += 1
        return run.make(data, tmp_path, 1, quiet=False)

    for _ in range(2):
        search("made", 2, make, "walk")
        assert count == 6 + 9
    search("made", 2, from_files(tmp_path), "walk")
    made = best_report.table(tmp_path)
    assert "| made | 1 MB | " in made
    assert "| start | " in made


def test_fasttext_fits_the_size(data, tmp_path, monkeypatch):
    pytest.importorskip("fasttext")
    monkeypatch.setattr(best_fasttext, "BUCKETS", 2_000)
    monkeypatch.setattr(best_fasttext, "CHOICES", {"lr": (0.5, 1.0)})
    best_fasttext.search.cache_clear()
    method = SizedFastText(0.03)
    reached = method.run(data, 0, 1)
    best_fasttext.search.cache_clear()
    assert reached["file_bytes"] <= 0.03e6
    assert reached["test_accuracy"] > 0.9
    rows, *_ = best_fasttext.files(data, tmp_path, 0)
    _, kept = method._fitted(rows, tmp_path / "model", best_fasttext.START, 1)
    assert 0.025e6 < (tmp_path / "model").stat().st_size <= 0.03e6
    assert 0 < kept < 2_000
    whole = (tmp_path / "model.whole").stat().st_size
    barely_too_small = SizedFastText(0.99 * whole / 1e6)  # quantised, all n-grams fit
    model, kept = barely_too_small._fitted(rows, tmp_path / "model", best_fasttext.START, 1)
    assert kept == len(model.words) + 2_000


# --- follow-ups: what a part of the n-grams keeps, fewer classes -------------------------------


def test_what_a_part_of_the_ngrams_keeps(data, tmp_path):
    sizes = {"num_embeddings": 100, "num_buckets": 20, "dictionary": 100}
    method = Phrases(ngrams=(1, 1), **sizes)
    for seed in (0, 1):
        Run("pruning", "imdb", "as table 4", seed, method).make(data, tmp_path, 1, quiet=False)
    found = [run["metrics"] for run in records(tmp_path, "pruning")]
    tenth = [next(row for row in of["kept"] if row["share"] == 0.1) for of in found]
    assert all(row["weight"] > 0.9 for row in tenth)  # the two words that tell the class
    for number, row in enumerate(tenth):  # which are the most frequent, too
        row.update({"weight": 0.9, "count": 0.5 + 0.2 * number, "both": 0.7})
    for seed, of in enumerate(found):
        run = Run("pruning", "imdb", "as table 4", seed, method)
        write_file(tmp_path, run.place, run.record(tmp_path) | {"metrics": of})
    assert "| 90.0 / 60.0 / 70.0 | " in follow_ups.pruning(tmp_path)
    if can_plot():
        follow_ups.plot_pruning(tmp_path, tmp_path / "pruning.png")
        assert (tmp_path / "pruning.png").stat().st_size > 1000


def test_fewer_classes(tmp_path):
    many = Dataset("made", made(900, 5), made(300, 5, seed=1), 5)
    counts = np.bincount(many.train.labels)
    largest = np.argsort(-counts, kind="stable")
    kept = narrowed(many, 2, merge=False)
    assert len(kept.train) == counts[largest[:2]].sum()
    assert all(
        f"class{largest[label]}" in text
        for text, label in zip(kept.test.texts.to_pylist(), kept.test.labels, strict=True)
    )
    merged = narrowed(many, 2, merge=True)
    assert len(merged.train) == 900
    groups = [set(largest[0::2]), set(largest[1::2])]
    assert all(
        old in groups[new] for old, new in zip(many.train.labels, merged.train.labels, strict=True)
    )
    for kind, (n, merge) in KINDS.items():
        for B in BUCKETS:
            method = FewerClasses(classes=n and min(n, 3), merge=merge, num_buckets=min(B, 1000))
            Run("classes", "imdb", f"{kind}, B = {B:,}", 0, method).make(many, tmp_path, 1, False)
    runs = {run["name"]: run["metrics"]["test_accuracy"] for run in records(tmp_path, "classes")}
    few, most = (runs[f"all classes, B = {B}"] for B in ("500", "1,000,000"))
    row = f"| imdb | all classes | {100 * most:.2f} (1 seed) | "
    line = next(x for x in follow_ups.classes(tmp_path).splitlines() if x.startswith(row))
    assert line.endswith(f" | {100 * (few - most):+.1f} |")
    if can_plot():
        follow_ups.plot_classes(tmp_path, tmp_path / "classes.png")
        assert (tmp_path / "classes.png").stat().st_size > 1000
