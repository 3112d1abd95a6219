"""Embeddings whose assignments of ids to rows are learned: k-means between passes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.ids.peers import PRIME, hash_of, normal

WORK = 4e10  # distances that one k-means may compute


class Clustered(nn.Module):
    """CCE: in each of four chunks a vector is the sum of an assigned row and a random row.

    `cluster` replaces the assigned rows by centroids of the present vectors and draws the random
    rows anew, which then hold the mean of what the centroids leave over.
    """

    def __init__(self, n: int, params: int, d: int, std: float = 0.1, chunks: int = 4):
        super().__init__()
        self.rows, self.chunks, self.width = max(params // d // 2, 1), chunks, d // chunks
        std /= 2**0.5
        self.assigned = normal(chunks, self.rows, self.width, std=std)
        self.random = normal(chunks, self.rows, self.width, std=std)
        self.register_buffer("assignment", torch.randint(self.rows, (n, chunks)))
        self.register_buffer("draw", torch.randint(self.rows, (n, chunks)))
        self.register_buffer("base", torch.arange(chunks) * self.rows)

    def forward(self, ids: Tensor) -> Tensor:
        first = F.embedding(self.assignment[ids] + self.base, self.assigned.flatten(0, 1))
        second = F.embedding(self.draw[ids] + self.base, self.random.flatten(0, 1))
        return (first + second).flatten(1)

    @torch.no_grad()
    def cluster(self) -> None:
        for chunk in range(self.chunks):
            first, second = self.assigned[chunk], self.random[chunk]
            vectors = first[self.assignment[:, chunk]] + second[self.draw[:, chunk]]
            centroids, nearest = k_means(vectors, self.rows)
            drawn = torch.randint_like(nearest, self.rows)
            self.assignment[:, chunk], self.draw[:, chunk] = nearest, drawn
            first.copy_(centroids)
            second.copy_(means(vectors - centroids[nearest], drawn, self.rows))


class ClusteredHash(nn.Module):
    """A hash embedding of two components, one assigned by clusters, one by a hash.

    The question is whether learned assignments would help in `HashEmbedding`: the importance
    weights stay, and start again at 1 when the assignments change.
    """

    def __init__(self, n: int, params: int, d: int, std: float = 0.1, share: float = 0.5):
        super().__init__()
        self.K = min(max(int(params * share) // 2, 1), n)
        self.rows = max((params - 2 * self.K) // d // 2, 1)
        self.assigned = normal(self.rows, d, std=std / 2**0.5)
        self.random = normal(self.rows, d, std=std / 2**0.5)
        self.importance = nn.Parameter(torch.ones(self.K, 2))
        self.register_buffer("assignment", torch.randint(self.rows, (n,)))
        self.register_buffer("numbers", torch.randint(1, PRIME, (2, 2)))
        self.n = n

    def places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The row of P and the hashed bucket."""
        row = hash_of(ids, self.numbers[:, :1], self.K)[:, 0] if self.n > self.K else ids
        return row, hash_of(ids, self.numbers[:, 1:], self.rows)[:, 0]

    def forward(self, ids: Tensor) -> Tensor:
        row, bucket = self.places(ids)
        P = F.embedding(row, self.importance)
        first = F.embedding(self.assignment[ids], self.assigned)
        return P[:, :1] * first + P[:, 1:] * F.embedding(bucket, self.random)

    @torch.no_grad()
    def cluster(self) -> None:
        ids = torch.arange(self.n, device=self.assigned.device)
        vectors = torch.cat([self(part) for part in ids.split(2**16)])
        centroids, nearest = k_means(vectors, self.rows)
        self.assignment.copy_(nearest)
        self.assigned.copy_(centroids)
        _, bucket = self.places(ids)
        self.random.copy_(means(vectors - centroids[nearest], bucket, self.rows))
        self.importance.fill_(1)


def means(vectors: Tensor, groups: Tensor, count: int) -> Tensor:
    """The mean of the vectors in each group; 0 for an empty one."""
    sums = torch.zeros(count, vectors.shape[1], device=vectors.device)
    sums.index_add_(0, groups, vectors)
    return sums / torch.bincount(groups, minlength=count).clamp(min=1).unsqueeze(-1)


def k_means(vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm from random vectors -> centroids (count, d), the nearest one of each.

    At most 25 rounds; fewer if there are so many distances that `WORK` is used up.
    """
    n = len(vectors)
    start = torch.randperm(n, device=vectors.device)[:count]
    centroids = torch.zeros(count, vectors.shape[1], device=vectors.device)
    centroids[: len(start)] = vectors[start]
    for _ in range(max(2, min(25, int(WORK / (n * count))))):
        nearest = _nearest(vectors, centroids)
        filled = torch.bincount(nearest, minlength=count) > 0
        centroids = torch.where(filled.unsqueeze(-1), means(vectors, nearest, count), centroids)
    return centroids, _nearest(vectors, centroids)


def _nearest(vectors: Tensor, centroids: Tensor) -> Tensor:
    half = centroids.square().sum(1) / 2
    rows = max(1, 2**29 // len(centroids))  # 2 GiB of distances at a time
    rows = rows if vectors.is_cuda else max(1, rows // 64)
    parts = [torch.addmm(half, v, centroids.T, alpha=-1).argmin(1) for v in vectors.split(rows)]
    return torch.cat(parts)
