"""Predict book ratings from two ids, with tables that are a fraction of the full ones.

    python examples/recommender.py --data FOLDER

FOLDER has BX-Book-Ratings.csv of Book-Crossing: user, ISBN and rating (1 to 10; 0 is no rating).
Without --data, HASHEMBED_DATA names a folder that has the folder bookcrossing.
Needs hashembed[torch].
"""

import argparse
import csv
import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashembed import HashEmbedding
from hashembed.hashing import word_key

FILE, DIM, BATCH = "BX-Book-Ratings.csv", 16, 4096
RARE = -1  # the id that all rare ids share


def read(path: Path) -> tuple[Tensor, Tensor]:
    """-> (rows, 2) users and books, (rows,) ratings. An id is any int64; a text has a key."""
    ids, ratings, key = [], [], cache(word_key)
    with open(path, encoding="latin-1", newline="") as file:
        rows = csv.reader(file, delimiter=";", escapechar="\\")
        next(rows)
        for user, isbn, rating in rows:
            if int(rating) > 0:
                ids.append((int(user), key(isbn)))
                ratings.append(float(rating))
    return torch.tensor(ids), torch.tensor(ratings)


def share_rare(ids: Tensor, train: Tensor, least: int = 2) -> Tensor:
    """Give ids that occur in fewer than `least` training rows one common id."""
    columns = []
    for field in range(ids.shape[1]):
        counts = Counter(ids[train, field].tolist())
        columns.append([i if counts[i] >= least else RARE for i in ids[:, field].tolist()])
    return torch.tensor(columns).T


class Rater(nn.Module):
    """The vectors of a user and a book, a hidden layer, a rating."""

    def __init__(self, users: nn.Module, books: nn.Module, mean: float):
        super().__init__()
        self.users, self.books = users, books
        self.layers = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, 1))
        nn.init.constant_(self.layers[-1].bias, mean)

    def forward(self, ids: Tensor) -> Tensor:
        vectors = torch.cat([self.users(ids[:, 0]), self.books(ids[:, 1])], 1)
        return self.layers(vectors)[:, 0]


def hash_tables(ids: Tensor, fraction: float) -> list[nn.Module]:
    """A table for each column. Half of the budget is for P, half for E (k = 2)."""
    tables = []
    for field in range(ids.shape[1]):
        budget = fraction * len(ids[:, field].unique()) * DIM
        rows, buckets = max(int(budget / 2) // 2, 1), max(int(budget / 2) // DIM, 1)
        tables.append(HashEmbedding(rows, DIM, num_buckets=buckets))
    return tables


def full_tables(ids: Tensor) -> list[nn.Module]:
    """nn.Embedding, for comparison; it needs ids from 0 to n - 1."""
    tables = [nn.Embedding(int(ids[:, field].max()) + 1, DIM) for field in range(ids.shape[1])]
    for table in tables:
        nn.init.normal_(table.weight, std=0.01)
    return tables


def fit(model: nn.Module, ids: Tensor, ratings: Tensor, passes: int, rate: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(passes):
        for rows in torch.randperm(len(ids)).split(BATCH):
            optimizer.zero_grad()
            F.mse_loss(model(ids[rows]), ratings[rows]).backward()
            optimizer.step()


def report(name: str, tables: list[nn.Module], ids: Tensor, ratings: Tensor, train: Tensor,
           passes: int, rate: float) -> float:  # fmt: skip
    """Train, print one line, return the RMSE of the rows that are not for training."""
    model = Rater(*tables, float(ratings[train].mean()))
    fit(model, ids[train], ratings[train], passes, rate)
    with torch.no_grad():
        rmse = float(F.mse_loss(model(ids[~train]), ratings[~train]).sqrt())
    size = sum(p.numel() for table in tables for p in table.parameters())
    print(f"{name:34} {size:>11,} parameters   RMSE {rmse:.3f}", flush=True)
    return rmse


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--fraction", type=float, default=1 / 8, help="of the full tables' size")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.001, help="four times as much for the full")
    options = parser.parse_args(arguments)
    folder = options.data or Path(os.environ.get("HASHEMBED_DATA", ".")) / "bookcrossing"
    if not (folder / FILE).is_file():
        sys.exit(f"{folder} has no {FILE}: give the folder of Book-Crossing's files with --data")
    torch.manual_seed(0)
    ids, ratings = read(folder / FILE)
    train = torch.rand(len(ids)) < 0.9
    ranks = torch.stack([column.unique(return_inverse=True)[1] for column in ids.T], 1)
    shared = share_rare(ids, train)
    always = float(ratings[~train].sub(ratings[train].mean()).square().mean().sqrt())
    print(f"{len(ids):,} ratings; the mean rating has RMSE {always:.3f}")
    rows = (ratings, train, options.passes)
    return {
        "full": report("nn.Embedding", full_tables(ranks), ranks, *rows, 4 * options.rate),
        "hash": report(
            "HashEmbedding", hash_tables(ids, options.fraction), ids, *rows, options.rate
        ),
        "shared": report(
            "HashEmbedding, rare ids share one",
            hash_tables(shared, options.fraction),
            shared,
            *rows,
            options.rate,
        ),
    }


if __name__ == "__main__":
    main()
