"""The layers in two processes: DDP with sparse gradients, FSDP, and hashes drawn apart."""

import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.cases.ranks import leave_together
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from hashembed import HashEmbedding, HashEmbeddingBag

STEPS = 3


class Model(nn.Module):
    """Two layers of one size; its output is a loss."""

    def __init__(self, seed=None, sparse=False):
        super().__init__()
        self.table = HashEmbedding(301, 4, seed=seed, sparse=sparse)
        self.bag = HashEmbeddingBag(301, 4, seed=seed, sparse=sparse, aggregation="concat")
        for layer in (self.table, self.bag):
            nn.init.constant_(layer.importance, 0.5)  # large enough to see

    def forward(self, ids):
        return self.table(ids).square().mean() + self.bag(ids).square().mean()

    def seeds(self):
        return [self.table.seed, self.bag.seed]


def batch(rank, step):
    return torch.arange(12).view(4, 3) * (rank + 2) + step  # each process sees its own ids


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1.0)


def sparse_adam(model):
    return torch.optim.SparseAdam(list(model.parameters()), lr=0.1)


def train(model, ranks, make_optimizer=sgd):
    """On the batches of one rank, where something adds up the gradients, or of all ranks."""
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        sum(model(batch(rank, step)) / len(ranks) for rank in ranks).backward()
        optimizer.step()
    return model


def whole(model):
    """The state, with tables put together from their shards."""
    state = model.state_dict()
    return {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in state.items()}


def drawn_by(rank):
    torch.manual_seed(rank)
    return Model()


def ddp_with_drawn_hashes(rank):
    model = drawn_by(rank)
    train(DistributedDataParallel(model), [rank])
    return whole(model)


def ddp_compiled_with_drawn_hashes(rank):
    model = drawn_by(rank)
    compiled = torch.compile(model, backend="aot_eager")
    train(DistributedDataParallel(compiled), [rank])
    return {**whole(model), "seeds": torch.tensor(model.seeds())}


def ddp_with_sparse_gradients(rank):
    model = Model(seed=3, sparse=True)
    train(DistributedDataParallel(model), [rank], sparse_adam)
    assert all(p.grad.is_sparse for p in model.parameters())
    return whole(model)


def processors():
    """All processes, on the CPU also where there is a GPU."""
    return init_device_mesh("cpu", (dist.get_world_size(),))


def fsdp(rank, model=None):
    model, mesh = model or Model(seed=3), processors()
    fully_shard(model.bag, mesh=mesh)
    return whole(train(fully_shard(model, mesh=mesh), [rank]))


def fsdp_with_drawn_hashes(rank):
    return fsdp(rank, drawn_by(rank))


def fsdp_from_meta(rank):
    with torch.device("meta"):
        model = nn.Sequential(HashEmbedding(301, 4, seed=3, dtype=torch.bfloat16))
    fully_shard(model, mesh=processors())
    model.to_empty(device="cpu")
    model[0].reset_parameters()
    return whole(model)


def fsdp_that_loads_a_state(rank):
    """Into shards that were never filled, of a hash that another process drew."""
    with torch.device("meta"):
        model = nn.Sequential(HashEmbedding(301, 4))
    fully_shard(model, mesh=processors())
    model.to_empty(device="cpu")
    state = nn.Sequential(HashEmbedding(301, 4, seed=5)).state_dict()
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    return {**whole(model), "seeds": torch.tensor([model[0].seed])}


CASES = [
    ddp_with_drawn_hashes,
    ddp_compiled_with_drawn_hashes,
    ddp_with_sparse_gradients,
    fsdp,
    fsdp_with_drawn_hashes,
    fsdp_from_meta,
    fsdp_that_loads_a_state,
]


def _run_rank(rank: int, folder: str) -> None:
    warnings.filterwarnings("ignore", message="DTensor random operators")  # to_empty on the CPU
    warnings.filterwarnings("error", message="FSDP2-wrapped module")  # that returns a view
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save({case.__name__: case(rank) for case in CASES}, Path(folder) / f"rank{rank}.pt")
    leave_together(folder, rank, 2)


def test_two_processes():
    """One test, because the processes take their time to start."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_run_rank, (folder,), nprocs=2)
        ranks = [torch.load(Path(folder) / f"rank{r}.pt") for r in (0, 1)]
    for case in CASES:
        first, second = (rank[case.__name__] for rank in ranks)
        for name, value in first.items():
            assert torch.equal(value, second[name]), (case, name)
    check_training(ranks[0])
    check_drawn_hashes(ranks[1])
    check_sharded_start_and_load(ranks[1])


def in_one_process():
    """What the cases that train should come to: training on the batches of both ranks."""
    return {
        "ddp_with_drawn_hashes": train(drawn_by(0), [0, 1]),
        "ddp_compiled_with_drawn_hashes": train(drawn_by(0), [0, 1]),
        "ddp_with_sparse_gradients": train(Model(seed=3, sparse=True), [0, 1], sparse_adam),
        "fsdp": train(Model(seed=3), [0, 1]),
    }


def check_training(found):
    for case, model in in_one_process().items():
        start = Model(seed=3).table.weight
        assert (model.table.weight - start).abs().max() > 0.01
        for name, value in model.state_dict().items():
            torch.testing.assert_close(found[case][name], value, msg=f"{case}: {name}")


def check_drawn_hashes(found):
    """Those of the first rank."""
    seeds = drawn_by(0).seeds()
    assert seeds[0] != seeds[1]
    assert found["ddp_compiled_with_drawn_hashes"]["seeds"].tolist() == seeds
    for case in ("ddp_with_drawn_hashes", "fsdp_with_drawn_hashes"):
        assert found[case]["table.hash_spec"][-1] == seeds[0]
        assert found[case]["bag.hash_spec"][-1] == seeds[1]


def check_sharded_start_and_load(found):
    """As those of one process."""
    made = HashEmbedding(301, 4, seed=3, dtype=torch.bfloat16)
    for name, value in made.state_dict().items():
        assert torch.equal(found["fsdp_from_meta"][f"0.{name}"], value)
    loaded = found["fsdp_that_loads_a_state"]
    for name, value in HashEmbedding(301, 4, seed=5).state_dict().items():
        assert torch.equal(loaded[f"0.{name}"], value)
    assert loaded["seeds"].tolist() == [5]


def test_fsdp_alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        found = fsdp(0)
    finally:
        dist.destroy_process_group()
    for name, value in train(Model(seed=3), [0]).state_dict().items():
        torch.testing.assert_close(found[name], value)
