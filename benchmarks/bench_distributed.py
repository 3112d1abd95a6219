"""A Ray cluster of two nodes on one machine, beside one process: overhead, bytes, memory, faults.

    python -m benchmarks.bench_distributed --data FOLDER [--texts 10000000] [STAGE ...]

    overhead    keys and predictions of short texts: one process, and two nodes of one core each
    shards      one of N parts of the texts alone, by one core
    bytes       what a stage sends between processes, for each text
    train       the speed of a pass
    recover     predictions while a node is killed
    link        blocks of text that arrive over a link of 1 and of 10 Gb/s (Linux, root)

The texts are those of news_category, emotions and langid_commonvoice, again and again, in random
order. Two nodes on two cores cannot be faster than one process: what is shown is what a cluster
costs. -> results/distributed.csv; `benchmarks.plan_cluster` turns it into a plan for many nodes.
"""

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import RESULTS, table

SETS = ("news_category", "emotions", "langid_commonvoice")
FILE_ROWS = 100_000
STORE = 1 << 30
BRIDGE = ("10.77.0.1", "10.77.0.2")
NAMES = ["stage", "what", "texts", "where", "value", "unit"]


class Bench:
    def __init__(self, folder: Path, texts: int, write) -> None:
        self.folder, self.texts, self.write = folder, texts, write

    def add(self, stage: str, what: str, where: str, value: float, unit: str, texts=None) -> None:
        row = [stage, what, texts or self.texts, where, f"{value:.6g}", unit]
        self.write(row)
        print(*row, flush=True)

    @property
    def files(self) -> list[str]:
        return sorted(map(str, (self.folder / "texts").glob("*.parquet")))


def make_corpus(data: Path, folder: Path, texts: int) -> None:
    """Files of 100,000 short texts each, and a model trained on them."""
    from hashembed import TextClassifier
    from hashembed.readers import read

    found: list[str] = []
    labels: list[str] = []
    for name in SETS:
        rows = read(data / name / "train.csv")
        found += rows.texts.to_pylist()
        labels += [f"{name}:{label}" for label in rows.labels.to_pylist()]
    rng = np.random.default_rng(0)
    (folder / "texts").mkdir(parents=True)
    for number in range(texts // FILE_ROWS):
        chosen = rng.integers(len(found), size=FILE_ROWS)
        rows = {"text": [found[i] for i in chosen], "label": [labels[i] for i in chosen]}
        start = number * FILE_ROWS
        rows["id"] = np.arange(start, start + FILE_ROWS)
        pq.write_table(pa.table(rows), folder / "texts" / f"{number:04d}.parquet")
    few = rng.integers(len(found), size=200_000)
    clf = TextClassifier(effort="fast").fit([found[i] for i in few], [labels[i] for i in few])
    clf.save(folder / "model.safetensors")


@contextmanager
def cluster(nodes: int = 2, **options):
    """Nodes of one core each on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    found = Cluster()
    try:
        for _ in range(nodes):
            found.add_node(num_cpus=1, object_store_memory=STORE, **options)
        ray.init(address=found.address, logging_level="error", log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


def dataset(bench: Bench):
    import hashembed.distributed as hd

    return hd.read(bench.files, text="text", label="label", keep=["id"])


def keys_here(bench: Bench, files=None, threads: int = 2) -> float:
    """Read texts, hash them and write the keys, in this process."""
    from hashembed.core.locations import write_location
    from hashembed.distributed.keys import part_bytes
    from hashembed.readers import read
    from hashembed.text.config import TextConfig
    from hashembed.text.pipeline import text_to_bags

    out = bench.folder / "keys-here"
    start = time.perf_counter()
    for number, file in enumerate(files or bench.files):
        rows = read(file, text="text", label="label")
        bags = text_to_bags(rows.texts, TextConfig((1, 2)), threads)
        made = part_bytes([bags], rows.labels)
        write_location(str(out / f"{number}"), made, sync=False)
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds


def predict_here(bench: Bench, files=None, threads: int = 2) -> float:
    """Read texts, answer them and write the answers, in this process."""
    from hashembed import TextClassifier
    from hashembed.distributed.answers import answer_columns
    from hashembed.readers import read_texts

    clf = TextClassifier.load(bench.folder / "model.safetensors", threads=threads)
    out = bench.folder / "answers-here"
    out.mkdir()
    start = time.perf_counter()
    for number, file in enumerate(files or bench.files):
        rows = read_texts(file, text="text", keep=["id"])
        label, _ = answer_columns(clf, pa.concat_arrays(rows.texts.chunks), None, 1, False)
        answers = pa.table({"id": rows.kept["id"], "prediction": label})
        pq.write_table(answers, out / f"{number}.parquet")
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds


def keys_there(bench: Bench) -> float:
    from hashembed.distributed.columns import Columns
    from hashembed.distributed.keys import make_keys
    from hashembed.text.config import TextConfig

    ds = dataset(bench)
    start = time.perf_counter()
    columns = Columns.of(ds, "text", "label")
    parts = make_keys(ds, columns, TextConfig((1, 2)), str(bench.folder / "keys-there"))
    seconds = time.perf_counter() - start
    assert parts.rows == bench.texts
    shutil.rmtree(bench.folder / "keys-there")
    return seconds


def predict_there(bench: Bench, during=None) -> float:
    import hashembed.distributed as hd
    from hashembed import TextClassifier

    clf = TextClassifier.load(bench.folder / "model.safetensors")
    out = bench.folder / "answers-there"
    start = time.perf_counter()
    if during is not None:
        threading.Thread(target=during, daemon=True).start()
    hd.predict(clf, dataset(bench), keep=["id"]).write_parquet(str(out))
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds


@contextmanager
def watched(bench: Bench, what: str):
    """Record the most memory of the driver and of any worker."""
    import psutil

    most, stop = {"driver": 0, "worker": 0}, threading.Event()

    def watch() -> None:
        own = psutil.Process()
        while not stop.wait(0.1):
            most["driver"] = max(most["driver"], own.memory_full_info().uss)
            for process in psutil.process_iter(["cmdline"]):
                line = process.info["cmdline"]
                if line and line[0].startswith("ray::"):
                    try:
                        most["worker"] = max(most["worker"], process.memory_full_info().uss)
                    except psutil.Error:
                        continue

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    for where, size in most.items():
        bench.add("memory", what, where, size / 1e6, "MB")


def overhead(bench: Bench) -> None:
    for what, here, there in (
        ("keys", keys_here, keys_there),
        ("predict", predict_here, predict_there),
    ):
        alone = min(here(bench) for _ in range(2))
        bench.add("overhead", what, "one process, 2 threads", alone, "s")
        with cluster():
            there(bench)  # workers start and import
            together = min(there(bench) for _ in range(2))
            with watched(bench, what):
                there(bench)
        bench.add("overhead", what, "two nodes of 1 core", together, "s")
        bench.add("overhead", what, "two nodes / one process", together / alone, "ratio")


def shards(bench: Bench) -> None:
    files = bench.files
    for count in (1, 2, 4, 8, 16, 32, 64):
        part = files[:: max(1, count)][: max(1, len(files) // count)]
        rows = len(part) * FILE_ROWS
        for what, work in (("keys", keys_here), ("predict", predict_here)):
            bench.add("shards", what, f"1 of {count}", work(bench, part, 1), "s", rows)


def sent(bench: Bench) -> None:
    """Bytes of what tasks get and give, for one group of blocks."""
    from hashembed import TextClassifier
    from hashembed.distributed.keys import part_bytes
    from hashembed.text.config import TextConfig
    from hashembed.text.pipeline import text_to_bags

    rows = pq.read_table(bench.files[0])
    n = len(rows)
    bench.add("bytes", "text and label", "a text", rows.select(["text", "label"]).nbytes / n, "B")
    bags = text_to_bags(rows["text"], TextConfig((1, 2)))
    bench.add("bytes", "n-grams", "a text", len(bags.keys) / n, "n-grams")
    keys = part_bytes([bags], rows["label"].combine_chunks())
    bench.add("bytes", "keys in storage", "a text", keys.size / n, "B")
    clf = TextClassifier.load(bench.folder / "model.safetensors")
    bench.add("bytes", "model", "a node", len(pickle.dumps(clf)), "B")
    tally = clf.tally(rows["text"], rows["label"])
    bench.add("bytes", "measures, few texts", "a text", len(pickle.dumps(tally)) / n, "B")
    bench.add("bytes", "sketch of counts", "a group of 32 MiB", 2.0 * (1 << 24), "B")


def train(bench: Bench) -> None:
    """The speed of a training, after keys were made."""
    from hashembed import TextClassifier

    rows = pa.concat_tables([pq.read_table(file) for file in bench.files[:10]])
    for threads, where in ((1, "one core"), (2, "two cores")):
        clf = TextClassifier(effort="fast", ngrams=(1, 2), passes=1, threads=threads)
        clf.fit(rows["text"], rows["label"])
        speed = clf.report_.ngrams / clf.history_.epochs[0].seconds / 1e6
        bench.add("train", "one pass", where, speed, "M n-grams/s", len(rows))


def recover(bench: Bench) -> None:
    with cluster() as found:
        predict_there(bench)
        plain = predict_there(bench)
        bench.add("recover", "predict", "nothing happens", plain, "s")

        def lose() -> None:
            time.sleep(plain / 2)
            found.remove_node(found.list_all_nodes()[-1], allow_graceful=False)

        lost = predict_there(bench, lose)
        bench.add("recover", "predict", "one of two nodes is killed halfway", lost, "s")


@contextmanager
def bridge(rate: str | None):
    """A network namespace behind a link of this rate."""

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    inside = ("ip", "netns", "exec", "hashembed")
    run("ip", "netns", "add", "hashembed")
    try:
        run("ip", "link", "add", "hashembed0", "type", "veth", "peer", "name", "hashembed1")
        run("ip", "link", "set", "hashembed1", "netns", "hashembed")
        run("ip", "addr", "add", f"{BRIDGE[0]}/24", "dev", "hashembed0")
        run("ip", "link", "set", "hashembed0", "up")
        run(*inside, "ip", "addr", "add", f"{BRIDGE[1]}/24", "dev", "hashembed1")
        run(*inside, "ip", "link", "set", "hashembed1", "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        if rate is not None:
            limit = ("root", "tbf", "rate", rate, "burst", "4mb", "latency", "50ms")
            run("tc", "qdisc", "add", "dev", "hashembed0", *limit)
            run(*inside, "tc", "qdisc", "add", "dev", "hashembed1", *limit)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", "hashembed"], check=False)
        subprocess.run(["ip", "link", "del", "hashembed0"], check=False, capture_output=True)


LINKED = """
import json, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, ray
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags
ray.init(address=sys.argv[1], logging_level="error", log_to_driver=False)
rows = pa.concat_tables([pq.read_table(f, columns=["text"]) for f in sys.argv[2:]])
blocks = [ray.put(rows.slice(i, 25_000).combine_chunks()) for i in range(0, len(rows), 25_000)]

@ray.remote(resources={"far": 1}, num_cpus=1)
def hash_block(block):
    return len(text_to_bags(block["text"], TextConfig((1, 2)), 1).keys)

ray.get(hash_block.remote(blocks[0]))
start = time.perf_counter()
waiting, keys = [], 0
for block in blocks:
    waiting.append(hash_block.remote(block))
    if len(waiting) > 4:
        keys += ray.get(waiting.pop(0))
keys += sum(ray.get(waiting))
seconds = time.perf_counter() - start
print(json.dumps([seconds, len(rows), rows.nbytes, keys]))
"""


def link(bench: Bench) -> None:
    """Texts of one node are hashed by another, behind a limited link."""
    ray = str(Path(sys.executable).parent / "ray")
    root = str(Path(__file__).parents[1])
    for rate in ("1gbit", "10gbit", None):
        with bridge(rate) as inside, tempfile.TemporaryDirectory() as temporary:
            # Nobody else reaches these addresses, so the nodes need no password.
            own = {**os.environ, "PYTHONPATH": root, "RAY_TMPDIR": temporary}
            own["RAY_AUTH_MODE"] = "disabled"
            head = f"{BRIDGE[0]}:6399"
            options = ["--num-cpus", "1", "--object-store-memory", str(STORE), "--block"]
            options += ["--disable-usage-stats", "--include-dashboard", "false"]
            started = [ray, "start", "--head", "--port", "6399", "--node-ip-address", BRIDGE[0]]
            far = [*inside, ray, "start", "--address", head, "--node-ip-address", BRIDGE[1]]
            far += ["--resources", '{"far": 1}']
            nodes = []
            try:
                for command in ([*started, *options], [*far, *options[:-2]]):
                    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                    nodes.append(subprocess.Popen(command, env=own, **silent))
                    time.sleep(10)
                command = [sys.executable, "-c", LINKED, head, *bench.files[:10]]
                done = subprocess.run(
                    command, text=True, timeout=200, check=True, stdout=subprocess.PIPE, env=own
                )
                seconds, rows, size, _ = json.loads(done.stdout.splitlines()[-1])
            finally:
                for node in reversed(nodes):
                    node.terminate()
                    node.wait(60)
        where = "no limit" if rate is None else f"{rate.removesuffix('gbit')} Gb/s"
        bench.add("link", "texts hashed behind a link", where, rows / seconds, "texts/s", rows)
        bench.add("link", "bytes over the link", where, 8 * size / seconds / 1e9, "Gb/s", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("HASHEMBED_DATA")
    parser.add_argument("--data", type=Path, default=default, required=default is None)
    parser.add_argument("--results", type=Path, default=RESULTS / "distributed.csv")
    parser.add_argument("--texts", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="keep the texts here for the next run")
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="hashembed-bench-"))
    if not (folder / "model.safetensors").exists():
        make_corpus(args.data, folder, args.texts)
    work = {"overhead": overhead, "shards": shards, "bytes": sent, "train": train}
    work |= {"recover": recover, "link": link}
    with table(args.results, NAMES) as write:
        for stage in args.stages or work:
            work[stage](Bench(folder, args.texts, write))
    if args.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
