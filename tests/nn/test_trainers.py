"""Lightning and Accelerate train a model with hash layers as a plain loop does."""

import logging
import os
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tests.cases.optimizers import Model, batches, distance
from tests.cases.ranks import leave_together
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from hashembed.nn.optim import RowAdam

# Their own, about workers, loggers and older torch.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

STEPS, PARTS, CLIP = 6, 2, 0.5


def data(rank=0):
    return list(batches(STEPS * PARTS, seed=rank))


def plain_loop(autocast=False, ranks=1, dtype=torch.float32):
    """Two batches of each rank a step, clipped."""
    model = Model(dtype)
    optimizer = RowAdam(model.parameters(), lr=0.05)
    for i, of_ranks in enumerate(zip(*map(data, range(ranks)), strict=True)):
        for ids, labels in of_ranks:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(model(ids), labels)
            (loss / PARTS / ranks).backward()
        if i % PARTS == PARTS - 1:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def check(found, wanted):
    start = Model(torch.float32).state_dict()
    assert distance([found["bag.weight"]], [start["bag.weight"]]) > 0.05
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_lightning(precision, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model(torch.float32)

        def training_step(self, batch, index):
            ids, labels = batch
            return F.cross_entropy(self.model(ids), labels)

        def configure_optimizers(self):
            return RowAdam(self.parameters(), lr=0.05)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        accumulate_grad_batches=PARTS,
        gradient_clip_val=CLIP,
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(data(), batch_size=None))
    check(module.model.state_dict(), plain_loop(autocast=precision == "bf16-mixed"))


def accelerated(rank=0, ranks=1, dtype=torch.float32):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
    assert accelerator.num_processes == ranks
    model = Model(dtype)
    optimizer = RowAdam(model.parameters(), lr=0.05)
    model, optimizer = accelerator.prepare(model, optimizer)
    assert isinstance(model, DistributedDataParallel) == (ranks > 1)
    for ids, labels in data(rank):
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(ids), labels))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    return accelerator.unwrap_model(model).state_dict()


def test_accelerate():
    check(accelerated(), plain_loop())


def _accelerated_rank(rank: int, folder: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    torch.save(accelerated(rank, 2, torch.float64), Path(folder) / f"rank{rank}.pt")
    leave_together(folder, rank, 2)


def test_accelerate_in_two_processes():
    """Each has its own batches; their gradients are averaged by rows."""
    pytest.importorskip("accelerate")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_accelerated_rank, (folder,), nprocs=2)
        first, second = (torch.load(Path(folder) / f"rank{r}.pt") for r in (0, 1))
    wanted = plain_loop(ranks=2, dtype=torch.float64)
    alone = plain_loop(dtype=torch.float64)
    assert distance([wanted["bag.weight"]], [alone["bag.weight"]]) > 0.01
    for name, value in wanted.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-9)
