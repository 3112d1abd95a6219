"""From a text file to a trained model on a CUDA GPU, and an epoch of a very large set.

    python -m benchmarks.bench_gpu_text --train FILE --test FILE --fasttext PROGRAM
        -> results/gpu_text.csv

The files are fastText's, a text a line; PROGRAM is the command of fastText, which has all cores of
the same machine, five passes and the better of two rates. The large set has the size of Amazon
Review Full, three million documents of 90 words. It is made of the training texts: runs of 90
words, one word in ten of which is replaced by another word of the set.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from benchmarks.machine import write
from hashembed import TextClassifier
from hashembed.engine.defaults import TrainConfig
from hashembed.engine.labels import Labels
from hashembed.engine.loop import fit
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine import batches
from hashembed.nn.engine.model import DeepModel
from hashembed.readers import read_fasttext
from hashembed.text.pipeline import text_to_bags

DOCUMENTS, WORDS, REPLACED, PIECE = 3_000_000, 90, 0.1, 250_000
REPEATS = 3


def from_file(train: Path, test: Path, name: str, **options) -> dict:
    """Read, turn into keys, train; the fastest of three, after one that compiles."""
    seconds = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        labels, texts = read_fasttext(train)
        model = TextClassifier(**options).fit(texts, labels)
        seconds.append(time.perf_counter() - start)
    labels, texts = read_fasttext(test)
    return {
        "what": f"file to model, {train.stem}",
        "how": name,
        "seconds": round(min(seconds[1:]), 3),
        "of_training": round(sum(epoch.seconds for epoch in model.history_.epochs), 3),
        "first_run_seconds": round(seconds[0], 2),
        "accuracy": round(float(model.score(texts, labels)), 4),
        "passes": len(model.history_.epochs),
    }


def of_fasttext(program: Path, train: Path, test: Path) -> dict:
    found = []
    for rate in ("0.1", "0.5"):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/model"
            flags = ["-wordNgrams", "2", "-epoch", "5", "-lr", rate, "-dim", "10"]
            flags += ["-thread", str(os.cpu_count()), "-verbose", "0"]
            start = time.perf_counter()
            subprocess.run(
                [program, "supervised", "-input", train, "-output", out, *flags], check=True
            )
            seconds = time.perf_counter() - start
            tested = subprocess.run(
                [program, "test", f"{out}.bin", test], check=True, capture_output=True, text=True
            )
        accuracy = next(line for line in tested.stdout.splitlines() if line.startswith("P@1"))
        found.append((float(accuracy.split()[1]), seconds, rate))
    accuracy, seconds, rate = max(found)
    return {
        "what": f"file to model, {train.stem}",
        "how": f"fastText, {os.cpu_count()} threads, rate {rate}",
        "seconds": round(seconds, 3),
        "accuracy": accuracy,
        "passes": 5,
    }


def make_large(train: Path, documents: int) -> tuple[pa.ChunkedArray, np.ndarray]:
    """Runs of words of real texts, with changes -> texts, labels."""
    labels, texts = read_fasttext(train)
    split = pc.split_pattern(texts.cast(pa.large_string()), " ")
    lengths = pc.list_value_length(split).to_numpy(zero_copy_only=False)
    encoded = pc.dictionary_encode(split.flatten())
    words, names = encoded.indices.to_numpy(), encoded.dictionary
    _, classes = np.unique(labels.to_numpy(zero_copy_only=False), return_inverse=True)
    of_word = np.repeat(classes, lengths)
    rng = np.random.default_rng(0)
    starts = rng.integers(0, len(words) - WORDS, documents)
    chunks = []
    for begin in range(0, documents, PIECE):
        mine = starts[begin : begin + PIECE]
        chosen = words[mine[:, None] + np.arange(WORDS)]
        changed = rng.random(chosen.shape, np.float32) < REPLACED
        chosen[changed] = words[rng.integers(0, len(words), int(changed.sum()))]
        flat = names.take(pa.array(chosen.ravel()))
        offsets = np.arange(0, chosen.size + 1, WORDS)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
        chunks.append(pc.binary_join(lists, pa.scalar(" ", pa.large_string())))
    return pa.chunked_array(chunks), of_word[starts + WORDS // 2]


def epochs(train: Path, documents: int, device: str) -> list[dict]:
    texts, labels = make_large(train, documents)
    start = time.perf_counter()
    bags = text_to_bags(texts)
    seconds = time.perf_counter() - start
    what = f"epoch of {documents:,} documents of {WORDS} words"
    rows = [{"what": what, "how": "text to keys, once, CPU", "seconds": round(seconds, 2)}]
    print(rows[-1], f"{len(bags.keys):,} n-grams", flush=True)
    one_each = Labels.single(labels)
    spec = HashSpec(10_000_000, 1_000_000, 2)
    share = batches.SHARE
    for name, optimizer, streamed in (
        ("Adagrad", "adagrad", False),
        ("Adam", "adam", False),
        ("Adagrad, keys streamed from the host", "adagrad", True),
    ):
        batches.SHARE = 0.0 if streamed else share
        batches._placed.clear()
        model = DeepModel(spec, 20, 5, optimizer=optimizer, device=device)
        config = TrainConfig(passes=2, batch_size=4096, learning_rate=0.01)
        history = fit(model, bags, one_each, config)
        best = min(epoch.seconds for epoch in history.epochs)
        rate = len(bags.keys) / best
        how = f"{name}, K = 10M, B = 1M, d = 20, {device}"
        rows.append({"what": what, "how": how, "seconds": round(best, 3)})
        rows[-1]["million_ngrams_per_second"] = round(rate / 1e6)
        print(rows[-1], flush=True)
        del model
    batches.SHARE = share
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--fasttext", type=Path)
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of the large set")
    options = parser.parse_args()
    files = options.train, options.test
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    cases = {
        f"hashembed, {device}": {"device": device},
        f"hashembed, CPU, {os.cpu_count()} threads": {"device": "cpu"},
        f"hashembed, {device}, 10 members": {"device": device, "members": 10},
    }
    for name, settings in cases.items():
        rows.append(from_file(*files, name, **settings))
        print(rows[-1], flush=True)
    if options.fasttext:
        rows.append(of_fasttext(options.fasttext, *files))
        print(rows[-1], flush=True)
    rows += epochs(options.train, options.documents, device)
    write("gpu_text.csv", rows)


if __name__ == "__main__":
    main()
