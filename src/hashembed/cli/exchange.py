"""`hashembed export` and `hashembed import`: word vectors in the files of other tools."""

import os
from typing import Any

import click

from hashembed.cli.options import (
    Subcommand,
    json_option,
    quiet_option,
    say,
    threads_option,
    vectors_argument,
)
from hashembed.cli.outputs import Output, check_outputs, force_option

EXPORT_EXAMPLE = """\b
Examples:
  hashembed export vectors.safetensors -o vectors.txt
  hashembed export vectors.safetensors -o vectors.bin --binary
In gensim: KeyedVectors.load_word2vec_format("vectors.bin", binary=True)"""
IMPORT_EXAMPLE = """\b
Examples:
  hashembed import wiki.en.vec -o vectors.safetensors
  hashembed import GoogleNews-vectors-negative300.bin -o vectors.safetensors --bits 4"""


@click.command("export", cls=Subcommand, epilog=EXPORT_EXAMPLE)
@vectors_argument
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="File to write."
)
@click.option("--binary", is_flag=True, help="Write word2vec's binary format instead of text.")
@force_option
@threads_option
@json_option
@quiet_option
def export_command(
    vectors: str,
    output: str,
    binary: bool,
    force: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write word vectors in word2vec's format, for gensim, spaCy and others.

    The file has the words of the corpus only. It is larger: four bytes or more for each number.
    """
    check_outputs([vectors], [Output("--output", output, "table")], force)
    from hashembed.vectors.word_vectors import WordVectors

    loaded: Any = WordVectors.load(vectors, threads=threads)
    loaded.export_word2vec(output, binary=binary)
    _tell(loaded, output, as_json, quiet)


@click.command("import", cls=Subcommand, epilog=IMPORT_EXAMPLE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False),
    help="File of the vectors for hashembed.",
)
@click.option(
    "--bits",
    type=click.Choice(["8", "4", "3", "2"]),
    default="8",
    show_default=True,
    help="Bits of a number in the file.",
)
@force_option
@json_option
@quiet_option
def import_command(
    file: str, output: str, bits: str, force: bool, as_json: bool, quiet: bool
) -> None:
    """Read word vectors in word2vec's format, text or binary, and write a smaller file.

    Such files come from word2vec, GloVe, fastText (.vec) and gensim. Their vectors are kept: one
    for each word, and none for other words.
    """
    check_outputs([file], [Output("--output", output, "model")], force)
    from hashembed.vectors import word_vectors

    kind: Any = word_vectors.WordVectors
    loaded = kind.from_word2vec(file)
    loaded.save(output, bits=int(bits))
    _tell(loaded, output, as_json, quiet)
    if len(loaded):
        from hashembed.cli.vectors import example_of

        say(f"Next: {example_of(loaded, output)}", quiet)


def _tell(vectors: Any, output: str, as_json: bool, quiet: bool) -> None:
    size = os.path.getsize(output) if os.path.isfile(output) else 0
    say(
        f"Wrote {output} ({size / 1e6:.1f} MB): {len(vectors):,} words, d = {vectors.vector_size}.",
        quiet,
    )
    if as_json:
        import json

        found = {"file": output, "bytes": size, "words": len(vectors), "dim": vectors.vector_size}
        click.echo(json.dumps(found, indent=2))
