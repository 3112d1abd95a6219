"""The networks of `sentence.py`, and how they are trained."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.sentence import BATCH, DROPOUT, FILTERS, STATE, WINDOWS
from hashembed import HashEmbedding
from hashembed.hashing.initial import WEIGHT_STD


class Network(nn.Module):
    """Embedding -> features of the text -> dropout -> logits."""

    def __init__(self, embedding: nn.Module, features: nn.Module, width: int, classes: int):
        super().__init__()
        self.embedding, self.features = embedding, features
        self.output = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """(texts, words) -> (texts, classes)."""
        there = (ids != 0).unsqueeze(2)  # (texts, words, 1)
        x = self.features(self.embedding(ids) * there, there)
        return self.output(F.dropout(x, DROPOUT, self.training))


class Convolution(nn.Module):
    """Filters of several widths, and the maximum of each over the text."""

    def __init__(self, dim: int):
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv1d(dim, FILTERS, w, padding=w // 2) for w in WINDOWS)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(texts, words, d) -> (texts, features)."""
        x = x.transpose(1, 2)
        return torch.cat([F.relu(f(x)).amax(2) for f in self.filters], 1)


class Recurrent(nn.Module):
    """A GRU in both directions, and the maximum of its states over the text."""

    def __init__(self, dim: int):
        super().__init__()
        self.gru = nn.GRU(dim, STATE, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(texts, words, d) -> (texts, features)."""
        states, _ = self.gru(x)
        return states.masked_fill(~there, -1.0).amax(1)  # states are above -1


def build(plan: Any, ids: int, classes: int, seed: int) -> Network:
    """The network of a `Sentence`."""
    embedding: nn.Module
    if plan.embedding == "dictionary":
        embedding = nn.Embedding(ids, plan.dim)
        nn.init.normal_(embedding.weight, std=WEIGHT_STD)
    elif plan.embedding == "hash":
        embedding = HashEmbedding(plan.size, plan.dim, num_buckets=plan.buckets, seed=seed)
    else:
        embedding = HashEmbedding(
            *(plan.buckets, plan.dim),
            num_buckets=plan.buckets,
            num_hashes=1,
            importance=False,
            seed=seed,
        )
    if plan.model == "convolution":
        return Network(embedding, Convolution(plan.dim), FILTERS * len(WINDOWS), classes)
    return Network(embedding, Recurrent(plan.dim), 2 * STATE, classes)


def batch_of(ids: Tensor) -> Tensor:
    """Drop the columns that are padding for all of these texts."""
    longest = int((ids != 0).sum(1).max())
    return ids[:, : max(longest, max(WINDOWS))]


def one_pass(
    network: Network,
    optimizer: torch.optim.Optimizer,
    ids: Tensor,
    labels: Tensor,
    order: np.ndarray,
) -> None:
    """Train on these rows, in this order."""
    network.train()
    for begin in range(0, len(order), BATCH):
        rows = torch.from_numpy(order[begin : begin + BATCH])
        optimizer.zero_grad()
        F.cross_entropy(network(batch_of(ids[rows])), labels[rows]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(network: Network, ids: Tensor, labels: Tensor) -> float:
    """The share of texts that are classified correctly."""
    network.eval()
    found = [network(batch_of(ids[i : i + 512])).argmax(1) for i in range(0, len(ids), 512)]
    return float((torch.cat(found) == labels).float().mean())
