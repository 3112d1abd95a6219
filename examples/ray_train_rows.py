"""The model of ddp_rows.py under Ray Train, which goes on after a worker was lost.

    python examples/ray_train_rows.py --storage FOLDER
    python examples/ray_train_rows.py --storage FOLDER --lose-worker      # see it recover
    ray job submit --working-dir examples -- python ray_train_rows.py --storage s3://bucket/runs

Ray connects the processes with gloo. After each pass the first process reports a checkpoint: the
weights, and the state of the row optimizer. If a worker is lost, Ray starts all of them again, and
they continue with the last checkpoint, to the same bits.

All machines must reach FOLDER. RAY_ADDRESS names the cluster; `ray job submit` sets it. Without it,
Ray starts on this machine.
Needs hashembed[ray-train,torch].
"""

import argparse
import os
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ddp_rows import CUSTOMERS, RATE, different_weights, new_model, purchases, test, train_pass
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from hashembed.optim import RowAdam


def train_worker(options: dict) -> None:
    """What each process does; Ray has connected it with the others."""
    rank, ranks = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    torch.manual_seed(rank)  # DDP gives all processes the weights and the hash of the first
    model = new_model(torch.float64 if options["double"] else torch.float32)
    optimizer = RowAdam(model.parameters(), lr=RATE)  # before prepare_model, which makes it DDP
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["passes"]
    parallel = prepare_model(model)
    data = purchases(CUSTOMERS, seed=0)
    for number in range(first, options["passes"]):
        train_pass(parallel, optimizer, data, number, rank, ranks)
        optimizer.flush()  # in all processes, before the first one saves
        found = {"passes": number + 1, "continued_after": first}
        report(model, optimizer, found | {"different": different_weights(model, ranks)}, rank)
        if options["lose_worker"] and first == 0 and number == 1 and rank == 1:
            os._exit(1)  # as if its machine were gone


def report(model: torch.nn.Module, optimizer: RowAdam, found: dict, rank: int) -> None:
    """Give Ray what was found and, in the first process, a checkpoint. All processes call this."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            found["loss"], found["accuracy"] = test(model)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "passes": found["passes"]}, Path(folder, "state.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report(found, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--storage", required=True, help="folder or URI for checkpoints")
    parser.add_argument("--name", default="rows", help="of the run; a run that was stopped goes on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--lose-worker", action="store_true", help="one ends after two passes")
    options = parser.parse_args()
    wishes = {name: getattr(options, name) for name in ("passes", "double", "lose_worker")}
    storage = options.storage if "://" in options.storage else os.path.abspath(options.storage)
    ray.init(os.environ.get("RAY_ADDRESS", "local"))  # never a cluster that happens to be there
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=wishes,
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name=options.name,
            storage_path=storage,
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    result = trainer.fit()
    found = result.metrics
    if found["continued_after"]:
        print(f"training was interrupted and went on after pass {found['continued_after']}")
    print(f"processes: {options.workers}, different weights: {found['different']}")
    print(f"checkpoint: {result.checkpoint.path}")
    print(f"test loss {found['loss']:.4f}, accuracy {found['accuracy']:.1%}", flush=True)


if __name__ == "__main__":
    main()
