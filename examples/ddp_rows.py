"""Train a hash layer and its row optimizer in several processes, with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/ddp_rows.py
    python examples/ddp_rows.py                        # one process, for comparison

Every process has the whole model and a share of each batch. Only the rows of a batch are exchanged.
On two machines, run this on both, where HOST is the name of the first:

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        examples/ddp_rows.py

The data are made up: a customer has one of five tastes, and bought ten products. About six of them
suit the taste, the others are chance. The model tells the taste from the products.
Needs hashembed[torch].
"""

import argparse
import hashlib
import os
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hashembed import HashEmbeddingBag
from hashembed.optim import RowAdam

PRODUCTS, TASTES, BOUGHT = 20_000, 5, 10
CUSTOMERS, BATCH = 8_000, 256
RATE = 0.01


def purchases(customers: int, seed: int) -> tuple[Tensor, Tensor]:
    """-> (customers, 10) ids of products, (customers,) tastes. A few products sell most."""
    g = torch.Generator().manual_seed(seed)
    tastes = torch.randint(TASTES, (customers,), generator=g)
    products = (torch.rand(customers, BOUGHT, generator=g) ** 2 * PRODUCTS).long()
    suits = torch.rand(customers, BOUGHT, generator=g) < 0.6
    of_the_taste = products // TASTES * TASTES + tastes[:, None]
    return torch.where(suits, of_the_taste, products) * 1_000_003, tastes  # any int64 is an id


def new_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    layer = HashEmbeddingBag(PRODUCTS, 16, num_buckets=2_000, dtype=dtype)
    return nn.Sequential(layer, nn.Linear(16, TASTES, dtype=dtype))


def train_pass(
    model: nn.Module, optimizer: RowAdam, data: tuple[Tensor, Tensor], number: int,
    rank: int, ranks: int,
) -> None:  # fmt: skip
    """One pass over the data; this process takes every ranks-th row of a batch."""
    ids, tastes = data
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(number))
    for rows in order.split(BATCH):
        mine = rows[rank::ranks]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[mine]), tastes[mine], reduction="sum") / len(rows)
        (loss * ranks).backward()  # DDP divides the sum of the gradients by the ranks
        optimizer.step()


@torch.no_grad()
def test(model: nn.Module) -> tuple[float, float]:
    """-> mean loss and accuracy for customers that are not for training."""
    ids, tastes = purchases(2_000, seed=1)
    logits = model(ids)
    right = (logits.argmax(1) == tastes).float().mean()
    return float(F.cross_entropy(logits, tastes)), float(right)


def different_weights(model: nn.Module, ranks: int) -> int:
    """How many processes have other weights than the first. All of them call this."""
    state = model.state_dict()  # brings all rows up to date
    found = [hashlib.sha256(b"".join(t.numpy().tobytes() for t in state.values())).digest()] * ranks
    if ranks > 1:
        dist.all_gather_object(found, found[0])
    return sum(other != found[0] for other in found)


@contextmanager
def connected():
    """The rank of this process and how many there are; torchrun says so in the environment.

    The processes end together and at once. One that ends early would break the connections of the
    others, and gloo's threads sometimes abort a process in which Python ends as usual.
    """
    if "RANK" not in os.environ:
        yield 0, 1
        return
    store, rank, ranks = next(dist.rendezvous("env://"))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    yield rank, ranks
    store.set(f"done {rank}", "")
    store.wait([f"done {other}" for other in range(ranks)])
    os._exit(0)


def train(rank: int, ranks: int, passes: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(rank)  # DDP gives all processes the weights and the hash of the first
    model = new_model(dtype)
    optimizer = RowAdam(model.parameters(), lr=RATE)  # before DDP, which then exchanges rows
    parallel = DistributedDataParallel(model) if ranks > 1 else model
    data = purchases(CUSTOMERS, seed=0)
    for number in range(passes):
        train_pass(parallel, optimizer, data, number, rank, ranks)
    optimizer.flush()  # all processes at once, before one of them reads other rows
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--save", type=Path, help="a folder for the weights of each process")
    options = parser.parse_args()
    with connected() as (rank, ranks):
        dtype = torch.float64 if options.double else torch.float32
        model = train(rank, ranks, options.passes, dtype)
        different = different_weights(model, ranks)
        if options.save:
            torch.save(model.state_dict(), options.save / f"rank{rank}.pt")
        if rank == 0:
            loss, accuracy = test(model)
            print(f"processes: {ranks}, different weights: {different}")
            print(f"test loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()
