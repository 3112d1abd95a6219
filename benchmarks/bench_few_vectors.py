"""Few labels and much unlabelled text: accuracy with and without pretrained vectors.

    python -m benchmarks.bench_few_vectors --data FOLDER [--sets trec ...] [--wikipedia FILE]
        -> results/few_vectors.csv
    python -m benchmarks.bench_few_vectors --vectors-only --data FOLDER     the vectors alone
    python -m benchmarks.bench_few_vectors --table                          the results as Markdown

Each point is the mean over samples of the training rows, drawn by class. "unlabelled" starts from
vectors of the training texts without their labels, at most 100,000 of them; IMDB has its 50,000
unlabelled reviews in addition. "wikipedia" starts from vectors in a file, for example of enwik8. 0
texts a class are all training rows. Test rows (2,000 of them at most) are scored once for each
sample. Rows of the result file are kept: a set that was interrupted goes on where it stopped, and
`--again` measures it anew. Vectors are kept in the folder `--work`.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_choice import SETS, read_rows
from benchmarks.bench_classify import folders
from benchmarks.bench_few import Rows, draw
from benchmarks.machine import RESULTS, read, table

ALL = 0  # texts a class: all training rows
COUNTS = (8, 32, 128, 512, ALL)  # texts a class
SAMPLES = {8: 3, 32: 3, 128: 2, 512: 1}
MOST_ROWS = 70_000  # of a set that is trained on as a whole
MOST_TRAIN, MOST_TEST, MOST_UNLABELLED = 11_000, 2_000, 100_000
PEER = "tf-idf + logistic regression"
STARTS = ("none", "unlabelled", "wikipedia", PEER)
COLUMNS = (
    "set", "classes", "start", "texts_a_class", "accuracy", "spread", "samples", "share",
    "train_seconds",
)  # fmt: skip


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=[name for name in SETS if "fine" not in name])
    parser.add_argument("--starts", nargs="*", default=STARTS)
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS, help="texts a class")
    parser.add_argument("--wikipedia", type=Path, help="a file of WordVectors")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vectors-only", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "few_vectors.csv"
    known = read(path) if path.exists() else []
    if options.table:
        print_tables(known)
        return
    if options.again:
        known = [row for row in known if row["set"] not in options.sets]
    if options.vectors_only:
        for name in options.sets:
            vectors_of(options, name)
        return
    with table(path, COLUMNS) as add:
        for row in known:
            add(row)
        done = {(row["set"], row["start"], int(row["texts_a_class"])) for row in known}
        for name in options.sets:
            for row in measured(options, name, done):
                add(row)
                print(*row, flush=True)


def measured(options, name: str, done: set) -> Iterator[list]:
    train, test = rows_of(options.data, name)
    classes = len({c for c, _ in train})
    for count in options.counts:
        if count == ALL:
            samples, most = [train], MOST_ROWS
        else:
            samples = [draw(train, count, seed) for seed in range(SAMPLES[count])]
            most = MOST_TRAIN
        if samples[0] is None or len(samples[0]) > most:
            continue
        for start in options.starts:
            if count == ALL and start not in ("none", "unlabelled"):
                continue
            if (name, start, count) in done or (start == "wikipedia" and not options.wikipedia):
                continue
            found = [run(options, name, start, sample, test) for sample in samples]
            right, shares, seconds = zip(*found, strict=True)
            mean = sum(right) / len(right)
            squares = sum((a - mean) ** 2 for a in right) / max(len(right) - 1, 1)
            spread = f"{squares**0.5:.4f}" if len(right) > 1 else ""
            share = (
                f"{sum(shares) / len(shares):.2f}" if start in ("unlabelled", "wikipedia") else ""
            )
            cells = [f"{mean:.4f}", spread, len(right), share, f"{sum(seconds) / len(right):.1f}"]
            yield [name, classes, start, count, *cells]


def rows_of(data: Path, name: str) -> tuple[Rows, Rows]:
    train, test, label, text = SETS[name]
    rows = read_rows(data / train, label, text)
    random.Random(0).shuffle(rows)
    if test is None:
        held, rows = rows[: len(rows) // 5], rows[len(rows) // 5 :]
    else:
        held = read_rows(data / test, label, text)
        random.Random(0).shuffle(held)
    return rows, held[:MOST_TEST]


def run(options, name: str, start: str, sample: Rows, test: Rows) -> tuple[float, float, float]:
    """Accuracy, the share of the vectors in the logits, and the seconds of training."""
    began = time.perf_counter()
    labels, texts = zip(*sample, strict=True)
    model = made(options, name, start).fit(list(texts), list(labels))
    seconds = time.perf_counter() - began
    said = model.predict([text for _, text in test])
    right = sum(a == b for a, (b, _) in zip(said, test, strict=True)) / len(test)
    part = getattr(model, "vectors_", None)
    return right, part.share if part else 0.0, seconds


def made(options, name: str, start: str):
    if start == PEER:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        layer = LogisticRegression(C=10, max_iter=1000)
        return make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), layer)
    from hashembed import TextClassifier

    vectors = {
        "none": lambda: None,
        "unlabelled": lambda: vectors_of(options, name),
        "wikipedia": lambda: options.wikipedia,
    }[start]()
    return TextClassifier(pretrained=vectors, threads=options.threads)


def vectors_of(options, name: str) -> Path:
    """The file with vectors of the set's training texts."""
    from hashembed.classify.pretrained.sources import vectors_for
    from hashembed.text.arrow import to_arrow

    path = options.work / f"vectors-{name}.safetensors"
    if not path.exists():
        began = time.perf_counter()
        texts = [text for _, text in rows_of(options.data, name)[0][:MOST_UNLABELLED]]
        if name == "imdb":
            texts += [text for _, text in read_rows(options.data / "imdb/unsup.csv", 0, 0)]
        column = to_arrow(texts)
        vectors = vectors_for(column.nbytes, threads=options.threads).fit(column)
        vectors.save(path)
        print(name, vectors, f"{time.perf_counter() - began:.0f} s", flush=True)
    return path


def print_tables(rows: list[dict[str, str]]) -> None:
    """Accuracy in percent: of each set with 32 texts a class, and the means over sets."""
    found = {
        (r["set"], int(r["texts_a_class"]), r["start"]): 100 * float(r["accuracy"]) for r in rows
    }
    names = list(dict.fromkeys(row["set"] for row in rows))

    def line(head: str, cells: list[float]) -> str:
        return f"| {head} | {' | '.join(f'{cell:.1f}' for cell in cells)} |"

    def complete(count: int) -> list[str]:
        wanted = STARTS if count != ALL else STARTS[:2]
        return [n for n in names if all((n, count, start) in found for start in wanted)]

    print(f"| set | {' | '.join(STARTS)} |\n|---|{'---|' * len(STARTS)}")
    for name in complete(32):
        print(line(name, [found[name, 32, start] for start in STARTS]))
    print(f"\n| texts a class | sets | {' | '.join(STARTS)} |\n|---|---|{'---|' * len(STARTS)}")
    for count in COUNTS:
        if sets := complete(count):
            wanted = STARTS if count != ALL else STARTS[:2]
            means = [sum(found[n, count, s] for n in sets) / len(sets) for s in wanted]
            print(line(f"{count or 'all'} | {len(sets)}", means))


if __name__ == "__main__":
    main()
