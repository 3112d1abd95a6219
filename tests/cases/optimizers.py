"""Row optimizers, those of torch.optim that they are compared with, and what they train."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from hashembed import HashEmbeddingBag
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD

DECAY = {"weight_decay": 0.3}


MOMENTUM, NESTEROV = {"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}


PAIRS = {
    "sgd": (RowSGD, torch.optim.SGD),
    "adagrad": (RowAdagrad, torch.optim.Adagrad),
    "adam": (RowAdam, torch.optim.Adam),
    "adamw": (partial(RowAdamW, **DECAY), partial(torch.optim.AdamW, **DECAY)),
    "momentum": (partial(RowSGD, **MOMENTUM), partial(torch.optim.SGD, **MOMENTUM)),
    "nesterov": (partial(RowSGD, **NESTEROV), partial(torch.optim.SGD, **NESTEROV)),
}


LAZY = ("adam", "adamw", "momentum", "nesterov")  # rows move without a gradient


class Model(nn.Module):
    """Bag, then a dense layer; importance weights large enough to see."""

    def __init__(self, dtype=torch.float64, K=400, B=60, d=6, classes=3, **options):
        super().__init__()
        self.bag = HashEmbeddingBag(K, d, num_buckets=B, seed=0, **options)
        self.out = nn.Linear(d, classes)
        g = torch.Generator().manual_seed(3)
        with torch.no_grad():
            self.bag.importance.normal_(generator=g)
            self.out.weight.normal_(generator=g)
            self.out.bias.zero_()
        self.to(dtype)

    def forward(self, ids):
        return self.out(self.bag(ids))


def batches(count, size=8, length=5, seed=0):
    """Ids that repeat within a batch, and come back after some steps or never."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        ids = (torch.rand(size, length, generator=g) ** -1.5).long() - 1
        yield ids, ids.sum(1) % 3


def train(model, optimizer, data):
    for ids, labels in data:
        optimizer.zero_grad()
        F.cross_entropy(model(ids), labels).backward()
        optimizer.step()
    return model


def distance(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a, b, strict=True))


# Adam's eps is approximated; momentum is exact but for what decays by 1e10.
BOUNDS = {"adam": 1e-3, "adamw": 1e-3, "momentum": 1e-9, "nesterov": 1e-9}
