"""One training step on the CPU: stock PyTorch against hash embeddings with row optimizers.

    python -m benchmarks.bench_step             -> results/step_cpu.csv
    python -m benchmarks.bench_step --scaling   -> results/step_scaling.csv, step_scaling.png

A step is forward, backward and update of a bag of embeddings under a linear layer and cross
entropy: 1024 bags of 100 ids each, drawn like words (Zipf), the same for all cases. Every step sees
new ids, until they begin again.

All cases are measured twice. PyTorch's threads (OpenMP) spin for some milliseconds when they have
nothing to do, and keep a core from whoever needs it; with OMP_WAIT_POLICY=passive they sleep.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.machine import RESULTS, write
from hashembed import HashEmbeddingBag
from hashembed.hashing.spec import HashSpec
from hashembed.nn.ops.indexing import id_keys
from hashembed.nn.ops.reference import hash_embedding_bag
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam, RowSGD

BAGS, LENGTH, CLASSES = 1024, 100, 10
WARM_UP = 3  # steps for kernels to compile and for memory pages to be touched
K, B, k, d = 10_000_000, 1_000_000, 2, 20


class PlainHashBag(HashEmbeddingBag):
    """Hash embeddings in plain PyTorch operations."""

    def forward(self, ids: Tensor) -> Tensor:
        bags, length = ids.shape
        return hash_embedding_bag(
            id_keys(ids.reshape(-1)),
            torch.arange(bags + 1) * length,
            self.weight,
            self.importance,
            self.hash_seeds,
            HashSpec(self.num_embeddings, self.num_buckets, self.num_hashes),
            sparse=self.sparse,
        )


def words(steps: int, vocabulary: int) -> Tensor:
    """ids (steps, bags, length): rank r with probability about 1 / (r ln K), shuffled."""
    g = torch.Generator().manual_seed(0)
    ranks = (vocabulary ** torch.rand(steps, BAGS, LENGTH, generator=g, dtype=torch.float64)).long()
    return (ranks * 7_368_787) % vocabulary


def step_time(table: nn.Module, optimizer_of: Callable, ids: Tensor, repeats: int) -> list[float]:
    """Seconds of each step, without the warm-up."""
    model = nn.Sequential(table, nn.Linear(d, CLASSES))
    if isinstance(optimizer_of, tuple):
        optimizers = [optimizer_of[0](table.parameters()), optimizer_of[1](model[1].parameters())]
    else:
        optimizers = [optimizer_of(model.parameters())]
    labels = torch.arange(BAGS) % CLASSES
    times = []
    for i in range(repeats + WARM_UP):
        start = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.cross_entropy(model(ids[i % len(ids)]), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


def hash_bag(cls=HashEmbeddingBag, num_embeddings=K, num_buckets=B, **options):
    return cls(num_embeddings, d, num_buckets=num_buckets, num_hashes=k, seed=0, **options)


SPARSE_ADAM = (torch.optim.SparseAdam, torch.optim.Adam)

CASES = {
    "nn.EmbeddingBag, Adam": (lambda: nn.EmbeddingBag(K, d, mode="sum"), torch.optim.Adam, 4),
    "nn.EmbeddingBag, SparseAdam": (
        lambda: nn.EmbeddingBag(K, d, mode="sum", sparse=True),
        SPARSE_ADAM,
        8,
    ),
    "plain hash, Adam": (lambda: hash_bag(PlainHashBag), torch.optim.Adam, 8),
    "plain hash, SparseAdam": (lambda: hash_bag(PlainHashBag, sparse=True), SPARSE_ADAM, 8),
    "hashembed, Adam": (hash_bag, torch.optim.Adam, 8),
    "hashembed, SparseAdam": (lambda: hash_bag(sparse=True), SPARSE_ADAM, 8),
    "hashembed, RowAdam": (hash_bag, RowAdam, 30),
    "hashembed, RowAdagrad": (hash_bag, RowAdagrad, 30),
    "hashembed, RowSGD": (hash_bag, RowSGD, 30),
}


def summary(times: list[float]) -> dict[str, object]:
    ms = sorted(1e3 * t for t in times)
    return {
        "median_ms": round(statistics.median(ms), 2),
        "p20_ms": round(ms[len(ms) // 5], 2),
        "p80_ms": round(ms[len(ms) * 4 // 5], 2),
        "steps": len(ms),
    }


def compare(chosen: str) -> None:
    rows = []
    for waiting in ("active", "passive"):
        for name in CASES:
            if chosen in name:
                environment = {**os.environ, "OMP_WAIT_POLICY": waiting}
                if waiting == "active":
                    del environment["OMP_WAIT_POLICY"]  # not the same: it would spin forever
                order = [sys.executable, "-m", "benchmarks.bench_step", "--case", name]
                done = subprocess.run(order, check=True, stdout=subprocess.PIPE, env=environment)
                rows.append({"case": name, "idle_threads": waiting, **json.loads(done.stdout)})
                form = "{case:30} {idle_threads:8} {median_ms:9.2f} ms  ({p20_ms} to {p80_ms})"
                print(form.format(**rows[-1]), flush=True)
    write("step_cpu.csv", rows)


def one_case(name: str) -> None:
    table, optimizer, repeats = CASES[name]
    print(json.dumps(summary(step_time(table(), optimizer, words(32, K), repeats))))


def scaling() -> None:
    ids = words(32, K)  # the same ids for every size of table
    rows = []
    for size in (10**5, 10**6, 10**7, 10**8):
        for name, optimizer in (("RowAdam", RowAdam), ("RowSGD", RowSGD)):
            table = hash_bag(num_embeddings=size, num_buckets=size // 10)
            times = step_time(table, optimizer, ids, 30)
            rows.append({"optimizer": name, "K": size, "B": size // 10, **summary(times)})
            print("{optimizer:8} K = {K:11,}  {median_ms:8.2f} ms".format(**rows[-1]))
    write("step_scaling.csv", rows)

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name in ("RowAdam", "RowSGD"):
        mine = [row for row in rows if row["optimizer"] == name]
        axes.plot([row["K"] for row in mine], [row["median_ms"] for row in mine], "o-", label=name)
    axes.set(xscale="log", ylim=(0, None), xlabel="K (B = K / 10)", ylabel="ms a step")
    axes.set_title(f"{BAGS} bags of {LENGTH} ids, k = {k}, d = {d}")
    axes.legend()
    figure.savefig(RESULTS / "step_scaling.png", dpi=150)
    print(f"wrote {RESULTS / 'step_scaling.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaling", action="store_true", help="K from 1e5 to 1e8")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--case", choices=CASES, help="measure this one and print JSON")
    parser.add_argument("--threads", type=int, help="threads, instead of PyTorch's choice")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.case:
        one_case(arguments.case)
    elif arguments.scaling:
        scaling()
    else:
        compare(arguments.only)
