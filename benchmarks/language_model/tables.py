"""Embedding tables of about the same number of parameters: modules from word ids to vectors.

Every peer of the hash layer is plain PyTorch. `std` is the standard deviation of the numbers of a
vector at the start.
"""

import torch
from torch import Tensor, nn

from hashembed import HashEmbedding

KINDS = ("full", "hash", "hashing trick", "quotient-remainder", "low rank")
# Which words share a row: words of different frequency (the ids are ranks), or any words.
VARIANTS = ("hash, first by rank", "hashing trick, by rank", "quotient-remainder, shuffled")


def make_table(
    kind: str, vocabulary: int, dim: int, share: float, std: float, hashes: int = 2
) -> nn.Module:
    """A table with at most `share` of the parameters of a full one.

    A hash table has the paper's initial values; `start` draws others.
    """
    budget = int(share * vocabulary * dim)
    if kind == "full":
        return filled(nn.Embedding(vocabulary, dim), std)
    if kind == "hash":
        buckets = (budget - vocabulary * hashes) // dim
        if buckets < hashes:
            raise ValueError(f"{budget:,} parameters are too few for {hashes} weights a word")
        return HashEmbedding(
            vocabulary, dim, num_buckets=buckets, num_hashes=hashes, indexing="identity"
        )
    if kind == "hashing trick":
        return HashingTrick(vocabulary, dim, budget // dim, std)
    if kind == "quotient-remainder":
        return QuotientRemainder(vocabulary, dim, budget // dim, std)
    if kind == "low rank":
        return LowRank(vocabulary, dim, budget // (vocabulary + dim), std)
    if kind == "hash, first by rank":
        return HashByRank(vocabulary, dim, (budget - 2 * vocabulary) // dim, std)
    if kind == "hashing trick, by rank":
        return HashingTrick(vocabulary, dim, budget // dim, std, by_rank=True)
    if kind == "quotient-remainder, shuffled":
        return QuotientRemainder(vocabulary, dim, budget // dim, std, shuffled=True)
    raise ValueError(f"unknown table {kind!r}: choose one of {', '.join((*KINDS, *VARIANTS))}")


def start(layer: HashEmbedding, weights: str, size: float, std: float) -> HashEmbedding:
    """Other initial values than the paper's.

    Args:
        layer: whose values are drawn anew.
        weights: importance weights are all `size` ("ones"), +size or -size ("signs"), or normal
            with this standard deviation ("normal"). "paper" changes nothing.
        size: of the weights.
        std: of the vectors; the components follow from it.
    """
    if weights == "paper":
        return layer
    P = layer.importance
    with torch.no_grad():
        if weights == "ones":
            P.fill_(size)
        elif weights == "signs":
            P.copy_(size * (2.0 * torch.randint(0, 2, P.shape) - 1))
        elif weights == "normal":
            P.copy_(size * torch.randn(P.shape))
        else:
            raise ValueError(f"unknown weights {weights!r}")
        layer.weight.copy_(torch.randn(layer.weight.shape) * std / (size * layer.num_hashes**0.5))
    return layer


class HashingTrick(nn.Module):
    """One of B vectors for each word, chosen at random once and for all, or by its rank."""

    def __init__(
        self, vocabulary: int, dim: int, rows: int, std: float, *, by_rank: bool = False
    ) -> None:
        super().__init__()
        self.rows = filled(nn.Embedding(rows, dim), std)
        # As many words in each row, up to one: a random hash would leave rows empty.
        order = torch.arange(vocabulary) if by_rank else torch.randperm(vocabulary)
        self.register_buffer("row_of_word", order % rows)

    def forward(self, ids: Tensor) -> Tensor:
        return self.rows(self.row_of_word[ids])


class QuotientRemainder(nn.Module):
    """The product of the vectors of quotient and remainder (Shi et al. 2020): no collisions."""

    def __init__(
        self, vocabulary: int, dim: int, rows: int, std: float, *, shuffled: bool = False
    ) -> None:
        super().__init__()
        order = torch.randperm(vocabulary) if shuffled else torch.arange(vocabulary)
        self.register_buffer("order", order)
        # The largest m with m + ceil(V / m) <= rows.
        fitting = (m for m in range(rows, 0, -1) if m + -(-vocabulary // m) <= rows)
        self.m = next(fitting, 0)
        if not self.m:
            raise ValueError(f"{rows} rows are too few for {vocabulary:,} pairs")
        self.remainders = filled(nn.Embedding(self.m, dim), std)
        self.quotients = filled(nn.Embedding(-(-vocabulary // self.m), dim), 1.0)

    def forward(self, ids: Tensor) -> Tensor:
        ids = self.order[ids]
        return self.remainders(ids % self.m) * self.quotients(ids // self.m)


class HashByRank(nn.Module):
    """A hash embedding with k = 2 whose first bucket is rank mod B, the second random."""

    def __init__(self, vocabulary: int, dim: int, rows: int, std: float) -> None:
        super().__init__()
        self.components = filled(nn.Embedding(rows, dim), std / 2**0.5)
        self.importance = nn.Parameter(torch.ones(vocabulary, 2))
        buckets = [torch.arange(vocabulary) % rows, torch.randint(0, rows, (vocabulary,))]
        self.register_buffer("buckets", torch.stack(buckets, 1))

    def forward(self, ids: Tensor) -> Tensor:
        components = self.components(self.buckets[ids])  # (..., 2, d)
        return (self.importance[ids].unsqueeze(-1) * components).sum(-2)


class LowRank(nn.Module):
    """A narrow table and a matrix that widens it (as in ALBERT)."""

    def __init__(self, vocabulary: int, dim: int, rank: int, std: float) -> None:
        super().__init__()
        self.narrow = filled(nn.Embedding(vocabulary, rank), std)
        self.widen = nn.Linear(rank, dim, bias=False)
        nn.init.normal_(self.widen.weight, std=rank**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.widen(self.narrow(ids))


def filled(table: nn.Embedding, std: float) -> nn.Embedding:
    nn.init.normal_(table.weight, std=std)
    return table
