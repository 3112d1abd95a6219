"""Two models of a user and an item: a small network and a factorisation machine."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.ids.clustered import Clustered, ClusteredHash
from benchmarks.ids.data import Task
from benchmarks.ids.ours import CutHashEmbedding, SlicedHashEmbedding, hash_embedding
from benchmarks.ids.peers import (
    FrequencyCut,
    FullTable,
    HashingTrick,
    QuotientRemainder,
    Robe,
    TensorTrain,
)

DIM = 16
METHODS: dict[str, Callable[..., nn.Module]] = {
    "full table": FullTable,
    "hash embedding": hash_embedding,
    "hash embedding, ranks": hash_embedding,
    "hash embedding, cut": CutHashEmbedding,
    "hash embedding, slices": SlicedHashEmbedding,
    "hash embedding, clustered": ClusteredHash,
    "hashing trick": HashingTrick,
    "quotient-remainder": QuotientRemainder,
    "ROBE": Robe,
    "CCE": Clustered,
    "tensor train": TensorTrain,
    "frequency cut": FrequencyCut,
}
PLAIN = {"std": 0.01}  # of the table that is not compressed
NEED_COUNTS = ("frequency cut", "hash embedding, cut")


class Network(nn.Module):
    """Both vectors, two hidden layers, one output."""

    def __init__(self, users: nn.Module, items: nn.Module, mean: float):
        super().__init__()
        self.users, self.items = users, items
        self.hidden = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.last = nn.Linear(32, 1)
        nn.init.constant_(self.last.bias, mean)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        return self.last(self.hidden(torch.cat([users, items], 1)))[:, 0]


class FactorisationMachine(nn.Module):
    """The first number of a vector is the weight of its id; the others are its factors."""

    def __init__(self, users: nn.Module, items: nn.Module, mean: float):
        super().__init__()
        self.users, self.items = users, items
        self.bias = nn.Parameter(torch.tensor(mean))

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        weights = users[:, 0] + items[:, 0]
        return self.bias + weights + (users[:, 1:] * items[:, 1:]).sum(1)


MODELS = {"network": Network, "factorisation machine": FactorisationMachine}


def build(
    task: Task, model: str, method: str, fraction: float, variant: dict, fields: str, seed: int
) -> nn.Module:
    """`fraction` of the full table's parameters, for the users, the items or "both"."""
    torch.manual_seed(seed)
    tables = []
    with torch.device(task.train.users.device):
        for field, n in (("users", task.num_users), ("items", task.num_items)):
            own, options = (method, variant) if fields in (field, "both") else ("full table", PLAIN)
            options = {name: value for name, value in options.items() if name != "clusterings"}
            if own in NEED_COUNTS:
                options["counts"] = task.counts(field)
            tables.append(METHODS[own](n, int(fraction * n * DIM), DIM, **options))
        mean = 0.0 if task.ranking else float(task.train.ratings.mean())
        return MODELS[model](*tables, mean)
