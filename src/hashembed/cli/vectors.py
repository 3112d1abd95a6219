"""`hashembed vectors`."""

import json
import time
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.aliases import VectorAliases
from hashembed.cli.corpus import Corpus
from hashembed.cli.options import data_options, json_option, quiet_option, say, threads_option
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.vector_options import VectorOptions, vector_options
from hashembed.cli.vector_progress import duration, vector_display
from hashembed.core.locations import size_of

if TYPE_CHECKING:
    from hashembed.vectors.word_vectors import WordVectors

EXAMPLE = """\b
Examples:
  hashembed vectors corpus.txt -o vectors.safetensors
  hashembed vectors articles/*.jsonl.gz --text title,body -o vectors.safetensors
  zcat wiki.txt.gz | hashembed vectors - --model cbow --dim 300 -o vectors.safetensors
  hashembed vectors corpus.txt --for-training -o vectors.safetensors
  hashembed vectors more.txt --continue vectors.safetensors -o vectors.safetensors
fastText's options (-dim, -epoch, -lr, -ws, -minCount, -minn, -maxn, -t) work too."""

SHOWN_RANK, LETTERS = 300, 3  # about here, longer words are frequent and mean something


@click.command("vectors", cls=VectorAliases, epilog=EXAMPLE)
@click.argument("data", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="File of the vectors."
)
@data_options(labelled=False)
@vector_options
@force_option
@threads_option
@json_option
@quiet_option
def vectors_command(data: tuple[str, ...], **options: Any) -> None:
    """Learn word vectors from text without labels.

    DATA is one or more files or folders: text with a sentence or a document in each line, CSV, TSV,
    JSON lines, Parquet or fastText's format, compressed or not. In a folder of text files, each
    file is a text. - reads standard input.
    """
    start, ctx = time.perf_counter(), click.get_current_context()
    run = VectorOptions.parse(ctx, data, **options)
    check_outputs(data, [Output("--output", run.output, "model")], run.force)
    from hashembed.vectors.word_vectors import WordVectors

    if run.continue_ is None:
        vectors = WordVectors(**run.settings, threads=run.threads, device=run.device)
    else:
        vectors = _continued(run)
    with Corpus(run.data, run.source, run.cache_dir) as corpus:
        with vector_display(corpus, run.quiet) as display:
            corpus.on_bytes, corpus.on_report = display.read, display.say
            learn = vectors.fit if run.continue_ is None else vectors.partial_fit
            learn(corpus, on_progress=display.train, cache_dir=run.cache_dir)
        _save(vectors, run, ctx)
        _tell(vectors, corpus, run, time.perf_counter() - start)


def _continued(run: VectorOptions) -> "WordVectors":
    """The vectors to train further."""
    from hashembed.engine.tensor_file import read_header
    from hashembed.vectors.devices import check_device
    from hashembed.vectors.word_vectors import WordVectors

    path = str(run.continue_)
    vectors = WordVectors.load(path, threads=run.threads)
    vectors.device = check_device(run.device)
    if read_header(path)["meta"]["bits"] is not None:
        raise click.ClickException(
            f"{path} has no training state, so its training cannot continue. Write one with "
            "hashembed vectors --for-training."
        )
    return vectors


def _save(vectors: "WordVectors", run: VectorOptions, ctx: click.Context) -> None:
    """Vectors that were continued can be continued again, unless --bits was given."""
    from hashembed.cli.options import was_given

    again = run.continue_ is not None and not was_given(ctx, "bits")
    vectors.save(run.output, bits=run.bits, for_training=run.for_training or again)


def example_of(vectors: "WordVectors", path: str) -> str:
    """A command to try, with a word that is neither rare nor as frequent as `the`."""
    from shlex import quote

    words = vectors.index_to_key
    place = min(SHOWN_RANK, len(words) // 2)
    word = next((w for w in words[place:] if len(w) > LETTERS), words[place])
    return f"hashembed nearest {quote(path)} {quote(word)}"


def _tell(vectors: "WordVectors", corpus: Corpus, run: VectorOptions, seconds: float) -> None:
    size, counts = size_of(run.output), vectors.model.dictionary.counts
    words, least = int(counts.sum()), vectors.settings.min_count
    say(
        f"{words:,} words, {len(vectors):,} different ones that occur at least {least:,} "
        f"{'time' if least == 1 else 'times'}; loss {vectors.losses_[-1]:.4f}.",
        run.quiet,
    )
    say(f"Wrote {run.output} ({size / 1e6:.1f} MB) after {duration(seconds)}.", run.quiet)
    say(f"Next: {example_of(vectors, run.output)}", run.quiet)
    if run.as_json:
        report = corpus.report
        result = {
            "data": report.to_dict() if report is not None else None,
            "words": words,
            "vocabulary": len(vectors),
            "settings": vectors.settings.to_dict(),
            "losses": vectors.losses_,
            "model": {"file": run.output, "bytes": size},
            "seconds": seconds,
        }
        click.echo(json.dumps(result, indent=2))
