"""The examples run on small files in the format of the real ones."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def recommender():
    spec = importlib.util.spec_from_file_location("recommender", EXAMPLES / "recommender.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def books(tmp_path, recommender):
    """Ratings that follow from the user and the book; a fifth of the rows have none."""
    rng = np.random.default_rng(0)
    users, isbns = rng.integers(0, 200, 8_000), rng.integers(0, 100, 8_000)
    effects = rng.normal(size=200)[users] + rng.normal(size=100)[isbns]
    ratings = np.clip(np.round(6 + effects), 1, 10).astype(int) * (rng.random(8_000) > 0.2)
    rows = zip(users * 1_000_003, isbns, ratings, strict=True)
    lines = [f'"{user}";"{isbn:09}X";"{rating}"' for user, isbn, rating in rows]
    text = "\n".join(['"User-ID";"ISBN";"Book-Rating"', *lines])
    (tmp_path / recommender.FILE).write_text(text, encoding="latin-1")
    return tmp_path


def test_the_recommender_learns_from_its_file(recommender, books, capsys, monkeypatch):
    monkeypatch.setattr(recommender, "BATCH", 256)
    options = ["--passes", "6", "--fraction", "0.5", "--rate", "0.02"]
    found = recommender.main(["--data", str(books), *options])
    lines = capsys.readouterr().out.splitlines()
    mean = float(lines[0].split()[-1])
    assert len(lines) == 4
    for rmse in found.values():
        assert rmse < 0.7 * mean
    sizes = [int(line.split("parameters")[0].split()[-1].replace(",", "")) for line in lines[1:]]
    assert sizes[0] == 300 * recommender.DIM
    assert 0.4 * sizes[0] < sizes[1] <= 0.5 * sizes[0]


def test_rare_ids_share_one(recommender):
    import torch

    ids = torch.tensor([[5, 1], [5, 2], [7, 1], [9, 1]])
    train = torch.tensor([True, True, True, False])
    assert recommender.share_rare(ids, train).tolist() == [[5, 1], [5, -1], [-1, 1], [-1, 1]]


def test_a_missing_file_is_named(recommender, tmp_path):
    with pytest.raises(SystemExit, match=r"has no BX-Book-Ratings\.csv: give the folder"):
        recommender.main(["--data", str(tmp_path)])
