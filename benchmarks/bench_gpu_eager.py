"""A training step of the layers on a CUDA GPU, launched from Python one step at a time.

    python -m benchmarks.bench_gpu_eager   -> results/gpu_eager.csv

Two sizes: that of the paper's large models, and an everyday one where the host has more to do than
the GPU. Every case is measured several times, in turn with the others, because the speed of the
host varies. "output layer alone" is what is left of a step without any table: no layer can be
faster. "ordinary launches" are those of Triton, without recorded calls (`nn/ops/recorded.py`) and
without direct launches (`nn/gpu/direct.py`).
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from benchmarks.bench_gpu import (
    Step,
    adam,
    eager_times,
    graph_times,
    hash_bag,
    in_backward,
    summary,
)
from benchmarks.machine import write
from hashembed.nn.gpu import direct
from hashembed.nn.ops import recorded
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam

ROUNDS = 3
SIZES = {  # K, B, d, bags, ids in a bag
    "large": (10_000_000, 1_000_000, 20, 4096, 100),
    "everyday": (100_000, 10_000, 64, 256, 100),
}


class NoTable(nn.Module):
    """Vectors for the output layer, without a look-up."""

    def __init__(self, bags: int, d: int):
        super().__init__()
        self.vectors = torch.randn(bags, d, device="cuda")

    def forward(self, ids: Tensor) -> Tensor:
        return self.vectors[: len(ids)].clone().requires_grad_()

    def parameters(self, recurse: bool = True):
        return iter([self.vectors])


class NoOptimizer:
    """Has nothing to do."""

    def __init__(self, parameters):
        list(parameters)

    def zero_grad(self) -> None:
        pass

    def step(self) -> None:
        pass


def words(K: int, bags: int, length: int) -> list[Tensor]:
    """Batches of ids below K, drawn like words (Zipf)."""
    g = torch.Generator("cuda").manual_seed(0)
    ranks = [5e7 ** torch.rand(bags, length, generator=g, device="cuda") for _ in range(8)]
    return [(rank.long() * 7_368_787) % K for rank in ranks]


def cases(K: int, B: int, d: int, bags: int):
    """name, table, optimizer, where it runs, how its kernels are launched."""

    def standard():
        return nn.EmbeddingBag(K, d, mode="sum", device="cuda")

    def ours():
        return hash_bag(K, B, 2, d)

    yield "output layer alone", lambda: NoTable(bags, d), NoOptimizer, "graph eager", ""
    yield "nn.EmbeddingBag, Adam", standard, adam, "graph eager", ""
    yield "hashembed, Adam", ours, adam, "graph eager", ""
    for cls in (RowAdam, RowAdagrad):
        name = f"hashembed, {cls.__name__} in backward"
        yield name, ours, in_backward(cls), "graph eager", ""
    name = "hashembed, RowAdam in backward"
    yield name, ours, in_backward(RowAdam), "eager", "no recorded calls"
    yield name, ours, in_backward(RowAdam), "eager", "ordinary launches"
    yield "hashembed, Adam", ours, adam, "eager", "ordinary launches"


@contextmanager
def launching(how: str) -> Iterator[None]:
    """Some ways to launch are switched off."""
    repeats, observed = recorded.REPEATS, direct._is_observed
    try:
        if how:
            recorded.REPEATS = 10**9
        if how == "ordinary launches":
            direct._is_observed = lambda: True
        yield
    finally:
        recorded.REPEATS, direct._is_observed = repeats, observed


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for size, (K, B, d, bags, length) in SIZES.items():
            batches = words(K, bags, length)
            for name, make, optimizer, ways, launches in cases(K, B, d, bags):
                for how, measure in (("graph", graph_times), ("eager", eager_times)):
                    if how in ways:
                        torch.cuda.empty_cache()
                        with launching(launches):
                            step = Step(make(), optimizer, bags, False)
                            for number in range(12):  # compiles and records
                                step(batches[number % len(batches)])
                            times = measure(step, batches)
                        found.setdefault((size, name, how, launches), []).extend(times)
                        del step
    rows = []
    for (size, name, how, launches), times in found.items():
        row = {"size": size, "case": name, "how": how, "launches": launches, **summary(times)}
        rows.append(row)
        print(f"{size:9} {name:32} {how:6} {launches:18} {row['median_ms']:8.4f} ms")
    write("gpu_eager.csv", rows)


if __name__ == "__main__":
    main()
