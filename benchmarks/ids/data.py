"""Rating and ranking tasks from two sets of people and things, split once into three parts.

Ids are ranks 0 .. n-1 in random order. So two neighbouring ids have nothing in common, and a table
that lets neighbours share rows (quotient-remainder) gains nothing from the order of the file.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

PARTS = {"train": 0.8, "valid": 0.1, "test": 0.1}
# Task -> (set, batch size, a rating of this or more is good, rounds, patience). A round is half a
# pass; so many rounds without progress end a run. Ranking may start on a plateau, because small
# vectors have small gradients. Rent the Runway's is a long one: its runs are not ended early.
TASKS = {
    "bookcrossing rating": ("bookcrossing", 4096, 8, 40, 4),
    "bookcrossing ranking": ("bookcrossing", 8192, 8, 24, 6),
    "renttherunway rating": ("renttherunway", 4096, 10, 40, 4),
    "renttherunway ranking": ("renttherunway", 4096, 10, 24, 24),
}


@dataclass(frozen=True)
class Part:
    """Rows of a task. `ratings` are floats; a ranking task does not look at them."""

    users: Tensor  # (rows,)
    items: Tensor  # (rows,)
    ratings: Tensor  # (rows,)


@dataclass(frozen=True)
class Task:
    """Ranking: tell a pair that occurs from the same user with the item of another row."""

    name: str
    num_users: int
    num_items: int
    batch: int
    good: float
    rounds: int
    patience: int
    train: Part
    valid: Part
    test: Part

    @property
    def ranking(self) -> bool:
        return self.name.endswith("ranking")

    def counts(self, field: str) -> Tensor:
        """How often each user or item occurs in the training rows."""
        ids, n = {
            "users": (self.train.users, self.num_users),
            "items": (self.train.items, self.num_items),
        }[field]
        return torch.bincount(ids, minlength=n)


Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def read_bookcrossing(folder: Path) -> tuple[list[str], list[str], list[float]]:
    """BX-Book-Ratings.csv; a rating of 0 says that a reader has the book but did not rate it."""
    path = folder / "bookcrossing" / "BX-Book-Ratings.csv"
    with open(path, encoding="latin-1", newline="") as file:
        rows = csv.reader(file, delimiter=";", escapechar="\\")
        next(rows)
        users, items, ratings = zip(*rows, strict=True)
    return users, items, [float(rating) for rating in ratings]


def read_renttherunway(folder: Path) -> tuple[list[str], list[str], list[float]]:
    """rtr.csv; reviews without a rating get 0."""
    with open(folder / "renttherunway" / "rtr.csv", encoding="utf8", newline="") as file:
        rows = [(r["user_id"], r["item_id"], float(r["rating"] or 0)) for r in csv.DictReader(file)]
    return tuple(zip(*rows, strict=True))


READERS = {"bookcrossing": read_bookcrossing, "renttherunway": read_renttherunway}


def read_sets(source: Path) -> dict[str, Columns]:
    """Users, items and ratings of each set, from a folder of sets or a file that `pack` wrote."""
    if source.is_dir():
        found = {name: reader(source) for name, reader in READERS.items()}
        return {
            name: (_ranks(users), _ranks(items), np.array(ratings, np.float32))
            for name, (users, items, ratings) in found.items()
        }
    with np.load(source) as file:
        return {name: tuple(file[f"{name}_{i}"] for i in range(3)) for name in READERS}


def pack(sets: dict[str, Columns], path: Path) -> None:
    """One file that is small enough to be carried to another machine."""
    np.savez_compressed(path, **{f"{n}_{i}": a for n, c in sets.items() for i, a in enumerate(c)})


def make_task(name: str, sets: dict[str, Columns], device: str = "cpu") -> Task:
    """Number the ids of the rows that count, shuffle and split."""
    which, *settings = TASKS[name]
    users, items, ratings = sets[which]
    rated = ratings > 0
    users, items, ratings = users[rated], items[rated], ratings[rated]
    rng = np.random.default_rng(0)
    users, num_users = _shuffled_ranks(users, rng)
    items, num_items = _shuffled_ranks(items, rng)
    order = rng.permutation(len(users))
    ends = np.cumsum([int(share * len(order)) for share in list(PARTS.values())[:-1]])
    parts = [
        Part(*(torch.from_numpy(column[rows]).to(device) for column in (users, items, ratings)))
        for rows in np.split(order, ends)
    ]
    return Task(name, num_users, num_items, *settings, *parts)


def _ranks(names: list[str]) -> np.ndarray:
    return np.unique(names, return_inverse=True)[1].astype(np.int32)


def _shuffled_ranks(ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    distinct, ranks = np.unique(ids, return_inverse=True)
    return rng.permutation(len(distinct))[ranks].astype(np.int64), len(distinct)
