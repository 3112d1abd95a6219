"""The choice of n-grams, passes, rate and members: repeatable, bounded, and never in the way."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases.hostile_files import changed

from hashembed import TextClassifier
from hashembed.classify.choose import race as races
from hashembed.classify.choose.budget import RACE_SHARE, Budget, work
from hashembed.classify.choose.race import EXCESS, FEWEST_TEXTS, MISSED
from hashembed.classify.choose.search import Search, best_cell, ranks
from hashembed.classify.choose.space import AUTO, Open
from hashembed.classify.choose.trial import METRICS, Score, Trial
from hashembed.cli.demo_task import read_sentences
from hashembed.engine.labels import split
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors
from hashembed.text.arrow import take_texts
from hashembed.text.config import TextConfig

KIND = "TextClassifier"
ALL_GIVEN = {
    "ngrams": (1, 1),
    "subwords": None,
    "punctuation": "drop",
    "passes": 2,
    "learning_rate": 0.05,
    "members": 1,
}


def sentences(count, languages=16):
    table = read_sentences()
    pairs = list(zip(table["text"].to_pylist(), table["language"].to_pylist(), strict=True))
    kept = sorted(set(table["language"].to_pylist()))[:languages]
    pairs = [pair for pair in pairs if pair[1] in kept]
    random.Random(0).shuffle(pairs)
    texts, labels = zip(*pairs[:count], strict=True)
    return list(texts), list(labels)


TEXTS, LABELS = sentences(300, 4)


def words(rng, *lengths):
    """Texts of so many random words."""
    return [" ".join(f"w{n}" for n in rng.integers(0, 3_000, length)) for length in lengths]


def same_bits(one, other):
    """Whether two models have the same tensors."""
    a, b = one.model_.tensors(), other.model_.tensors()
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def usable(clf, texts=("some words", "")):
    """Whether it answers with known classes and finite probabilities."""
    shares = clf.predict_proba(list(texts))
    assert shares.shape == (len(texts), len(clf.classes_))
    assert np.isfinite(shares).all()
    if clf.label_form_ == "single":
        assert np.allclose(shares.sum(axis=1), 1, atol=1e-5)
        assert set(clf.predict(list(texts)).tolist()) <= set(clf.classes_.tolist())
    return True


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier().fit(TEXTS, LABELS)


@pytest.fixture
def started(monkeypatch):
    """The races that were run."""
    found, start = [], races._start

    def watched(*arguments):
        found.append(start(*arguments))
        return found[-1]

    monkeypatch.setattr(races, "_start", watched)
    return found


# --- the same choice, the same model -----------------------------------------------------------


@pytest.mark.parametrize("effort", ["normal", "best"])
def test_any_number_of_threads_chooses_the_same(effort):
    texts, labels = TEXTS[:150], LABELS[:150]
    one, two = (
        TextClassifier(effort=effort, threads=threads).fit(texts, labels) for threads in (1, 2)
    )
    assert one.search_.to_dict() == two.search_.to_dict()
    assert same_bits(one, two)


def test_the_seed_decides(fitted):
    again, other = (TextClassifier(seed=seed).fit(TEXTS, LABELS) for seed in (0, 1))
    assert again.search_ == fitted.search_
    assert same_bits(again, fitted)
    scores = [trial.scores for trial in fitted.search_.trials]
    assert [trial.scores for trial in other.search_.trials] != scores  # other rows are held out


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"effort": "best"},
        {"metric": "log_loss", "seed": 5, "lowercase": False},
        {"time_limit": 0.3},
        {"validation_fraction": 0.2, "patience": 1},
        {"validation_fraction": 0.2, "patience": 1, "passes": 3},
        {"learning_rate": np.float32(0.07)},
        {"class_weight": "balanced", "embedding_dim": 5},
    ],
    ids=str,
)
def test_the_options_repeat_the_model(options):
    texts, labels = TEXTS[:150], LABELS[:150]
    found = TextClassifier(**options).fit(texts, labels)
    assert found.search_ is not None
    repeated = TextClassifier(**{**options, **found.search_.chosen.options()}).fit(texts, labels)
    assert repeated.search_ is None
    assert same_bits(found, repeated)


def test_chunks_of_a_column_do_not_matter(fitted):
    chunks = [pa.array(TEXTS[:1]), pa.array([], pa.string()), pa.array(TEXTS[1:])]
    clf = TextClassifier().fit(pa.chunked_array(chunks), LABELS)
    assert clf.search_ == fitted.search_
    assert same_bits(clf, fitted)


def test_columns_of_more_than_two_gigabytes():
    """Rows are taken from each chunk; Arrow's own `take` joins all of them."""
    huge = 2**30 - 4
    data = np.zeros(2 * huge + 4, np.uint8)  # never written, so it takes no memory
    data[-4:] = list(b"abcd")
    offsets = np.array([0, huge, 2 * huge, 2 * huge + 1, 2 * huge + 4], np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    chunk = pa.Array.from_buffers(pa.string(), 4, buffers)
    column = pa.chunked_array([chunk, chunk.slice(3), chunk])
    found = take_texts(column, np.array([2, 3, 4, 7, 8]))
    assert found.to_pylist() == [b"a", b"bcd", b"bcd", b"a", b"bcd"]


# --- what is given is respected ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ngrams", (1, 1)),
        ("ngrams", (2, 3)),
        ("subwords", None),
        ("subwords", (3, 3)),
        ("punctuation", "drop"),
        ("punctuation", "keep"),
        ("passes", 1),
        ("passes", 9),
        ("learning_rate", 0.123456789),
        ("members", 1),
        ("members", 7),
    ],
)
def test_what_is_given_is_kept(name, value):
    clf = TextClassifier(**{name: value}).fit(TEXTS[:120], LABELS[:120])
    assert clf.search_.chosen.options()[name] == value
    if name in ("ngrams", "subwords", "punctuation"):
        assert {getattr(trial.text, name) for trial in clf.search_.trials} == {value}
    assert clf.engine_plan_.members == clf.search_.chosen.members
    assert clf.text_config_ == clf.search_.chosen.text
    assert len(clf.history_.epochs) == clf.search_.chosen.passes
    assert clf.get_params()[name] == value


def test_nothing_is_tried_where_nothing_is_open(started):
    assert TextClassifier(**ALL_GIVEN).fit(TEXTS, LABELS).search_ is None
    assert TextClassifier(**ALL_GIVEN, effort="best").fit(TEXTS, LABELS).search_ is None
    fast = TextClassifier(effort="fast").fit(TEXTS, LABELS)
    assert fast.search_ is None
    assert fast.text_config_ == TextConfig()
    assert fast.engine_plan_.members == 1
    assert started == []


def test_fit_changes_no_argument():
    from sklearn.base import clone

    clf = TextClassifier(effort="best", seed=3)
    before = clf.get_params()
    clf.fit(TEXTS[:100], LABELS[:100])
    assert clf.get_params() == before
    copy = clone(clf)
    assert not hasattr(copy, "search_")
    assert copy.fit(TEXTS[:100], LABELS[:100]).search_ == clf.search_


def test_a_second_fit_forgets_the_first():
    clf = TextClassifier().fit(TEXTS[:100], LABELS[:100])
    assert clf.search_ is not None
    assert clf.fit(TEXTS[:20], LABELS[:20]).search_ is None


def test_online_learning_tries_nothing():
    clf = TextClassifier(num_embeddings=1000).partial_fit(TEXTS, LABELS)
    assert clf.search_ is None
    assert clf.text_config_ == TextConfig()


# --- bounded work ------------------------------------------------------------------------------


def check_work(clf, race):
    """A race keeps to its budget, up to `EXCESS`; so does the final training, up to one pass."""
    assert race.budget.race == pytest.approx(RACE_SHARE / (1 - RACE_SHARE) * race.budget.final)
    trials, chosen = clf.search_.trials, clf.search_.chosen
    assert sum(trial.work for trial in trials) <= EXCESS * race.budget.race
    one = race._pass_work(chosen.text) * len(race.data)
    assert chosen.passes * chosen.members * one <= race.budget.final or (
        chosen.passes == chosen.members == 1
    )
    true = work(
        clf.report_.ngrams, clf.report_.texts, len(clf.classes_), clf.engine_plan_.embedding_dim
    )
    assert true <= 1.1 * MISSED * one  # so the bound is one for the true work, too


def long_and_short(rng):
    return words(rng, *[3] * 1_999, 100_000)


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (lambda rng: words(rng, *[15] * 1_500), 3),
        (lambda rng: words(rng, *[1] * 20_000), 2),
        (lambda rng: words(rng, *[2_000] * 70), 2),
        (lambda rng: words(rng, *[3] * 5_000), 5_000),
        (long_and_short, 2),
        (lambda rng: words(rng, *(rng.pareto(1.0, 1_000) * 5 + 1).astype(int)), 3),
    ],
    ids=["usual", "short", "long", "many classes", "one huge text", "heavy tail"],
)
def test_work_is_bounded(started, make, classes):
    rng = np.random.default_rng(1)
    texts = make(rng)
    clf = TextClassifier().fit(texts, rng.permutation(len(texts)) % classes)
    check_work(clf, started[0])
    assert len(clf.classes_) == classes
    assert usable(clf)


def test_a_trial_leaves_out_its_longest_texts(started):
    clf = TextClassifier().fit(TEXTS, LABELS)
    (race,), config = started, clf.search_.trials[0].text
    rows = race._rows(config, len(TEXTS))
    assert race._within_plan(rows, config) is rows
    race.density[config] /= 3
    kept, most = race._within_plan(rows, config), EXCESS * race.density[config] * len(TEXTS)
    assert 0.9 * most < len(kept.bags.keys) <= most
    shortest = np.sort(rows.bags.lengths)[: len(kept.bags)]
    assert np.array_equal(np.sort(kept.bags.lengths), shortest)
    race.density[config] = 0.0
    assert len(race._within_plan(rows, config).bags) == 1


def test_a_small_budget_for_the_final_training(started):
    clf = TextClassifier().fit(TEXTS, LABELS)
    (race,), (first, *others) = started, clf.search_.trials
    assert race._chosen(first, 1).passes > 1
    configs = race.open.first()
    assert race._allowed(configs) == configs
    one = race._pass_work(first.text) * len(TEXTS)
    for times, passes in ((0.5, 1), (1.5, 1), (2.5, 2)):
        race.budget = Budget(race.budget.race, times * one, 5)
        chosen = race._chosen(first, 1)
        assert (chosen.passes, chosen.members) == (passes, 1)
    race.budget = Budget(race.budget.race, 0.0, 5)
    assert race._allowed(configs) == [configs[0]]  # the cheapest
    assert race._allowed([trial.text for trial in others[-2:]]) == []


def test_given_members_share_the_final_training(started):
    clf = TextClassifier(members=3).fit(TEXTS, LABELS)
    (race,), (first, *_) = started, clf.search_.trials
    one = race._pass_work(first.text) * len(TEXTS)
    for trial in (first, replace(first, factor=1.0)):
        for times, passes in ((2.5, 1), (5.5, 1), (6.5, 2)):
            race.budget = Budget(race.budget.race, times * one, 5)
            chosen = race._chosen(trial, 3)
            assert (chosen.passes, chosen.members) == (passes, 3)


def test_the_effort_best_is_bounded_too(started):
    texts, labels = sentences(500)
    clf = TextClassifier(effort="best").fit(texts, labels)
    check_work(clf, started[0])
    assert {trial.round for trial in clf.search_.trials} == {1, 2, 3}
    assert clf.search_.trials[clf.search_.best[0]].round == 3


def test_a_million_short_texts(started):
    rng = np.random.default_rng(0)
    letters = rng.integers(0, 500, 1_000_000)
    clf = TextClassifier().fit([f"w{n}" for n in letters], letters % 7)
    check_work(clf, started[0])
    assert clf.score(["w3", "w250"], [3, 250 % 7]) == 1


def test_budgets():
    usual, best = Budget.of(False, 1e6), Budget.of(True, 1e6)
    assert best.race == pytest.approx(10 * usual.race)
    assert best.final == pytest.approx(10 * usual.final)
    assert (usual.members, best.members) == (5, 10)
    timed = Budget.timed(2.0, 1e7)
    assert timed.race + timed.final == pytest.approx(2e7)


def test_the_third_round_never_decides_by_few_texts():
    for limit in (0.02, 0.2):
        clf = TextClassifier(time_limit=limit).fit(*sentences(2_000))
        assert all(trial.texts >= 400 for trial in clf.search_.trials if trial.round > 1)


def test_a_race_ends_with_its_share_of_the_time():
    data = sentences(2_000)
    hurried = TextClassifier(time_limit=1e-3).fit(*data).search_
    assert len(hurried.trials) == 1
    assert (hurried.chosen.passes, hurried.chosen.members) == (1, 1)
    patient = TextClassifier(time_limit=1e4, passes=1, members=2).fit(*data).search_
    assert len(patient.trials) > 5
    assert patient.chosen.members == 2


# --- edge cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [FEWEST_TEXTS - 1, FEWEST_TEXTS, FEWEST_TEXTS + 1])
def test_few_texts_follow_rules(count):
    texts, labels = TEXTS[:count], LABELS[:count]
    clf = TextClassifier().fit(texts, labels)
    assert (clf.search_ is None) == (count < FEWEST_TEXTS)
    if clf.search_ is None:
        assert clf.text_config_ == TextConfig((1, 2), True, (3, 6), "keep", "damp")
        assert (clf.engine_plan_.members, len(clf.history_.epochs)) == (5, 5)
    assert usable(clf)


def test_few_texts_respect_what_is_given():
    texts, labels = TEXTS[:20], LABELS[:20]
    given = {"subwords": None, "punctuation": "drop", "members": 2, "passes": 3}
    clf = TextClassifier(**given, learning_rate=0.3).fit(texts, labels)
    assert clf.text_config_ == TextConfig((1, 2), True, None, "drop", "damp")
    assert (clf.engine_plan_.members, len(clf.history_.epochs)) == (2, 3)
    assert clf.history_.epochs[0].learning_rate == 0.3
    patient = TextClassifier(patience=2, validation_fraction=0.2).fit(texts, labels)
    assert patient.engine_plan_.members == 1


EDGES = {
    "one class": (["some words", "others"] * 50, ["a"] * 100, False),
    "two texts": (["some words", "others"], ["a", "b"], False),
    "all empty": ([""] * 100, ["a", "b"] * 50, True),
    "all equal": (["some words"] * 100, ["a", "b"] * 50, True),
    "some empty": (["some words", "", "  ", "!"] * 30, ["a", "b", "a", "b"] * 30, True),
    "nulls": (["some words", None] * 50, ["a", "b"] * 50, True),
    "all null": ([None] * 100, ["a", "b"] * 50, True),
    "labels that occur once": (TEXTS[:100], [f"label {i}" for i in range(100)], True),
    "one other label": (TEXTS[:100], ["a"] * 99 + ["b"], True),
    "labels are bools": (TEXTS[:100], [True, False] * 50, True),
    "lists": (TEXTS[:100], [[], ["a"], ["a", "b"], ["c"]] * 25, True),
    "a single list": (TEXTS[:100], [[]] * 99 + [["a"]], False),
    "matrix": (TEXTS[:100], np.eye(4, dtype=int)[[0, 1, 2, 3] * 25], True),
    "odd bytes": (["\ud800 \x00", "\U0010ffff" * 40] * 50, ["a", "b"] * 50, True),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("effort", ["normal", "best"])
def test_edge_cases(name, effort):
    texts, labels, tried = EDGES[name]
    clf = TextClassifier(effort=effort).fit(texts, labels)
    assert (clf.search_ is not None) == tried
    assert usable(clf)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("several", [False, True])
def test_every_metric(metric, several):
    labels = [[label, "all"] for label in LABELS[:150]] if several else LABELS[:150]
    clf = TextClassifier(metric=metric).fit(TEXTS[:150], labels)
    assert clf.search_.metric == metric
    for trial in clf.search_.trials:
        assert all(s.error == s.loss for s in trial.scores) == (metric == "log_loss")
    assert clf.score(TEXTS[:150], labels) > 0.9
    assert usable(clf)


def test_weights_reach_the_trials():
    """Texts of weight zero have the wrong labels."""
    texts, labels = TEXTS[:200], LABELS[:200]
    wrong = ["wrong"] * 200
    weights = [1.0] * 200 + [0.0] * 200
    clf = TextClassifier().fit(texts + texts, labels + wrong, sample_weight=weights)
    assert "wrong" not in clf.predict(texts)
    misled = TextClassifier().fit(texts + texts, labels + wrong)
    best, worse = (min(s.error for s in c.search_.trials[0].scores) for c in (clf, misled))
    assert best != worse
    assert usable(clf)


def test_class_weights_reach_the_trials():
    texts, labels = TEXTS[:150], ["rare" if i % 10 == 0 else "usual" for i in range(150)]
    plain, even = (
        TextClassifier(class_weight=wish).fit(texts, labels) for wish in (None, "balanced")
    )
    assert plain.search_.trials[0].scores != even.search_.trials[0].scores
    assert usable(even)


def test_validation_data_is_not_trained_on(fitted):
    clf = TextClassifier().fit(TEXTS, LABELS, validation=(TEXTS[:5], LABELS[:5]))
    assert clf.search_ == fitted.search_
    assert clf.history_.epochs[-1].validation_accuracy is not None


def test_held_out_rows_are_not_seen():
    """Whatever they say, the choice is the same, and so is the model."""
    kept, held = split(len(TEXTS), 0.25, 0)
    assert len(kept) >= FEWEST_TEXTS
    texts = np.array(TEXTS, object)
    poison = texts.copy()
    poison[held] = "poison " * 50
    clf, other = (TextClassifier(validation_fraction=0.25).fit(t, LABELS) for t in (texts, poison))
    assert clf.search_ == other.search_
    alone = TextClassifier().fit(texts[kept], np.array(LABELS)[kept])
    assert alone.search_ == clf.search_
    assert clf.history_.epochs[-1].validation_loss != other.history_.epochs[-1].validation_loss


def test_labels_that_only_held_out_rows_have():
    _, held = split(len(TEXTS), 0.25, 0)
    labels = np.array(LABELS, object)
    labels[held] = "only there"
    clf = TextClassifier(validation_fraction=0.25).fit(TEXTS, labels.tolist())
    assert clf.search_ is not None
    assert "only there" in clf.classes_
    assert "only there" not in clf.predict(TEXTS)


def test_a_checkpoint_resumes_the_same_choice(tmp_path):
    class StopError(Exception):
        pass

    def stop(progress):
        if progress.epoch == 2:
            raise StopError

    texts, labels = TEXTS[:150], LABELS[:150]
    whole = TextClassifier().fit(texts, labels)
    assert whole.search_.chosen.passes > 2
    path = tmp_path / "state"
    with pytest.raises(StopError):
        TextClassifier().fit(texts, labels, checkpoint=path, callbacks=[stop])
    assert path.exists()
    resumed = TextClassifier().fit(texts, labels, checkpoint=path)
    assert resumed.search_ == whole.search_
    assert same_bits(resumed, whole)


def test_a_time_limit_excludes_a_checkpoint(tmp_path):
    clf = TextClassifier(time_limit=5)
    with pytest.raises(ValueError, match="time_limit=5 and checkpoint= exclude each other"):
        clf.fit(TEXTS, LABELS, checkpoint=tmp_path / "state")


@pytest.mark.parametrize("limit", [1e-9, 0.05])
def test_a_short_time_limit_gives_a_model(limit):
    clf = TextClassifier(time_limit=limit).fit(TEXTS, LABELS)
    assert clf.score(TEXTS, LABELS) > 0.5
    assert usable(clf)


def test_auto_is_the_cpu_without_a_gpu(fitted):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert TextClassifier(device="auto").fit(TEXTS, LABELS).search_ == fitted.search_


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"effort": "much"}, ValueError, "effort must be one of 'fast', 'normal', 'best', found"),
        ({"metric": "auc"}, ValueError, "metric must be one of 'accuracy', 'f1', 'average_prec"),
        ({"time_limit": 0}, ValueError, "time_limit must be a number of seconds above 0, found 0"),
        ({"time_limit": -1.5}, ValueError, r"above 0, found -1\.5"),
        ({"time_limit": float("nan")}, ValueError, "above 0, found nan"),
        ({"time_limit": float("inf")}, ValueError, "above 0, found inf"),
        ({"time_limit": "5"}, ValueError, "above 0, found '5'"),
        (
            {"ngrams": "foo"},
            TypeError,
            r"ngrams must be \(lowest, highest\), .*'auto', found 'foo'",
        ),
        ({"ngrams": "foo", "effort": "fast"}, TypeError, "or 'auto', found 'foo'"),
        ({"ngrams": np.array([1, 2])}, TypeError, r"ngrams must be \(lowest, highest\), for"),
        ({"ngrams": None}, TypeError, r"ngrams must be \(lowest, highest\), for"),
        ({"subwords": "none"}, TypeError, "subwords must be .* or 'auto', found 'none'"),
        ({"subwords": (5, 4)}, ValueError, r"subwords\[1\] must be a whole number from 5"),
        ({"punctuation": "some"}, ValueError, "punctuation must be one of 'drop', 'keep', found"),
        ({"passes": 0}, ValueError, "passes must be a whole number from 1 to 1,000,000, found 0"),
        ({"passes": "3"}, TypeError, "passes must be a whole number .* found '3' of type str"),
        ({"members": 0}, ValueError, "members must be a whole number from 1 to 10,000, found 0"),
        ({"members": 2.5}, TypeError, r"members must be a whole number .* found 2\.5"),
        ({"learning_rate": 0}, ValueError, "learning_rate must be above 0, found 0"),
        ({"learning_rate": float("nan")}, ValueError, "learning_rate must be above 0, found nan"),
        ({"patience": 2}, ValueError, "patience=2 needs validation data"),
        ({"validation_fraction": 1.5}, ValueError, "validation fraction must be from 0 to below 1"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_the_race(started, options, error, said):
    with pytest.raises(error, match=said):
        TextClassifier(**options).fit(TEXTS, LABELS)
    assert started == []


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        ((["x"], ["Klingon"]), "found the label 'Klingon' in the validation data, but not in"),
        ((["x"], LABELS[:2]), "found 1 validation texts, but 2 labels"),
        ((["x"], [[LABELS[0], LABELS[1]]]), "several labels|more than one label|one label per"),
    ],
)
def test_wrong_validation_data_is_refused_before_the_race(started, held_out, said):
    with pytest.raises(ValueError, match=said):
        TextClassifier().fit(TEXTS, LABELS, validation=held_out)
    assert started == []


def test_validation_data_may_come_from_iterators():
    held_out = TEXTS[:50], LABELS[:50]
    plain = TextClassifier().fit(TEXTS, LABELS, validation=held_out)
    clf = TextClassifier().fit(TEXTS, LABELS, validation=(list(held_out[0]), iter(held_out[1])))
    assert clf.history_.best.validation_loss == plain.history_.best.validation_loss


def test_a_rate_at_which_everything_diverges():
    """No trial has a score, so the rules decide; the training itself then says what is wrong."""
    with pytest.raises(ArithmeticError, match="learning rate"):
        TextClassifier(learning_rate=1e30).fit(TEXTS, LABELS)


# --- batches -----------------------------------------------------------------------------------


def test_one_batch_is_trained_as_by_fit(fitted):
    for batches in ([(TEXTS, LABELS)], iter([(TEXTS, LABELS)])):
        clf = TextClassifier().fit_batches(batches)
        assert clf.search_ == fitted.search_
        assert same_bits(clf, fitted)


def test_several_batches_follow_rules(tmp_path):
    fast = TextClassifier(effort="fast").fit(TEXTS, LABELS)
    cuts = [(0, 100), (100, 110), (110, len(TEXTS))]
    batches = [(TEXTS[a:b], LABELS[a:b]) for a, b in cuts]
    for folder, parts in ((None, batches), (tmp_path, batches), (tmp_path, [(TEXTS, LABELS)])):
        clf = TextClassifier().fit_batches(iter(parts), cache_dir=folder)
        assert clf.search_ is None
        assert clf.classes_.tolist() == fast.classes_.tolist()
        assert clf.report_.ngrams == fast.report_.ngrams
        assert clf.engine_plan_ == fast.engine_plan_
    sorted_texts = [t for _, t in sorted(zip(LABELS, TEXTS, strict=True))]
    sorted_labels = sorted(LABELS)
    halves = [(sorted_texts[i::2], sorted_labels[i::2]) for i in (0, 1)]
    together = [[row for half in halves for row in half[i]] for i in (0, 1)]
    clf = TextClassifier().fit_batches(halves)
    assert same_bits(clf, TextClassifier(effort="fast").fit(*together))


def test_no_batch_is_an_error():
    with pytest.raises(ValueError, match="found no texts to train on"):
        TextClassifier().fit_batches([])


def test_batches_are_read_when_they_are_needed():
    """Few of them are alive at a time, whatever their number."""
    alive, most = set(), 0

    class Watched(list):
        def __init__(self, number):
            super().__init__(TEXTS[number : number + 10])
            alive.add(number)
            self.number = number

        def __del__(self):
            alive.discard(self.number)

    def batches():
        nonlocal most
        for number in range(0, 100, 10):
            yield Watched(number), LABELS[number : number + 10]
            most = max(most, len(alive))

    TextClassifier().fit_batches(batches())
    assert 1 <= most <= 3


# --- it chooses well ---------------------------------------------------------------------------


def spelled(rng, ending):
    """Words that never repeat, all with the same ending."""
    letters = rng.choice(list("bcdfghjklmnpqrstvwxz"), (4, 6))
    return " ".join("".join(word) + ending for word in letters)


def test_characters_where_words_never_repeat():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    clf = TextClassifier().fit([spelled(rng, ["ande", "ieru", "oski"][n]) for n in labels], labels)
    assert clf.search_.chosen.text.subwords is not None
    assert clf.score([spelled(rng, "ieru") for _ in range(50)], [1] * 50) > 0.95


def test_languages_are_told_apart_by_characters():
    clf = TextClassifier().fit(*sentences(600))
    assert clf.search_.chosen.text.subwords is not None


def test_trigrams_where_only_they_tell():
    """'a m a' and 'b m b' against 'a m b' and 'b m a': the classes have the same bigrams."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 800)
    texts = []
    for n, first in zip(labels, rng.integers(0, 2, 800), strict=True):
        start, end = words(rng, 1, 1)
        texts.append(f"{start} {'ab'[first]} m {'ab'[first ^ n]} {end}")
    clf = TextClassifier().fit(texts, labels)
    assert clf.search_.chosen.text.ngrams == (1, 3)
    assert clf.score(["x a m a y", "x a m b y", "x b m b y"], [0, 1, 0]) == 1


@pytest.mark.parametrize("effort", ["normal", "best"])
def test_punctuation_that_tells_the_classes(effort):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    texts = [
        text + [" :-)", " :-("][n] for text, n in zip(words(rng, *[8] * 400), labels, strict=True)
    ]
    clf = TextClassifier(effort=effort).fit(texts, labels)
    assert clf.search_.chosen.text.punctuation == "keep"
    assert clf.score(["w1 w2 :-)", "w1 w2 :-("], [0, 1]) == 1


def test_punctuation_that_only_disturbs(fitted):
    """Commas between the words of a bigram that tells the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    texts = []
    for n in labels:
        order = ["left right", "right left"][n].split()
        marks = rng.choice(["", ",", ";", "!", "?", ":", "--", "..."], 2)
        texts.append(f"{order[0]}{marks[0]} {order[1]}{marks[1]}")
    clf = TextClassifier(subwords=None).fit(texts, labels)
    assert clf.search_.chosen.text.punctuation == "drop"


# --- the record of a search --------------------------------------------------------------------


def test_a_search_tells_what_it_tried(fitted):
    search = fitted.search_
    said = str(search)
    lines = said.splitlines()
    assert lines[0].split() == ["tried", "rate", "texts", "passes", "accuracy", "log", "loss"]
    assert len(lines) == len(search.trials) + 3
    assert lines[2].rstrip().endswith("chosen")
    assert sum(line.rstrip().endswith("chosen") for line in lines) == 1
    chosen = search.chosen
    assert lines[-1].startswith("Chosen: words ")
    assert lines[-1].endswith(
        f"{chosen.passes} passes, learning rate {chosen.learning_rate:.3g}, "
        f"{chosen.members} members."
    )
    assert str(replace(search, metric="f1")).splitlines()[0].split()[4:6] == ["macro", "F1"]


def test_html_is_escaped(fitted, monkeypatch):
    from hashembed.classify.choose import search as module

    html = fitted.search_._repr_html_()
    assert html.count("<tr") == len(fitted.search_.trials) + 1
    assert str(fitted.search_).splitlines()[-1] in html
    monkeypatch.setattr(module, "name_of", lambda text: "<b>&")
    html = fitted.search_._repr_html_()
    assert "<b>" not in html
    assert html.count("&lt;b&gt;&amp;") == len(fitted.search_.trials) + 1


def test_a_search_survives_json(fitted):
    best = TextClassifier(effort="best").fit(TEXTS[:100], LABELS[:100]).search_
    for search in (fitted.search_, best):
        assert Search.from_dict(json.loads(json.dumps(search.to_dict()))) == search


def test_a_search_is_drawn(fitted, tmp_path):
    pytest.importorskip("matplotlib")
    fitted.search_.plot(tmp_path / "tried.png")
    assert (tmp_path / "tried.png").read_bytes().startswith(b"\x89PNG")


def trial(number, *errors, factor=None, cost=1.0):
    scores = tuple(Score(error, error) for error in errors)
    return Trial(number, TextConfig(), factor, 100, 100, scores, cost)


def test_ranks():
    assert ranks([]) == {}
    assert ranks([trial(1)]) == {}
    found = ranks([trial(1, 0.01), trial(2, 0.4, 0.2), trial(2, 0.1, 0.3), trial(2)])
    assert found.keys() == {(1, 1), (2, 1)}  # the last round, the last pass
    assert found[1, 1] == pytest.approx(0.2 / 0.1 * 3)
    assert best_cell([trial(1, 0.2, cost=2.0), trial(1, 0.2), trial(1, 0.3, cost=0.1)]) == (1, 0)
    smooth = ranks([trial(3, 0.4, 0.2, 0.1, 0.3, factor=1.0)])  # neighbours count
    assert min(smooth, key=smooth.__getitem__) == (0, 2)
    assert len(smooth) == 4
    assert smooth[0, 2] == pytest.approx(3 * (2 + 2 * 1 + 3) / 4)


def test_model_files_keep_the_search(fitted, tmp_path):
    for options in ({}, {"for_training": True}, {"bits": 16}):
        fitted.save(tmp_path / "model", **options)
        loaded = TextClassifier.load(tmp_path / "model")
        assert loaded.search_ == fitted.search_
        assert loaded.get_params()["ngrams"] == AUTO


def test_model_files_without_a_search(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    tensors, meta = load_tensors(tmp_path / "model", KIND)
    del meta["search"]
    for name in ("effort", "metric", "time_limit"):
        del meta["params"][name]
    save_tensors(tmp_path / "old", KIND, tensors, meta)
    loaded = TextClassifier.load(tmp_path / "old")
    assert loaded.search_ is None
    assert (loaded.effort, loaded.metric, loaded.time_limit) == ("normal", "accuracy", None)
    assert np.array_equal(
        loaded.predict_proba(TEXTS), TextClassifier.load(tmp_path / "model").predict_proba(TEXTS)
    )


DAMAGED = [
    (("metric",), "auc", "metric must be one of"),
    (("best",), [99, 0], "the best trial must be"),
    (("best",), [-1, 0], "the best trial must be"),
    (("best",), [0, -1], "the best pass must be"),
    (("best",), [0, 0.5], "the best pass must be"),
    (("best",), 7, "cannot be understood: TypeError"),
    (("trials",), [], "the best trial must be"),
    (("trials",), None, "cannot be understood: TypeError"),
    (("trials", 0, "scores", 0, "error"), "x", "'x' as error"),
    (("trials", 0, "scores", 0, "loss"), float("nan"), "nan as loss"),
    (("trials", 0, "scores", 0), {}, "cannot be understood: TypeError"),
    (("trials", 0, "round"), True, "round must be"),
    (("trials", 0, "texts"), -1, "texts must be"),
    (("trials", 0, "held_out"), "x", "held_out must be"),
    (("trials", 0, "factor"), 0, "0 as factor"),
    (("trials", 0, "work"), float("inf"), "inf as work"),
    (("trials", 0, "text", "ngrams"), [0, 99], "ngrams"),
    (("chosen", "passes"), 0, "passes must be"),
    (("chosen", "learning_rate"), -1.0, "-1.0 as learning_rate"),
    (("chosen", "learning_rate"), "\x1b[31m", "as learning_rate"),
    (("chosen", "members"), 1.5, "members must be"),
    (("chosen", "text"), 7, "cannot be understood"),
    (("chosen",), {}, "cannot be understood: KeyError"),
    ((), 7, "cannot be understood: TypeError"),
    ((), [], "cannot be understood: TypeError"),
]


@pytest.mark.parametrize(("path", "value", "said"), DAMAGED, ids=str)
def test_damaged_searches_are_refused(fitted, tmp_path, path, value, said):
    fitted.save(tmp_path / "model")
    tensors, meta = load_tensors(tmp_path / "model", KIND)
    inner, (*above, last) = meta, ("search", *path)
    for key in above:
        inner = inner[key]
    inner[last] = value
    save_tensors(tmp_path / "mutant", KIND, tensors, meta)
    with pytest.raises(ModelFileError, match=re.escape(said)) as caught:
        TextClassifier.load(tmp_path / "mutant")
    assert str(tmp_path / "mutant") in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_any_damaged_search_is_refused_or_can_be_shown(fitted):
    rng, saved, refused = random.Random(0), fitted.search_.to_dict(), 0
    saved = json.loads(json.dumps(saved))
    for _ in range(2_000):
        mutant = changed(saved, rng)
        try:
            search = Search.from_dict(mutant)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            refused += 1
            continue
        assert "Chosen: " in str(search)
        assert search.chosen.command()
        assert json.loads(json.dumps(search.to_dict()))
    assert refused > 1_000


# --- anything ----------------------------------------------------------------------------------


def test_what_may_be_tried_has_what_is_given():
    given_ = Open((2, 2), AUTO, AUTO, AUTO, False, None, None, None)
    words, characters = given_.first()
    for configs in ([words, characters], given_.more(words, True), given_.more(characters, True)):
        assert configs
        assert len(set(configs)) == len(configs)
        assert all(c.ngrams == (2, 2) and not c.lowercase for c in configs)
    assert replace(words, repeats="once") in given_.more(words, False)
    all_given = Open((1, 2), None, "drop", "all", True, 1, 0.1, 1)
    assert not all_given.text
    assert all_given.first() == [TextConfig()]
    assert all(config.repeats == "all" for config in all_given.more(TextConfig(), True))


labelled = st.tuples(
    st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["a b", "c! d", "", "a, b c"])),
    st.integers(0, 3),
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    rows=st.lists(labelled, max_size=8),
    times=st.sampled_from([1, 10, 40]),
    several=st.booleans(),
    options=st.fixed_dictionaries(
        {},
        optional={
            "effort": st.sampled_from(["fast", "best"]),
            "metric": st.sampled_from(METRICS),
            "subwords": st.sampled_from([None, (1, 2)]),
            "passes": st.integers(1, 3),
            "members": st.integers(1, 2),
            "validation_fraction": st.sampled_from([0.1, 0.9]),
            "class_weight": st.just("balanced"),
            "seed": st.integers(-(2**63), 2**63 - 1),
        },
    ),
)
def test_small_sets_of_anything(rows, times, several, options):
    rows = rows * times
    texts = [text for text, _ in rows]
    labels = [[label] * (label > 0) if several else label for _, label in rows]
    clf = TextClassifier(**options)
    if not rows or (several and not any(labels)):
        with pytest.raises(ValueError, match=r"found no|no label"):
            clf.fit(texts, labels)
        return
    clf.fit(texts, labels)
    assert usable(clf, ("a b", "c!"))
    if several:
        assert {x for found in clf.predict(texts[:3]) for x in found} <= set(clf.classes_.tolist())
