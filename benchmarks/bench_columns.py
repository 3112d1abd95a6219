"""26 columns of ids, as in click logs: one hash layer beside one table for each column.

    python -m benchmarks.bench_columns                -> results/columns.csv
    python -m benchmarks.bench_columns --device cuda

A step is forward, backward and update of the tables under a small network, for 2048 rows of 26 ids.
Columns have from 100 to 1,000,000 ids, drawn like words (Zipf). torchrec's collection is measured
where torchrec is installed. `--small` is for a trial of the script.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.bench_step import summary
from benchmarks.machine import write
from hashembed import HashEmbedding
from hashembed.nn.optim import RowAdagrad

COLUMNS, ROWS, d = 26, 2048, 16
WARM_UP = 3


def sizes(small: bool) -> list[int]:
    """Ids of each column: powers of ten, evenly mixed."""
    largest = 10**4 if small else 10**6
    return [round(100 * (largest / 100) ** (i / (COLUMNS - 1))) for i in range(COLUMNS)]


def batches(count: int, of: list[int]) -> Tensor:
    """ids (count, rows, columns): rank r with probability about 1 / (r ln n)."""
    g = torch.Generator().manual_seed(0)
    n = torch.tensor(of, dtype=torch.float64)
    drawn = n ** torch.rand(count, ROWS, COLUMNS, generator=g, dtype=torch.float64)
    return drawn.long() - 1


class Tables(nn.Module):
    """A table for each column."""

    def __init__(self, of: list[int], bags: bool = False, sparse: bool = False) -> None:
        super().__init__()
        make = nn.EmbeddingBag if bags else nn.Embedding
        options = {"mode": "sum"} if bags else {}
        self.bags = bags
        self.tables = nn.ModuleList([make(n, d, sparse=sparse, **options) for n in of])

    def forward(self, ids: Tensor) -> Tensor:
        columns = [ids[:, i : i + 1] if self.bags else ids[:, i] for i in range(COLUMNS)]
        found = [table(column) for table, column in zip(self.tables, columns, strict=True)]
        return torch.stack(found, 1)


class Collection(nn.Module):
    """torchrec's `EmbeddingBagCollection`."""

    def __init__(self, of: list[int], device: str) -> None:
        super().__init__()
        from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

        self.names = [f"f{i}" for i in range(COLUMNS)]
        configs = [
            EmbeddingBagConfig(
                name=f"t{i}", embedding_dim=d, num_embeddings=n, feature_names=[self.names[i]]
            )
            for i, n in enumerate(of)
        ]
        self.tables = EmbeddingBagCollection(tables=configs, device=torch.device(device))

    def forward(self, ids: Tensor) -> Tensor:
        from torchrec import KeyedJaggedTensor

        ones = torch.ones(ids.numel(), dtype=torch.int64, device=ids.device)
        by_column = ids.T.reshape(-1)
        features = KeyedJaggedTensor(keys=self.names, values=by_column, lengths=ones)
        return self.tables(features).values().view(len(ids), COLUMNS, d)


def cases(of: list[int], device: str) -> dict[str, tuple[Callable[[], nn.Module], Callable]]:
    """Name -> a module of ids (rows, columns) -> (rows, columns, d), and its optimizer."""
    K, adagrad = sum(of), torch.optim.Adagrad

    def one_table(**options: object) -> HashEmbedding:
        return HashEmbedding(K, d, columns=COLUMNS, init="dot", seed=0, **options)

    found = {
        "26 nn.Embedding, Adagrad": (lambda: Tables(of), adagrad),
        "26 nn.Embedding(sparse=True), Adagrad": (lambda: Tables(of, sparse=True), adagrad),
        "26 nn.EmbeddingBag, Adagrad": (lambda: Tables(of, bags=True), adagrad),
        "26 hash layers, RowAdagrad": (
            lambda: nn.ModuleList([HashEmbedding(n, d, init="dot") for n in of]),
            RowAdagrad,
        ),
        "one hash layer, Adagrad": (one_table, adagrad),
        "one hash layer, RowAdagrad": (one_table, RowAdagrad),
    }
    if find_spec("torchrec") is not None:
        found["torchrec, Adagrad"] = (lambda: Collection(of, device), adagrad)
    return found


def step_times(table: nn.Module, optimizer_of: Callable, ids: Tensor, steps: int) -> list[float]:
    """Seconds of each step, without the warm-up."""
    device = ids.device
    network = nn.Sequential(nn.Linear(COLUMNS * d, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizers = [optimizer_of(table.parameters(), lr=0.01)]
    optimizers.append(torch.optim.Adam(network.parameters()))
    labels = (torch.arange(ROWS, device=device) % 2).float()
    times = []
    for i in range(steps + WARM_UP):
        start = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        batch = ids[i % len(ids)]
        if isinstance(table, nn.ModuleList):
            found = torch.stack([layer(batch[:, j]) for j, layer in enumerate(table)], 1)
        else:
            found = table(batch)
        logits = network(found.flatten(1)).squeeze(1)
        F.binary_cross_entropy_with_logits(logits, labels).backward()
        for optimizer in optimizers:
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--small", action="store_true", help="small tables; writes no result")
    options = parser.parse_args()
    of = sizes(options.small)
    ids = batches(16, of).to(options.device)
    rows = []
    for name, (table, optimizer) in cases(of, options.device).items():
        if options.only in name:
            torch.manual_seed(0)
            made = table().to(options.device)
            times = step_times(made, optimizer, ids, options.steps)
            count = sum(p.numel() for p in made.parameters())
            rows.append({"case": name, "parameters": count, **summary(times)})
            print("{case:40} {parameters:12,}  {median_ms:8.2f} ms".format(**rows[-1]), flush=True)
    if not options.small:
        write("columns.csv" if options.device == "cpu" else "columns_gpu.csv", rows)


if __name__ == "__main__":
    main()
