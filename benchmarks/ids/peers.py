"""Other ways to embed n ids with a given number of parameters, in plain PyTorch.

Each is written after its paper and compared with the authors' published code (see `SOURCES`). All
take ids 0 .. n-1, (rows,), and return vectors, (rows, d). `std` is the standard deviation of the
initial vectors' numbers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PRIME = 2**31 - 1
SOURCES = {
    "hashing trick": "Weinberger et al. 2009",
    "quotient-remainder": "Shi et al. 2020; facebookresearch/dlrm, tricks/qr_embedding_bag.py",
    "ROBE": "Desai et al. 2022; apd10/universal_memory_allocation, apd10/robez",
    "CCE": "Tsang and Ahle 2023; thomasahle/cce, cce/cce.py",
    "tensor train": "Yin et al. 2021 (TT-Rec); facebookresearch/FBTT-Embedding",
}


def normal(*shape: int, std: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * std)


def hash_of(ids: Tensor, numbers: Tensor, size: int) -> Tensor:
    """(a id + b) mod a prime, mod size: universal hashing, one column for each pair a, b."""
    return (ids.unsqueeze(-1) * numbers[0] + numbers[1]) % PRIME % size


class FullTable(nn.Module):
    """nn.Embedding: a row for each id. Its `params` are ignored."""

    def __init__(self, n: int, params: int, d: int, std: float = 0.1):
        super().__init__()
        self.weight = normal(n, d, std=std)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class HashingTrick(nn.Module):
    """A row for each hash value."""

    def __init__(self, n: int, params: int, d: int, std: float = 0.1):
        super().__init__()
        self.weight = normal(max(params // d, 1), d, std=std)
        self.register_buffer("numbers", torch.randint(1, PRIME, (2, 1)))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(hash_of(ids, self.numbers, len(self.weight))[:, 0], self.weight)


class QuotientRemainder(nn.Module):
    """A row for id // c and a row for id % c, multiplied or added.

    `operation` "mult" starts with the remainders' rows near 1, so that `std` is the vectors'. The
    published code starts both tables uniform in (sqrt(1 / n), 1): "published".
    """

    def __init__(self, n: int, params: int, d: int, std: float = 0.1, operation: str = "mult"):
        super().__init__()
        self.operation = operation
        rows = max(params // d, 2)
        # The smallest c for which ceil(n / c) + c rows fit, or are 2% more: with half of the rows,
        # c = 2 needs two more. If none fits, the c with the fewest rows.
        fitting = (c for c in range(max(n // rows, 1), rows) if -(-n // c) + c <= 1.02 * rows)
        self.collisions = next(fitting, round(n**0.5))
        quotients = -(-n // self.collisions)
        if operation == "published":
            self.quotient, self.remainder = (
                nn.Parameter(torch.empty(m, d).uniform_(n**-0.5, 1))
                for m in (quotients, self.collisions)
            )
        else:
            self.quotient = normal(quotients, d, std=std)
            self.remainder = normal(self.collisions, d, std=std if operation == "add" else 0.1)
            if operation == "mult":
                self.remainder.data += 1

    def forward(self, ids: Tensor) -> Tensor:
        first = F.embedding(ids // self.collisions, self.quotient)
        second = F.embedding(ids % self.collisions, self.remainder)
        return first + second if self.operation == "add" else first * second


class Robe(nn.Module):
    """Chunks of a vector are slices of one array; they start at hashed places and may overlap."""

    def __init__(self, n: int, params: int, d: int, std: float = 0.1, chunk: int = 4):
        super().__init__()
        self.chunk = chunk
        self.array = normal(max(params, chunk), std=std)
        self.register_buffer("numbers", torch.randint(1, PRIME, (2, d // chunk)))

    def forward(self, ids: Tensor) -> Tensor:
        starts = hash_of(ids, self.numbers, len(self.array) - self.chunk + 1)  # (rows, d / chunk)
        places = starts.unsqueeze(-1) + torch.arange(self.chunk, device=ids.device)
        return torch.gather(self.array, 0, places.flatten()).view(len(ids), -1)


class TensorTrain(nn.Module):
    """Three cores; id = (i1 p2 + i2) p3 + i3 takes a matrix of each and multiplies them.

    The product of the first two cores is computed for all pairs (i1, i2), which is cheaper than
    for each row of a large batch; TT-Rec's kernels reuse partial products, too.
    """

    def __init__(self, n: int, params: int, d: int, std: float = 0.1):
        super().__init__()
        if d % 4:
            raise ValueError(f"d must be a multiple of 4, found {d}")
        side = round(n ** (1 / 3)) or 1
        self.p = side, side, -(-n // side**2)
        self.q = 2, 2, d // 4
        self.rank = 1
        while self.size(self.rank + 1) <= params:
            self.rank += 1
        core = (std**2 / self.rank**2) ** (1 / 6)
        (p1, p2, p3), (q1, q2, q3), r = self.p, self.q, self.rank
        self.first = normal(p1 * q1, r, std=core)
        self.middle = normal(r, p2 * q2 * r, std=core)
        self.last = normal(p3, r * q3, std=core)

    def size(self, rank: int) -> int:
        (p1, p2, p3), (q1, q2, q3) = self.p, self.q
        return p1 * q1 * rank + rank * p2 * q2 * rank + p3 * rank * q3

    def forward(self, ids: Tensor) -> Tensor:
        (p1, p2, p3), (q1, q2, q3), r = self.p, self.q, self.rank
        pairs = (self.first @ self.middle).view(p1, q1, p2, q2, r).transpose(1, 2)
        left = F.embedding(ids // p3, pairs.reshape(p1 * p2, q1 * q2 * r)).view(-1, q1 * q2, r)
        right = F.embedding(ids % p3, self.last).view(-1, r, q3)
        return torch.bmm(left, right).flatten(1)  # (rows, q1 q2 q3)


class FrequencyCut(nn.Module):
    """The most frequent ids have a row of their own; the others share one."""

    def __init__(self, n: int, params: int, d: int, counts: Tensor, std: float = 0.1):
        super().__init__()
        rows = min(max(params // d, 1), n + 1)
        self.weight = normal(rows, d, std=std)
        self.register_buffer("row", frequency_ranks(counts).clamp(max=rows - 1))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(self.row[ids], self.weight)


def frequency_ranks(counts: Tensor) -> Tensor:
    """0 for the most frequent id, and so on."""
    return counts.argsort(descending=True, stable=True).argsort()
