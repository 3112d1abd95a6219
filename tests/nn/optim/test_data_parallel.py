"""Row optimizers in DistributedDataParallel: gloo, two and three real processes.

The batch of a rank may be empty, of another size, or without this layer. What must come out:

- All ranks have the same bits.
- Two ranks, which divide by 2 exactly: the bits of one process that adds up the gradients of the
  ranks' batches, in the order of the ranks.
- Always, up to rounding: one process that takes the joined batch in one pass. It adds the terms of
  a row in another order, and three ranks divide by 3.
"""

import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tests.cases.ranks import leave_together
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hashembed import HashEmbeddingBag
from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_, exchange_rows

STEPS = 8
MAKERS = {
    "sgd": partial(RowSGD, lr=0.5),
    "momentum": partial(RowSGD, lr=0.1, momentum=0.9),
    "adagrad": partial(RowAdagrad, lr=0.1),
    "rowwise": partial(RowAdagrad, lr=0.1, rowwise=True),
    "adam": partial(RowAdam, lr=0.05),
    "adamw": partial(RowAdamW, lr=0.05, weight_decay=0.1),
}


class Model(nn.Module):
    """Two hash layers, one of which a batch may leave out, and a dense layer."""

    def __init__(self, sparse=False):
        super().__init__()
        options = {"num_buckets": 40, "dtype": torch.float64, "sparse": sparse}
        self.words = HashEmbeddingBag(300, 5, seed=1, **options)
        self.users = HashEmbeddingBag(300, 5, seed=2, aggregation="concat", **options)
        self.out = nn.Linear(15, 3, dtype=torch.float64)
        g = torch.Generator().manual_seed(0)
        for p in self.parameters():
            nn.init.normal_(p, generator=g)

    def forward(self, words, offsets, users=None):
        bags = len(offsets)
        left = self.words(words, offsets)
        if users is None:
            right = left.new_zeros(bags, 10)
        else:
            right = self.users(users.view(-1, 1))
        return self.out(torch.cat([left, right], 1))


def batch(rank, step):
    """Words, offsets, users and labels of 0 to 5 documents."""
    g = torch.Generator().manual_seed(100 * step + rank)
    size = (3 * rank + step) % 6
    lengths = torch.randint(4, (size,), generator=g)
    words = (torch.rand(int(lengths.sum()), generator=g) ** -1.5).long()
    users = torch.randint(50, (size,), generator=g) + 100 * rank
    return words, lengths.cumsum(0) - lengths, users, torch.randint(3, (size,), generator=g)


def joined(batches):
    """One batch with the documents of all."""
    words, offsets, users, labels = zip(*batches, strict=True)
    before = [sum(map(len, words[:i])) for i in range(len(words))]
    starts = [o + n for o, n in zip(offsets, before, strict=True)]
    return torch.cat(words), torch.cat(starts), torch.cat(users), torch.cat(labels)


def loss_of(model, data, skip_users=False):
    words, offsets, users, labels = data
    logits = model(words, offsets, None if skip_users else users)
    return F.cross_entropy(logits, labels, reduction="sum")


def skips_users(case, rank, step):
    """A rank that does not use a layer in some steps."""
    return case == "unused" and rank == 1 and step % 3 == 1


def train_rank(rank, ranks, name, case):
    """The model after training on one rank; DDP averages the gradients."""
    sparse = case == "sparse=True"
    model = Model(sparse)
    optimizer = None if sparse else MAKERS[name](model.parameters())
    ddp = DistributedDataParallel(model, find_unused_parameters=case == "unused")
    optimizer = optimizer or MAKERS[name](ddp.parameters())
    if case == "hook":
        ddp.register_comm_hook(None, exchange_rows)
    parts = 2 if case == "accumulate" else 1
    for step in range(STEPS):
        for part in range(parts):
            data = batch(rank, step * parts + part)
            with ddp.no_sync() if part + 1 < parts else nullcontext():
                loss_of(ddp, data, skips_users(case, rank, step)).backward()
        for table in (model.words.weight, model.users.importance):
            assert table.grad.is_sparse
        if case == "clip":
            clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if case == "evaluate":  # on other rows than other ranks
            optimizer.flush()
            with torch.no_grad():
                loss_of(ddp, batch(rank, step + 100))
    return model.state_dict()


def train_alone(ranks, name, case, together):
    """The same in one process: one pass over the joined batch, or one pass for each rank."""
    model = Model()
    optimizer = MAKERS[name](model.parameters())
    parts = 2 if case == "accumulate" else 1
    for step in range(STEPS):
        for part in range(parts):
            batches = [batch(rank, step * parts + part) for rank in range(ranks)]
            if together and case != "unused":
                (loss_of(model, joined(batches)) / ranks).backward()
                continue
            for rank, data in enumerate(batches):
                loss = loss_of(model, data, skips_users(case, rank, step))
                (loss / ranks).backward()
        if case == "clip":
            clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if case == "evaluate":
            optimizer.flush()
    return model.state_dict()


# Every optimizer once, every case once.
RUNS = [
    *((name, "optimizer first") for name in MAKERS),
    *(
        ("adam", case)
        for case in ("sparse=True", "unused", "hook", "accumulate", "clip", "evaluate")
    ),
]


def _run_rank(rank: int, ranks: int, folder: str) -> None:
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    found = {run: train_rank(rank, ranks, *run) for run in RUNS}
    found["errors"] = [refusal()]
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    leave_together(folder, rank, ranks)


def refusal():
    """What one hears who creates the optimizer too late."""
    model = Model()
    ddp = DistributedDataParallel(model)
    optimizer = RowAdam(ddp.parameters())
    with torch.no_grad():
        loss_of(ddp, batch(0, 4))  # without gradients there is nothing to exchange
    try:
        loss_of(ddp, batch(0, 4))
    except RuntimeError as error:
        return str(error)
    finally:
        del optimizer
    return "none"


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_do_what_one_process_does(ranks):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_run_rank, (ranks, folder), nprocs=ranks)
        found = [torch.load(Path(folder) / f"rank{r}.pt") for r in range(ranks)]
    for name, case in RUNS:
        first = found[0][name, case]
        added = train_alone(ranks, name, case, together=False)
        together = train_alone(ranks, name, case, together=True)
        for key, start in Model().state_dict().items():
            told = f"{name}, {case}: {key}"
            for other in found[1:]:
                assert torch.equal(first[key], other[name, case][key]), told
            if start.is_floating_point():
                assert (first[key] - start).abs().max() > 0.01, told
            torch.testing.assert_close(first[key], together[key], rtol=1e-9, atol=1e-9, msg=told)
            # Dense gradients, a norm of all and sums over parts are added in other orders.
            if ranks == 2 and not key.startswith("out") and case not in ("clip", "accumulate"):
                assert torch.equal(first[key], added[key]), told
    for of_rank in found:
        assert "create the optimizer first" in of_rank["errors"][0]
