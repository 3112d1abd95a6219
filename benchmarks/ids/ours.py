"""`HashEmbedding` under a budget: how the parameters are divided, and where they start."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.ids.peers import PRIME, frequency_ranks, hash_of, normal
from hashembed import HashEmbedding


def hash_embedding(
    n: int,
    params: int,
    d: int,
    k: int = 2,
    share: float = 0.5,
    init: tuple[float, float, float] = (0.1, 0.0, 0.0005),
    ranks: bool = False,
) -> HashEmbedding:
    """P gets this share of the parameters, but no more rows than there are ids; E gets the rest.

    `init`: standard deviation of E, mean and standard deviation of P. `ranks`: ids are ranks of a
    dictionary, so that no two ids share a row of P if it has n rows.
    """
    K = min(max(int(params * share) // k, 1), n)
    B = max((params - K * k) // d, 1)
    indexing = "identity" if ranks and n == K else "independent"
    layer = HashEmbedding(K, d, num_buckets=B, num_hashes=k, indexing=indexing)
    E, mean, std = init
    nn.init.normal_(layer.weight, std=E)
    nn.init.normal_(layer.importance, mean=mean, std=std)
    return layer


class CutHashEmbedding(nn.Module):
    """The same with a frequency cut: the most frequent ids have rows of P, the others share one."""

    def __init__(self, n: int, params: int, d: int, counts: Tensor, share: float = 0.5, k: int = 2,
                 init: tuple[float, float, float] = (0.1, 0.0, 0.0005)):  # fmt: skip
        super().__init__()
        K = min(max(int(params * share) // k, 1), n)
        self.layer = hash_embedding(K, params, d, k, share, init, ranks=True)
        self.register_buffer("rank", frequency_ranks(counts).clamp(max=K - 1))

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.rank[ids])


class SlicedHashEmbedding(nn.Module):
    """The same with ROBE's idea: components are slices of one array and may overlap.

    Two ids then seldom have the same component, because an array of m numbers has m - d + 1 slices.
    """

    def __init__(self, n: int, params: int, d: int, share: float = 0.5, k: int = 2,
                 init: tuple[float, float, float] = (0.1, 0.0, 0.0005)):  # fmt: skip
        super().__init__()
        self.K, self.d = min(max(int(params * share) // k, 1), n), d
        E, mean, std = init
        self.array = normal(max(params - self.K * k, d), std=E)
        self.importance = nn.Parameter(mean + std * torch.randn(self.K, k))
        self.register_buffer("numbers", torch.randint(1, PRIME, (2, k + 1)))

    def forward(self, ids: Tensor) -> Tensor:
        P = F.embedding(hash_of(ids, self.numbers[:, :1], self.K)[:, 0], self.importance)
        starts = hash_of(ids, self.numbers[:, 1:], len(self.array) - self.d + 1)  # (rows, k)
        places = starts.unsqueeze(-1) + torch.arange(self.d, device=ids.device)  # (rows, k, d)
        components = torch.gather(self.array, 0, places.flatten()).view(places.shape)
        return (P.unsqueeze(-1) * components).sum(1)
