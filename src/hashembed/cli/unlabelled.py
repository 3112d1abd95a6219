"""`hashembed train --unlabelled`: vectors of texts without labels, before the training."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.options import say

if TYPE_CHECKING:
    import pyarrow as pa

    from hashembed.cli.train_options import TrainOptions
    from hashembed.vectors.training import VectorProgress
    from hashembed.vectors.word_vectors import WordVectors

LINE_EVERY = 5.0  # seconds between plain lines
COLUMNS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")  # files that have some
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
OF_COLUMNS = ("text", "header", "delimiter", "quotes", "escapes")
OF_ALL = ("encoding", "on_error")


def learn_vectors(labelled: "pa.ChunkedArray", run: "TrainOptions") -> "WordVectors":
    """Vectors of the texts in the files of --unlabelled, and of the labelled texts."""
    from hashembed.classify.pretrained.sources import vectors_for
    from hashembed.vectors.training import LossNotFiniteError

    columns = [labelled, *(_texts_of(path, run) for path in run.unlabelled)]
    size, count = (sum(column.nbytes for column in columns), sum(map(len, columns)))
    arguments = run.arguments
    vectors = vectors_for(
        size,
        lowercase=arguments["lowercase"],
        seed=arguments["seed"],
        threads=arguments["threads"],
    )
    passes = vectors.settings.passes
    say(f"Learning word vectors from {count:,} texts, {passes} passes.", run.quiet)
    start = time.perf_counter()
    try:
        with _display(run.quiet) as show:
            vectors.fit(lambda: columns, show)
    except LossNotFiniteError as error:
        raise ValueError(str(error)) from None
    say(f"Learned {len(vectors):,} words after {time.perf_counter() - start:.1f} s.", run.quiet)
    return vectors


def _texts_of(path: str, run: "TrainOptions") -> "pa.ChunkedArray":
    from hashembed.readers import read_texts

    found = read_texts(path, **_options_for(path, run.source))
    say(found.report, run.quiet)
    if not len(found):
        raise click.ClickException(f"Found no text in {path}, which --unlabelled names.")
    return found.texts


def _options_for(path: str, source: dict[str, Any]) -> dict[str, Any]:
    """The options of the command that suit a file. Lines of text have no columns."""
    name = path.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    names = (*OF_ALL, *OF_COLUMNS) if name.endswith(COLUMNS) else OF_ALL
    return {option: source[option] for option in names if source.get(option) is not None}


@contextmanager
def _display(quiet: bool) -> "Iterator[Any]":
    """What shows the progress: a bar in a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("vectors", total=None)

            def move(progress: "VectorProgress") -> None:
                told = f"vectors, pass {progress.epoch + 1}/{progress.passes}"
                bar.update(task, completed=progress.words, total=progress.total, description=told)

            yield move
    else:
        yield _Lines()


class _Lines:
    """Plain lines, for logs."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: "VectorProgress") -> None:
        if time.monotonic() - self._last < LINE_EVERY:
            return
        self._last = time.monotonic()
        print(
            f"vectors, pass {progress.epoch + 1}/{progress.passes}: {progress.words:,} of "
            f"{progress.total:,} words, {progress.words_per_second:,.0f} words/s, "
            f"{progress.seconds_left:,.0f} s left",
            file=sys.stderr,
            flush=True,
        )
