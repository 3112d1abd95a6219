"""The options of `hashembed vectors`, and which of them exclude each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from hashembed.cli.options import (
    COUNT_UNITS,
    VECTOR_FILE,
    lengths_or_auto,
    option_names,
    punctuation_option,
    quantity,
    reading,
    seed_option,
    was_given,
)
from hashembed.vectors.settings import MAX_DIM, MAX_PHRASE, MAX_WINDOW, VectorSettings

Command = TypeVar("Command", bound=Callable[..., Any])

# Arguments of `WordVectors`, which vectors keep when their training continues.
SETTINGS = (
    "model",
    "embedding_dim",
    "num_hashes",
    "num_embeddings",
    "num_buckets",
    "subwords",
    "lowercase",
    "punctuation",
    "min_count",
    "max_words",
    "window",
    "sample",
    "passes",
    "learning_rate",
    "batch_size",
    "seed",
    "phrases",
    "phrase_threshold",
)
_count = quantity(COUNT_UNITS, "1M or 500k")


def _default(name: str) -> dict[str, Any]:
    fields = VectorSettings.__dataclass_fields__
    return {"default": fields[name].default, "show_default": True}


def _lengths_or_none(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """'3-6' -> (3, 6), 'none' -> None."""
    found = None if value == "none" else lengths_or_auto(ctx, param, value)
    if isinstance(found, str):
        raise click.BadParameter(f"found {value!r}, expected lengths such as 3-6, or none.")
    return found


_SETTING_OPTIONS = [
    click.option(
        "--model",
        type=click.Choice(["skipgram", "cbow"]),
        **_default("model"),
        help="skipgram: a word predicts the words around it. cbow: the other way round.",
    ),
    click.option(
        "--dim",
        "--embedding-dim",
        "embedding_dim",
        type=click.IntRange(1, MAX_DIM),
        **_default("embedding_dim"),
        help="d, the size of a vector.",
    ),
    click.option(
        "--passes", type=click.IntRange(1), **_default("passes"), help="Passes over the corpus."
    ),
    click.option(
        "--window",
        type=click.IntRange(1, MAX_WINDOW),
        **_default("window"),
        help="The most words to either side that count as near.",
    ),
    click.option(
        "--min-count",
        type=click.IntRange(1),
        **_default("min_count"),
        help="Leave out words with fewer occurrences.",
    ),
    click.option(
        "--max-words",
        callback=_count,
        metavar="COUNT",
        default="10M",
        show_default=True,
        help="Keep at most this many words, the most frequent ones.",
    ),
    click.option(
        "--subwords",
        callback=_lengths_or_none,
        metavar="RANGE",
        default="3-6",
        show_default=True,
        help="Lengths of character n-grams, or none. With them, any word has a vector.",
    ),
    click.option(
        "--sample",
        type=click.FloatRange(0, min_open=True),
        help="Thin out words with more than this share of the corpus. By default 1e-4; more for "
        "a vocabulary of less than 10,000 words.",
    ),
    click.option(
        "--lowercase/--no-lowercase",
        default=True,
        show_default=True,
        help="Whether to ignore case.",
    ),
    punctuation_option,
    click.option(
        "--phrases",
        type=click.IntRange(1, MAX_PHRASE),
        **_default("phrases"),
        help="Most words of a phrase. Words that often follow each other, such as 'new york', get "
        "a vector of their own.",
    ),
    click.option(
        "--phrase-threshold",
        type=click.FloatRange(0, min_open=True),
        **_default("phrase_threshold"),
        help="Of the score of a phrase. A smaller number gives more phrases.",
    ),
    click.option(
        "--num-hashes",
        type=click.IntRange(1, 64),
        **_default("num_hashes"),
        help="k, the number of hash functions.",
    ),
    click.option(
        "--num-embeddings",
        callback=_count,
        metavar="COUNT",
        help="K, rows of weights. By default chosen by the vocabulary.",
    ),
    click.option(
        "--num-buckets",
        callback=_count,
        metavar="COUNT",
        help="B, component vectors. By default chosen by the vocabulary.",
    ),
    click.option(
        "--learning-rate",
        type=click.FloatRange(0, min_open=True),
        help="Initial learning rate. By default chosen by the passes.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, 1 << 16),
        help="Words in a step. By default chosen by the size of the corpus.",
    ),
    click.option(
        "--device",
        metavar="DEVICE",
        default="cpu",
        show_default=True,
        help="cpu, cuda, cuda:N, or auto for a GPU if there is one.",
    ),
    seed_option,
]

_FILE_OPTIONS = [
    click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, exists=True),
        help="Folder for temporary files of large corpora. The system's by default.",
    ),
    click.option(
        "--bits",
        type=click.Choice(["8", "4", "3", "2"]),
        default="8",
        show_default=True,
        help="Bits of a number in the file.",
    ),
    click.option(
        "--for-training",
        is_flag=True,
        help="Write a larger file, whose training --continue can continue.",
    ),
    click.option(
        "--continue",
        "continue_",
        type=VECTOR_FILE,
        metavar="OLD",
        help="Train these vectors on new text. They keep their settings.",
    ),
]


def vector_options(command: Command) -> Command:
    """All settings, and what the file holds."""
    for option in reversed([*_SETTING_OPTIONS, *_FILE_OPTIONS]):
        command = option(command)
    return command


@dataclass(frozen=True)
class VectorOptions:
    """The options of one run. `settings` are arguments of `WordVectors`, `source` the reader's."""

    data: tuple[str, ...]
    source: dict[str, Any]
    settings: dict[str, Any]
    given: frozenset[str]  # settings that the user gave
    output: str
    bits: int
    for_training: bool
    continue_: str | None
    cache_dir: str | None
    device: str
    force: bool
    threads: int | None
    as_json: bool
    quiet: bool

    @classmethod
    def parse(cls, ctx: click.Context, data: tuple[str, ...], **options: Any) -> "VectorOptions":
        """Sort the options that click found, and check that they fit together."""
        source = reading(options)
        settings = {name: options.pop(name) for name in SETTINGS}
        given = frozenset(name for name in settings if was_given(ctx, name))
        bits = int(options.pop("bits"))
        parsed = cls(data, source, settings, given, bits=bits, **options)
        _check_combinations(ctx, parsed)
        return parsed


def _check_combinations(ctx: click.Context, options: VectorOptions) -> None:
    """Refuse options that would be ignored."""
    names = option_names(ctx)
    if options.for_training and was_given(ctx, "bits"):
        raise click.UsageError(
            "--for-training keeps full precision. Give either --for-training or --bits, found both."
        )
    if "phrase_threshold" in options.given and "phrases" not in options.given:
        raise click.UsageError("--phrase-threshold needs --phrases.")
    if options.continue_ is None:
        return
    for name in SETTINGS:
        if name in options.given:
            raise click.UsageError(
                f"{names[name]} cannot be used with --continue: the vectors keep their settings."
            )
