"""Word vectors on a CUDA GPU: seconds of a pass, where they go, and whether results are right.

    python -m benchmarks.bench_vectors_gpu [TEXT] [--out FOLDER]
        -> results/vectors_gpu.csv, results/vectors_gpu_kernels.csv

TEXT: a file with one text a line. Without it, words are drawn like those of a language (Zipf).
Sizes are those of `WordVectors`. Compilation is not measured: a short training comes first.
"""

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.machine import RESULTS, Row, table
from hashembed.core.threads import cpu_count
from hashembed.hashing.spec import HashSpec
from hashembed.vectors.arrays import Tables, Vocabulary
from hashembed.vectors.corpus import EncodedCorpus, encode_corpus
from hashembed.vectors.gpu.trainer import GpuTrainer
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import Trainer, new_tables, new_vocabulary, vocabulary_for

WORDS, VOCABULARY, KEYS, TEXT_LENGTH = 12_600_000, 60_000, 20, 900  # like enwik8
SMALL = 1_000_000  # words of the training that compiles, and of the profile
COMPARED = 300_000  # words of the comparison with the CPU


class Task(NamedTuple):
    corpus: EncodedCorpus
    vocabulary: Vocabulary
    spec: HashSpec
    settings: VectorSettings

    def first(self, words: int, **changes: object) -> "Task":
        """The beginning of the corpus."""
        corpus = EncodedCorpus(self.corpus.dictionary, self.corpus.ids[:words], words)
        settings = replace(self.settings, **changes) if changes else self.settings
        return Task(corpus, self.vocabulary, self.spec, settings)


class Drawn(NamedTuple):
    """All that training needs of a dictionary."""

    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.counts)


def from_text(path: Path, settings: VectorSettings) -> Task:
    texts = path.read_text(encoding="utf8").splitlines()
    corpus = encode_corpus(texts, settings.words, settings.min_count, settings.max_words, None)
    return Task(corpus, *new_vocabulary(corpus, settings), settings)


def drawn(settings: VectorSettings, words: int = WORDS, size: int = VOCABULARY) -> Task:
    """Words and n-grams that are distributed like those of a language."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(2, size + 2)
    ids = rng.choice(size, words, p=share / share.sum()).astype(np.int32)
    ids[TEXT_LENGTH::TEXT_LENGTH] = -1
    counts = np.bincount(ids[ids >= 0], minlength=size)
    ngrams = (rng.pareto(0.7, (size, KEYS)) * 300).astype(np.int64) % (1 << 20)
    ngrams[:, 0] = (1 << 20) + np.arange(size)  # the word itself
    K, B = settings.sizes(len(np.unique(ngrams)))
    spec = HashSpec(K, B, settings.num_hashes, seed=settings.seed)
    keys = (ngrams * 0x5851F42D4C957F2D).reshape(-1)
    offsets = np.arange(size + 1) * KEYS
    dictionary = Drawn(counts)
    corpus = EncodedCorpus(dictionary, ids, words)  # type: ignore[arg-type]
    return Task(corpus, vocabulary_for(keys, offsets, counts, spec), spec, settings)


def train(task: Task, trainer: type[Trainer] | partial) -> SimpleNamespace:
    """-> the tables, the losses, the number of steps, the seconds of the training."""
    settings, threads = task.settings, cpu_count()
    size = len(task.corpus.dictionary)
    tables = new_tables(task.spec, settings.embedding_dim, size, settings.seed, threads)
    made = trainer(task.corpus, settings, task.vocabulary, tables, task.spec, threads)
    start = time.perf_counter()
    losses = made.train(None)
    seconds = time.perf_counter() - start
    return SimpleNamespace(
        tables=tables, losses=losses, seconds=seconds, batch_size=made.batch_size
    )


def same_bits(one: Tables, other: Tables) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def differences(one: Tables, other: Tables) -> dict[str, float]:
    """The norm of the difference of each table, relative to that of the other."""
    return {
        name: float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))
        for name, a, b in zip(one._fields, one, other, strict=True)
    }


def kernel_times(task: Task, trainer: type[Trainer] | partial) -> list[Row]:
    """Where the time of a short training goes, on the GPU."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        train(task, trainer)
    times: dict[str, list[float]] = defaultdict(list)
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name[:60]].append(event.device_time_total)
    rows: list[Row] = [
        {
            "kernel": name,
            "calls": len(took),
            "microseconds": round(sum(took) / len(took), 2),
            "milliseconds in all": round(sum(took) / 1000, 2),
        }
        for name, took in times.items()
    ]
    return sorted(rows, key=lambda row: -float(str(row["milliseconds in all"])))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("text", nargs="?", type=Path)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--device", default="cuda")
    options.add_argument("--words", type=int, default=WORDS, help="to draw, without a text")
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
    settings = VectorSettings(passes=1)
    task = from_text(given.text, settings) if given.text else drawn(settings, given.words)
    on_gpu = partial(GpuTrainer, device=given.device)
    size = len(task.corpus.dictionary)
    print(f"{len(task.corpus.ids):,} words, V={size:,}, K={task.spec.num_embeddings:,}, "
          f"B={task.spec.num_buckets:,}", flush=True)  # fmt: skip

    rows: list[Row] = []
    for model in ("skipgram", "cbow"):
        own = task._replace(settings=replace(settings, model=model))
        compiling = train(own.first(SMALL, batch_size=2048), on_gpu)
        runs = [train(own, on_gpu) for _ in range(given.runs)]
        seconds = sorted(run.seconds for run in runs)
        close = own.first(COMPARED, batch_size=2048)
        mine, cpu = train(close, on_gpu), train(close, Trainer)
        found = differences(mine.tables, cpu.tables)
        row: Row = {
            "model": model,
            "words": len(task.corpus.ids),
            "vocabulary": size,
            "batch": runs[0].batch_size,
            "first seconds": round(compiling.seconds, 2),
            "seconds": round(seconds[len(seconds) // 2], 3),
            "fastest": round(seconds[0], 3),
            "words per second": round(len(task.corpus.ids) / seconds[len(seconds) // 2]),
            "loss": round(runs[0].losses[0], 5),
            "same bits": all(same_bits(runs[0].tables, run.tables) for run in runs[1:]),
            "loss, first words": round(mine.losses[0], 6),
            "on the CPU": round(cpu.losses[0], 6),
            **{f"difference of {name}": f"{value:.1e}" for name, value in found.items()},
        }
        rows.append(row)
        print(*(f"{name}: {value}" for name, value in row.items()), sep="\n", end="\n\n")
    given.out.mkdir(parents=True, exist_ok=True)
    with table(given.out / "vectors_gpu.csv", list(rows[0])) as add:
        for row in rows:
            add(row)

    short = task.first(SMALL, batch_size=2048)
    kernels = kernel_times(short, on_gpu)
    for kernel in kernels[:45]:
        print(f"{kernel['milliseconds in all']:>9} ms {kernel['calls']:>7} calls "
              f"{kernel['microseconds']:>9} us  {kernel['kernel']}")  # fmt: skip
    if kernels:
        with table(given.out / "vectors_gpu_kernels.csv", list(kernels[0])) as add:
            for kernel in kernels:
                add(kernel)


if __name__ == "__main__":
    main()
