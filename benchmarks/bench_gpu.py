"""Hash embeddings on a CUDA GPU beside what PyTorch has, in one run.

    python -m benchmarks.bench_gpu             -> results/gpu.csv, gpu_kernels.csv, gpu_timeline.csv
    python -m benchmarks.bench_gpu --scaling   -> results/gpu_scaling.csv
    python -m benchmarks.bench_gpu --plot      -> results/gpu_scaling.png, from that file

A step is forward, cross entropy over a linear layer, backward and update: 4096 bags of 100 ids,
drawn like words (Zipf), eight batches in turn. "graph" is a CUDA graph of these eight, for all
cases that can be captured; "eager" is launched from Python, one step at a time.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.machine import RESULTS, read, write
from hashembed import HashEmbeddingBag
from hashembed.engine.labels import Labels
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec, id_keys
from hashembed.nn.engine.model import DeepModel
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam, RowSGD

BAGS, LENGTH, CLASSES, BATCHES = 4096, 100, 4, 8
K, B, k, d = 10_000_000, 1_000_000, 2, 20
DISTINCT = 5e7  # n-grams that a large set has


class PlainHashBag(nn.Module):
    """Hash embeddings as in public PyTorch code: the hash is a table."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(B, d, device="cuda") * 0.1)
        self.importance = nn.Parameter(torch.randn(K, k, device="cuda") * 0.0005)
        self.register_buffer("buckets", torch.randint(0, B, (K, k), device="cuda"))

    def forward(self, ids: Tensor) -> Tensor:
        components = F.embedding(self.buckets[ids], self.weight)  # (bags, length, k, d)
        return (components * F.embedding(ids, self.importance).unsqueeze(-1)).sum((1, 2))


def hash_bag(num_embeddings=K, num_buckets=B, num_hashes=k, width=d, **options):
    return HashEmbeddingBag(
        num_embeddings,
        width,
        num_buckets=num_buckets,
        num_hashes=num_hashes,
        seed=0,
        device="cuda",
        generator=torch.Generator("cuda").manual_seed(0),
        **options,
    )


def words(bags=BAGS, length=LENGTH) -> list[Tensor]:
    """Batches of ids (bags, length): rank r with probability about 1 / (r ln DISTINCT)."""
    g = torch.Generator("cuda").manual_seed(0)
    batches = []
    for _ in range(BATCHES):
        rank = (DISTINCT ** torch.rand(bags, length, generator=g, device="cuda")).long()
        batches.append((rank * 7_368_787) % K)
    return batches


class Step:
    """Forward, loss, backward and update of a table under a linear layer."""

    def __init__(self, table: nn.Module, optimizer: Callable, bags: int, compiled: bool):
        self.table, self.optimizer = table, optimizer(table.parameters())
        width = table(torch.zeros(1, 1, dtype=torch.int64, device="cuda")).shape[1]
        kind = next(table.parameters()).dtype
        head = nn.Linear(width, CLASSES, device="cuda", dtype=kind)
        self.head = torch.optim.Adam(head.parameters(), fused=True, capturable=True)
        labels = torch.arange(bags, device="cuda") % CLASSES

        def loss(vectors: Tensor) -> Tensor:
            return F.cross_entropy(head(vectors), labels)

        self.loss = torch.compile(loss) if compiled else loss

    def __call__(self, ids: Tensor) -> None:
        self.optimizer.zero_grad()
        self.head.zero_grad()
        self.loss(self.table(ids)).backward()
        self.optimizer.step()
        self.head.step()


def times(run: Callable[[], object], repeats=20) -> list[float]:
    """Milliseconds of each run, on the GPU's clock."""
    for _ in range(3):
        run()
    found = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return found


def graph_of(work: Callable[[Tensor], object], batches: list[Tensor]) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for ids in batches[:3]:
            work(ids)
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for ids in batches:
            work(ids)
    return graph


def graph_times(work: Callable[[Tensor], object], batches: list[Tensor]) -> list[float]:
    return [t / len(batches) for t in times(graph_of(work, batches).replay)]


def eager_times(work: Callable[[Tensor], object], batches: list[Tensor]) -> list[float]:
    turn = iter(range(10**9))
    return times(lambda: work(batches[next(turn) % len(batches)]), 40)


def summary(ms: list[float]) -> dict[str, object]:
    ms = sorted(ms)
    return {
        "median_ms": round(statistics.median(ms), 4),
        "p20_ms": round(ms[len(ms) // 5], 4),
        "p80_ms": round(ms[len(ms) * 4 // 5], 4),
    }


def copy_bandwidth() -> float:
    """GB/s, read and written, of a copy much larger than the cache."""
    x = torch.empty(2**30, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.nbytes / statistics.median(times(lambda: y.copy_(x))) / 1e6


def bytes_needed(batches: list[Tensor], state: int) -> tuple[float, float]:
    """Bytes of a forward pass and of a step, if each row that a batch touches moves once a pass.

    A step reads what a forward pass reads twice, and reads and writes touched rows with their
    `state` numbers for each number of the table.
    """
    rows = E_rows = 0
    layer = hash_bag(num_embeddings=K)
    from hashembed.nn.ops import indexing

    for ids in batches:
        found, buckets = indexing.rows_and_buckets(
            indexing.id_keys(ids.reshape(-1)), layer.hash_seeds, layer.spec
        )
        rows += found.unique().numel() / len(batches)
        E_rows += buckets.unique().numel() / len(batches)
    numbers = rows * k + E_rows * d
    ids_bytes = batches[0].numel() * 8
    forward = ids_bytes + 4 * numbers + BAGS * d * 4
    step = 2 * forward + 2 * 4 * numbers * (1 + state)
    return forward, step


def adam(parameters):
    return torch.optim.Adam(parameters, fused=True, capturable=True)


def in_backward(cls):
    return lambda parameters: cls(parameters, in_backward=True)


def standard(**options):
    return nn.EmbeddingBag(K, d, mode="sum", device="cuda", **options)


def cases():
    """name, table, optimizer, where it runs."""
    yield "nn.EmbeddingBag, Adam", standard, adam, "graph eager"
    yield (
        "nn.EmbeddingBag, SparseAdam",
        lambda: standard(sparse=True),
        torch.optim.SparseAdam,
        "eager",
    )
    yield "plain hash, Adam", PlainHashBag, adam, "graph eager"
    yield "plain hash compiled, Adam", lambda: torch.compile(PlainHashBag()), adam, "graph eager"
    yield "hashembed, Adam", hash_bag, adam, "graph eager"
    yield "hashembed, RowAdam", hash_bag, RowAdam, "eager"
    for cls in (RowAdam, RowAdagrad, RowSGD):
        yield f"hashembed, {cls.__name__} in backward", hash_bag, in_backward(cls), "graph eager"
    yield (
        "hashembed bfloat16, RowAdam in backward",
        lambda: hash_bag(dtype=torch.bfloat16),
        in_backward(RowAdam),
        "graph",
    )


def compare() -> None:
    batches = words()
    bandwidth = copy_bandwidth()
    forward_bytes, step_bytes = bytes_needed(batches, state=2)
    print(f"copy {bandwidth:.0f} GB/s; forward {forward_bytes / 1e6:.0f} MB, ", end="")
    print(f"step with Adam {step_bytes / 1e6:.0f} MB")
    rows: list[dict[str, object]] = []

    def add(case: str, what: str, how: str, ms: list[float], **more: object) -> None:
        found = summary(ms)
        if case.startswith("hashembed") and "bfloat16" not in case:
            needed = forward_bytes if what == "forward" else step_bytes
            if what == "forward" or "RowAdam" in case:
                more["GB_per_s"] = round(needed / float(found["median_ms"]) / 1e6)
        more["copy_GB_per_s"] = round(bandwidth)
        rows.append({"case": case, "what": what, "how": how, **found, **more})
        print(f"{case:42} {what:8} {how:16} {found['median_ms']:9.4f} ms", flush=True)

    forwards = (
        ("nn.EmbeddingBag", standard),
        ("plain hash", PlainHashBag),
        ("plain hash compiled", lambda: torch.compile(PlainHashBag())),
        ("hashembed", hash_bag),
        ("hashembed bfloat16", lambda: hash_bag(dtype=torch.bfloat16)),
    )
    with torch.no_grad():
        for name, make in forwards:
            table = make()
            for how, measure in (("graph", graph_times), ("eager", eager_times)):
                add(name, "forward", how, measure(table, batches))
    for name, make, optimizer, ways in cases():
        for head in ("", ", compiled head") if "RowAdam in backward" in name else ("",):
            for how, measure in (("graph", graph_times), ("eager", eager_times)):
                if how not in ways or (head and how == "eager"):
                    continue
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                step = Step(make(), optimizer, BAGS, bool(head))
                ms = measure(step, batches)
                peak = torch.cuda.max_memory_allocated() - before
                add(name, "step", how + head, ms, peak_MB=round(peak / 1e6))
                del step
    for optimizer in ("adam", "adagrad"):
        name = f"hashembed engine, {'Row' + optimizer.title()}, batches made on the GPU"
        torch.cuda.empty_cache()
        add(name, "step", "graph", engine_times(Engine(optimizer)))
    write("gpu.csv", rows)
    kernels()


class Engine:
    """Steps as `TextClassifier(device="cuda")` makes them: the batch, its loss and all updates."""

    STEPS = 128

    def __init__(self, optimizer: str):
        ids = torch.cat(words(BAGS * self.STEPS // BATCHES))
        n = len(ids)
        bags = Bags(id_keys(ids.reshape(-1).cpu().numpy()), np.arange(n + 1) * LENGTH)
        labels = Labels.single(np.arange(n) % CLASSES)
        self.model = DeepModel(HashSpec(K, B, k), d, CLASSES, optimizer=optimizer, device="cuda")
        order, rates = np.arange(n), np.full(self.STEPS, 0.001, np.float32)
        for _ in range(2):  # compiles and captures
            self.model.train(bags, labels, order, rates, batch_size=BAGS)

    def run(self) -> None:
        steps = self.model.gpu_steps
        steps.begin(BAGS * self.STEPS, 0)
        steps.run(0, np.full(self.STEPS, BAGS * LENGTH), BAGS * self.STEPS)


def engine_times(engine: Engine) -> list[float]:
    return [t / Engine.STEPS for t in times(engine.run)]


def kernels() -> None:
    """Where the time of the engine's step goes, kernel by kernel, and when; streams overlap."""
    table, timeline = [], []
    for optimizer in ("adam", "adagrad"):
        engine = Engine(optimizer)
        engine.run()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            engine.run()
            torch.cuda.synchronize()
        events = events_of(found)
        us: dict[str, list[float]] = {}
        for event in events:
            us.setdefault(event["kernel"], []).append(event["us"])
        table += [
            {
                "optimizer": optimizer,
                "kernel": name,
                "us_per_step": round(sum(times) / Engine.STEPS, 2),
                "calls": len(times) // Engine.STEPS,
            }
            for name, times in sorted(us.items(), key=lambda item: -sum(item[1]))
        ]
        ends = [i for i, event in enumerate(events) if event["kernel"] == "advance"]
        last, end = ends[Engine.STEPS // 2 - 1], ends[Engine.STEPS // 2]
        begin = events[last]["begins"] + events[last]["us"]
        for event in events[last + 1 : end + 1]:
            begins = round(event["begins"] - begin, 1)
            timeline.append({"optimizer": optimizer, **event, "begins": begins})
    write("gpu_kernels.csv", table)
    write("gpu_timeline.csv", timeline)


def short(name: str) -> str:
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name.split("<")[0].split("(")[0].strip()


def events_of(found: profile) -> list[dict]:
    """All kernels, copies and fills in the order they began: when, how long (us), which stream."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kinds = ("kernel", "gpu_memset", "gpu_memcpy")
    rows = [
        {
            "begins": event["ts"],
            "us": event["dur"],
            "stream": event["args"]["stream"],
            "kernel": short(event["name"]),
        }
        for event in events
        if event.get("cat") in kinds
    ]
    return sorted(rows, key=lambda row: row["begins"])


SWEEPS = {
    "K": [10**6, 10**7, 10**8, 10**9],
    "B": [10**4, 10**5, 10**6, 10**7],
    "d": [8, 20, 64, 256, 1024],
    "k": [1, 2, 4, 8],
    "batch": [256, 1024, 4096, 16384],
    "length": [10, 30, 100, 300, 1000],
}
USUAL = {"K": K, "B": B, "d": d, "k": k, "batch": BAGS, "length": LENGTH}


def scaling() -> None:
    rows: list[dict[str, object]] = []
    usual: dict[str, object] = {}
    for name, values in SWEEPS.items():
        for value in values:
            if value == USUAL[name] and name != "K":  # measured once
                rows.append(usual | {"what": name, "value": value})
                continue
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            sizes = {"K": K, "B": B, "k": k, "d": d} | {name: value}
            table = hash_bag(sizes["K"], sizes["B"], sizes["k"], sizes["d"])
            batches = words(
                value if name == "batch" else BAGS, value if name == "length" else LENGTH
            )
            with torch.no_grad():
                forward = summary(graph_times(table, batches))["median_ms"]
            step = Step(table, in_backward(RowAdam), len(batches[0]), False)
            found = summary(graph_times(step, batches))
            state = [s for p in table.parameters() for s in step.optimizer.state[p].values()]
            least = sum(t.nbytes for t in (*table.parameters(), *state) if isinstance(t, Tensor))
            peak = torch.cuda.max_memory_allocated() - before
            row = {"what": name, "value": value, "forward_ms": forward, **found}
            row |= {"tables_and_state_MB": round(least / 1e6), "peak_MB": round(peak / 1e6)}
            if value == USUAL[name]:
                usual = row
            rows.append(row)
            print(row, flush=True)
            del table, step, state, batches
    write("gpu_scaling.csv", rows)


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = read(RESULTS / "gpu_scaling.csv")
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axes, name in zip(panels.flat, SWEEPS, strict=True):
        mine = [row for row in rows if row["what"] == name]
        x = [int(row["value"]) for row in mine]
        axes.plot(x, [float(row["median_ms"]) for row in mine], "o-", label="step")
        axes.plot(x, [float(row["forward_ms"]) for row in mine], "o-", label="forward")
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel="ms")
        axes.set_xticks(x, [f"{v:,}" if v < 10**6 else f"1e{len(str(v)) - 1}" for v in x])
        axes.xaxis.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0, 0].legend()
    figure.suptitle(
        f"{rows[0]['gpu']}, RowAdam in backward, CUDA graph; otherwise K = {K:,}, B = {B:,}, "
        f"k = {k}, d = {d}, {BAGS} bags of {LENGTH}",
        fontsize=10,
    )
    figure.savefig(RESULTS / "gpu_scaling.png", dpi=130)
    print(f"wrote {RESULTS / 'gpu_scaling.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaling", action="store_true", help="time against every size")
    parser.add_argument("--plot", action="store_true", help="draw what --scaling found")
    arguments = parser.parse_args()
    if arguments.plot:
        plot()
    elif arguments.scaling:
        scaling()
    else:
        compare()
