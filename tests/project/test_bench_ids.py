"""The benchmark of ids: each table against a plain loop, the budget, the search, the data."""

import json
import math
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from benchmarks import plot_ids, report
from benchmarks.ids import clustered, jobs, page
from benchmarks.ids.data import TASKS, make_task, pack, read_sets
from benchmarks.ids.models import DIM, METHODS, MODELS, NEED_COUNTS, build
from benchmarks.ids.peers import FrequencyCut, QuotientRemainder, Robe, TensorTrain, hash_of
from benchmarks.ids.search import Run, Search, rounds_of_variants
from benchmarks.ids.training import area, train
from benchmarks.machine import RESULTS, read

N, D = 103, 16


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def sets():
    """Ratings that have an effect of the user and one of the item."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, 12_000), rng.integers(0, 40, 12_000)
    effects = rng.normal(size=60)[users] + rng.normal(size=40)[items]
    ratings = np.clip(np.round(7 + effects), 0, 10).astype(np.float32)
    columns = users.astype(np.int32), items.astype(np.int32), ratings
    return {"bookcrossing": columns, "renttherunway": columns}


@pytest.fixture(scope="module")
def task(sets):
    return make_task("renttherunway rating", sets)


def test_quotient_remainder_is_two_rows():
    for operation, combine in (("mult", torch.mul), ("add", torch.add)):
        table = QuotientRemainder(N, N * D // 2, D, operation=operation)
        c = table.collisions
        assert c == 3  # 35 + 3 rows are at most 51; 52 + 2 are 6% more
        expected = [combine(table.quotient[i // c], table.remainder[i % c]) for i in range(N)]
        torch.testing.assert_close(table(torch.arange(N)), torch.stack(expected))


@pytest.mark.parametrize("chunk", [4, 16])
def test_robe_takes_slices_of_one_array(chunk):
    table = Robe(N, N * D // 4, D, chunk=chunk)
    starts = hash_of(torch.arange(N), table.numbers, len(table.array) - chunk + 1)
    assert starts.max() + chunk <= len(table.array)
    expected = [torch.cat([table.array[s : s + chunk] for s in row]) for row in starts.tolist()]
    assert torch.equal(table(torch.arange(N)), torch.stack(expected))


def test_a_tensor_train_multiplies_one_matrix_of_each_core():
    table = TensorTrain(N, N * D // 2, D)
    (p1, p2, p3), (q1, q2, q3), r = table.p, table.q, table.rank
    first = table.first.view(p1, q1, r)
    middle = table.middle.view(r, p2, q2, r)
    last = table.last.view(p3, r, q3)
    for i in range(N):
        i1, i2, i3 = i // (p2 * p3), i // p3 % p2, i % p3
        vector = torch.einsum("as,sbt,tc->abc", first[i1], middle[:, i2], last[i3])
        torch.testing.assert_close(table(torch.tensor([i]))[0], vector.flatten())


def test_a_frequency_cut_gives_rare_ids_one_row():
    counts = torch.tensor([5, 0, 9, 1, 7, 1])
    table = FrequencyCut(6, 4 * D, D, counts)
    assert table.row.tolist() == [2, 3, 0, 3, 1, 3]


def test_k_means_finds_separate_groups():
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    truth = torch.arange(300) % 3
    vectors = centres[truth] + 0.1 * torch.randn(300, 2)
    found, nearest = min(
        (clustered.k_means(vectors, 3) for _ in range(9)),
        key=lambda f: float((vectors - f[0][f[1]]).norm()),
    )
    torch.testing.assert_close(found[nearest], centres[truth], atol=0.1, rtol=0)


@pytest.mark.parametrize("kind", [clustered.Clustered, clustered.ClusteredHash])
def test_clustering_keeps_the_vectors_nearly(kind):
    """With as many rows as distinct vectors, nothing is lost."""
    table = kind(N, 60 * D, D)
    before = table(torch.arange(N))
    table.cluster()
    after = table(torch.arange(N))
    assert (after - before).norm() < 0.6 * before.norm()
    assert not torch.equal(after, before)


@pytest.mark.parametrize("fraction", [1 / 2, 1 / 4, 1 / 8, 1 / 16])
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"full table"}))
def test_no_method_exceeds_its_parameters(method, fraction):
    n = 40_000
    counts = {"counts": torch.arange(n)} if method in NEED_COUNTS else {}
    budget = int(fraction * n * DIM)
    used = sum(p.numel() for p in METHODS[method](n, budget, DIM, **counts).parameters())
    assert 0.85 * budget < used <= 1.02 * budget


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(task, model, method):
    options = {"clusterings": 1} if "clusterings" in rounds_of_variants(method)[-1][0] else {}
    run = Run(task.name, model, method, 1 / 2, 0.02, options, test=True).on(task)
    spread = float(task.valid.ratings.std())
    assert run["loss"] < 0.95 * spread
    assert abs(run["test_loss"] - run["loss"]) < 0.3 * spread
    assert run["auc"] > 0.55


def test_ranking_tells_pairs_that_occur(sets):
    """Users of one half read books of one half: half of the other pairs are impossible."""
    users, items, ratings = sets["bookcrossing"]
    items = (items // 2 * 2 + users % 2).astype(np.int32)
    task = make_task("renttherunway ranking", {"renttherunway": (users, items, ratings)})
    options = {"init": (0.1, 0.0, 1.0)}
    model = build(task, "network", "hash embedding", 1 / 2, options, "both", 0)
    assert train(task, model, 0.05, 0).auc > 0.7


def test_area_counts_ties_as_halves():
    good, other = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    assert area(good, other) == (0.5 + 0.75) / 2


def test_a_search_climbs_to_a_rate_between_worse_ones(task):
    search = Search(task, "network", "hashing trick")
    records = list(search)
    assert all(math.isnan(record["test_loss"]) for record in records)  # test rows are not looked at
    for chosen in search.chosen:
        own = {
            r["rate"]: r["loss"]
            for r in records
            if r["fraction"] == chosen.fraction and r["variant"] == chosen.variant
        }
        assert own[chosen.rate] == min(own.values())
        assert {chosen.rate / 2, chosen.rate * 2} <= set(own)
    assert len(search.chosen) == 2
    again = Search(task, "network", "hashing trick", records)
    assert list(again) == []  # what is known is not repeated
    assert again.chosen == search.chosen


def test_files_become_tasks(tmp_path):
    books, clothes = tmp_path / "bookcrossing", tmp_path / "renttherunway"
    books.mkdir()
    clothes.mkdir()
    rows = "".join(f'"{i % 7}";"B{i % 5}";"{i % 11}"\n' for i in range(1000))
    text = '"User-ID";"ISBN";"Book-Rating"\n' + rows
    (books / "BX-Book-Ratings.csv").write_text(text, encoding="latin-1")
    rows = "".join(f"fit,{i % 9},{i % 4},{2 * (i % 6) or ''}\n" for i in range(1000))
    (clothes / "rtr.csv").write_text(f"fit,user_id,item_id,rating\n{rows}", encoding="utf8")
    sets = read_sets(tmp_path)
    pack(sets, tmp_path / "ids.npz")
    packed = read_sets(tmp_path / "ids.npz")
    for name in TASKS:
        task, same = make_task(name, sets), make_task(name, packed)
        assert torch.equal(task.test.items, same.test.items)
        parts = [len(part.users) for part in (task.train, task.valid, task.test)]
        assert sum(parts) == (909 if "book" in name else 833)
        assert (task.num_users, task.num_items) == ((7, 5) if "book" in name else (9, 4))
        assert task.counts("users").sum() == parts[0]


def test_final_runs_repeat_what_validation_chose(tmp_path):
    run = Run("bookcrossing rating", "network", "CCE", 1 / 8, 0.004, {"std": 0.1})
    lines = [{**asdict(replace(run, rate=rate)), "loss": loss} for rate, loss in ((1, 2), (3, 1))]
    (tmp_path / "search.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = jobs.finals(tmp_path)
    assert {job.run.rate for job in found} == {3}
    assert Counter(job.run.fields for job in found) == {"both": 18, "users": 6, "items": 6}
    assert all(job.run.test and job.run.seed for job in found)


def test_the_page_shows_the_result_files():
    text = page.PAGE.read_text()
    for marker, table in page.tables().items():
        shown = text.split(marker)[1].split(report.END)[0].strip()
        assert shown == table, "run python -m benchmarks.bench_ids table"


def test_the_pictures_are_drawn_from_the_result_file():
    for shade in plot_ids.INK:
        assert plot_ids.source() in plot_ids.picture(shade).read_text(), "run benchmarks.plot_ids"


def test_every_cell_has_three_seeds_and_its_parameters():
    rows = read(RESULTS / "ids.csv")
    full = {row["task"]: int(row["parameters"]) for row in rows if row["method"] == "full table"}
    for row in rows:
        assert row["seeds"] == "3"
        if row["fields"] == "both":
            budget = float(row["fraction"]) * full[row["task"]]
            assert 0.9 * budget < int(row["parameters"]) < 1.05 * budget
