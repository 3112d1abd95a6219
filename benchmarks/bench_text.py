"""How fast text becomes n-gram keys, beside scikit-learn's HashingVectorizer and fastText.

    python -m benchmarks.bench_text --data file.txt
    python -m benchmarks.bench_text --data folder_with_csv_files

A text file has a document in each line. A CSV file has a class and a text in each row; of a folder
`train.csv` is read. Times are the best of several runs, wall clock.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numba
import pyarrow as pa
import pyarrow.csv

from benchmarks.machine import heading
from hashembed.text.arrow import to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

CONFIGS = {
    "words": TextConfig((1, 1)),
    "words and bigrams": TextConfig((1, 2)),
    "  ... case kept": TextConfig((1, 2), lowercase=False),
    "orders 1 to 5": TextConfig((1, 5)),
    "words and subwords 3 to 6": TextConfig((1, 1), subwords=(3, 6)),
}


def read(path: Path) -> pa.ChunkedArray:
    if path.is_dir():
        path = path / "train.csv"
    if path.suffix != ".csv":
        return to_arrow(path.read_bytes().splitlines())
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"f1": pa.large_string()}, strings_can_be_null=False
        ),
    )
    return table.column(1)


def best_seconds(work: Callable[[], object], runs: int) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def report(name: str, size: int, ngrams: int | None, seconds: float) -> None:
    speed = f"{size / seconds / 1e6:8.0f} MB/s"
    count = f"{ngrams / seconds / 1e6:8.1f} M n-grams/s" if ngrams else ""
    print(f"{name:34}{seconds:9.4f} s{speed}{count}")


def bench_hashembed(column: pa.ChunkedArray, size: int, runs: int) -> None:
    for name, config in CONFIGS.items():
        start = time.perf_counter()
        ngrams = len(text_to_bags(column, config).keys)
        first = time.perf_counter() - start
        seconds = best_seconds(lambda config=config: text_to_bags(column, config), runs)
        report(name, size, ngrams, seconds)
        if name == next(iter(CONFIGS)):
            print(
                f"{'  ... the first call':34}{first:9.4f} s  compiles, or loads what was compiled"
            )


def bench_sklearn(column: pa.ChunkedArray, size: int, runs: int) -> None:
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError:
        print("scikit-learn's HashingVectorizer: skipped, scikit-learn is not installed")
        return
    documents = column.to_pylist()
    vectorizer = HashingVectorizer(ngram_range=(1, 2), norm=None, alternate_sign=False)
    counts = vectorizer.transform(documents)
    seconds = best_seconds(lambda: vectorizer.transform(documents), runs)
    report("scikit-learn, words and bigrams", size, int(counts.sum()), seconds)


def bench_fasttext(column: pa.ChunkedArray, size: int, runs: int) -> None:
    """Only the time to read: no epoch of training."""
    try:
        import fasttext
    except ImportError:
        print("fastText's reading: skipped, fasttext is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        lines = (" ".join(text.split()) for text in column.to_pylist())
        path.write_text("".join(f"__label__a {line}\n" for line in lines))
        options = {"epoch": 0, "dim": 1, "bucket": 1, "verbose": 0}
        seconds = best_seconds(lambda: fasttext.train_supervised(str(path), **options), runs)
    report("fastText, reading words only", size, None, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="text file, CSV file or folder")
    parser.add_argument("--runs", type=int, default=7, help="runs to take the best of")
    arguments = parser.parse_args()
    column = read(arguments.data)
    size = sum(len(text) for text in column.cast(pa.large_binary()).to_pylist())
    threads = numba.get_num_threads()
    print(heading())
    print(f"{len(column):,} documents, {size / 1e6:.1f} MB, {threads} threads\n")
    bench_hashembed(column, size, arguments.runs)
    bench_sklearn(column, size, min(arguments.runs, 2))
    bench_fasttext(column, size, min(arguments.runs, 2))


if __name__ == "__main__":
    main()
