"""Which parts of compression pay: accuracy at one size, each part changed alone.

    python -m benchmarks.bench_compress_parts --data FOLDER [--sets trec ...]
                                                     -> results/compress_parts.csv

The full model is trained on nine tenths of the training rows, and all are scored on the last tenth.
Test rows are not read. "two-level" is a model of hashembed's usual kind that is trained at that
size: one member, 4 bits, with tables that fill the file.
"""

from pathlib import Path
from unittest.mock import patch

from benchmarks.bench_choice import prepare
from benchmarks.bench_classify import folders
from benchmarks.machine import RESULTS, table
from benchmarks.tools import THREADS

CHOSEN = ("trec", "sst2", "yahoo_small", "20newsgroups", "ag_news_partial", "imdb")
SIZE = 100_000
PLACE = "hashembed.classify.compress"
# name -> what is replaced, and by what
CHANGES = {
    "as it is": {},
    "not tuned": {f"{PLACE}.student.tune": lambda *arguments: False},
    "2^18 buckets": {f"{PLACE}.student.BUCKETS": 2**18},
    "2^20 buckets": {f"{PLACE}.student.BUCKETS": 2**20},
    "2^24 buckets": {f"{PLACE}.student.BUCKETS": 2**24},
    "rare n-grams in full": {f"{PLACE}.evidence.SEEN": 0.0},
}
COLUMNS = ("set", "classes", "change", "bytes", "rows", "accuracy", "full")


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=CHOSEN)
    options = parser.parse_args()
    with table(RESULTS / "compress_parts.csv", COLUMNS) as add:
        for name in options.sets:
            files, classes, _ = prepare(Path(options.data), name, options.work / "choice")
            for row in measure(files["raw"]):
                add([name, classes, *row])
                print(name, *row, flush=True)


def measure(files: dict):
    from hashembed import TextClassifier
    from hashembed.readers import read_fasttext

    labels, texts = read_fasttext(files["most"])
    truth, test = read_fasttext(files["held"])
    full = TextClassifier(threads=THREADS).fit(texts, labels)
    accuracy = f"{full.score(test, truth):.4f}"
    for change, replaced in CHANGES.items():
        patches = [patch(place, value) for place, value in replaced.items()]
        for one in patches:
            one.start()
        small = full.compress(texts, labels, size=SIZE)
        for one in patches:
            one.stop()
        found = small.compression_
        score = f"{small.score(test, truth):.4f}"
        yield change, found.bytes_after, found.rows, score, accuracy
    rows = SIZE // 2  # a byte each, and the other half for E
    small = full.__class__(
        threads=THREADS,
        **{
            **(full.search_.chosen.options() if full.search_ else {}),
            "members": 1,
            "num_embeddings": rows,
            "num_buckets": rows * 2 // full.engine_plan_.embedding_dim,
        },
    ).fit(texts, labels)
    yield "two-level", SIZE, rows, f"{small.score(test, truth):.4f}", accuracy


if __name__ == "__main__":
    main()
