"""The models and rivals of the experiments on tiny made data."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from experiments.data.datasets import Dataset, Part
from experiments.models.deep import cut, hashed_bags, ranked_bags, rule_for_batch
from experiments.rivals.bags_of_words import FastText, LinearModel, NaiveBayesSVM
from experiments.rivals.regression import MultinomialRegression
from experiments.running.run import Run
from experiments.studies.collisions import Collisions, share_in_collision
from experiments.studies.phrases import Phrases
from experiments.tables import collisions as collisions_table
from experiments.tables import sections
from experiments.tables.cells import can_plot
from scipy.sparse import random
from sklearn.linear_model import LogisticRegression
from tests.cases.experiments import TINY, TINY_DEEP, made

from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made", made(2000), made(100, seed=1), 2)


@pytest.fixture(autouse=True)
def same_threads():
    """A run sets the number of torch's threads for good."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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


def test_runs_are_deterministic_and_differ_by_seed(data):
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
    short = replace(TINY_DEEP, passes=2)
    one, again, other = (short.run(data, seed, 1)["test_loss"] for seed in (0, 0, 1))
    assert one == again != other


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
    deep = replace(
        TINY_DEEP, dictionary=1_000_000, hidden_layers=(16, 12), num_buckets=30, passes=6
    )
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
    table = sections.SECTIONS["table4"](tmp_path)
    assert f"| imdb | {found['most'][0][0]}, {found['most'][1][0]} | " in table
    assert "| set | all | 50% | " in table
    assert f"| imdb | {100 * found['test_accuracy']:.2f} | " in table
    if can_plot():
        sections.PLOTS["table4"](tmp_path, tmp_path / "table4.png")
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
    if can_plot():
        collisions_table.plot(tmp_path, tmp_path / "figures" / "collisions.png")
        assert (tmp_path / "figures" / "collisions.png").stat().st_size > 1000
