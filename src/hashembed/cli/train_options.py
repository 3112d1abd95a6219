"""The options of `hashembed train`, and which of them exclude each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from hashembed.cli.options import option_names, reading, was_given

# Arguments of `TextClassifier` that determine the model; a saved model keeps them.
MODEL_OPTIONS = (
    "ngrams",
    "subwords",
    "lowercase",
    "punctuation",
    "repeats",
    "embedding_dim",
    "num_hashes",
    "num_embeddings",
    "num_buckets",
    "members",
    "seed",
)
# Arguments of `TextClassifier` that determine how it is trained.
TRAINING_OPTIONS = (
    "passes",
    "learning_rate",
    "batch_size",
    "validation_fraction",
    "patience",
    "class_weight",
    "effort",
    "time_limit",
    "metric",
    "threads",
)
ONLY_STREAM = ("resume", "continue_", "save_seconds")
NEVER_STREAM = {
    "passes": "a stream is read once",
    "validation": "every text is answered before it is learned, which validates the model",
    "validation_fraction": "every text is answered before it is learned, which validates the model",
    "patience": "a stream is read once",
    "plot": "there are no passes to draw",
    "plot_search": "a stream is read once, so nothing can be tried",
    "effort": "a stream is read once, so nothing can be tried",
    "time_limit": "a stream is read once, so nothing can be tried",
    "metric": "a stream is read once, so nothing can be tried",
    "checkpoint": "the model itself is saved while it learns; see --resume",
    "cache_dir": "a stream keeps nothing",
    "unlabelled": "how much vectors count is chosen on all labelled texts together",
    "pretrained": "how much vectors count is chosen on all labelled texts together",
    "bits": "the model is saved in full precision, for further training",
}


@dataclass(frozen=True)
class TrainOptions:
    """The options of one run. `arguments` are those of `TextClassifier`, `source` the reader's."""

    data: tuple[str, ...]
    source: dict[str, Any]
    arguments: dict[str, Any]
    output: str
    unlabelled: tuple[str, ...]
    pretrained: str | None
    device: str
    validation: str | None
    plot: str | None
    plot_search: str | None
    checkpoint: str | None
    cache_dir: str | None
    on: str | None
    storage: str | None
    bits: str
    stream: bool
    resume: bool
    continue_: bool
    save_seconds: float
    force: bool
    as_json: bool
    quiet: bool

    @classmethod
    def parse(cls, ctx: click.Context, data: tuple[str, ...], **options: Any) -> "TrainOptions":
        """Sort the options that click found, and check that they fit together."""
        source = reading(options)
        arguments = {name: options.pop(name) for name in (*MODEL_OPTIONS, *TRAINING_OPTIONS)}
        parsed = cls(data, source, arguments, **options)
        _check_combinations(ctx, parsed)
        return parsed


def _check_combinations(ctx: click.Context, options: TrainOptions) -> None:
    """Refuse options that would be ignored."""
    names = option_names(ctx)
    given = {name for name in names if was_given(ctx, name)}
    if options.arguments["effort"] == "fast":
        given.discard("effort")  # it tries nothing, so it suits everything
    if options.stream:
        for name, why in NEVER_STREAM.items():
            if name in given:
                raise click.UsageError(f"{names[name]} cannot be used with --stream: {why}.")
        weight = options.arguments["class_weight"]
        if isinstance(weight, str):
            raise click.UsageError(
                f"--class-weight {weight} needs all labels at once. "
                "With --stream, give weights such as spam=2,ham=0.5."
            )
        if options.resume and options.continue_:
            raise click.UsageError(
                "Give either --resume, for the same data after an interruption, or --continue, for "
                "new data."
            )
    else:
        for name in ONLY_STREAM:
            if name in given:
                raise click.UsageError(f"{names[name]} needs --stream.")
    _check_vectors(names, given, options)
    for name in ("effort", "metric", "time_limit"):
        if name in given and options.cache_dir is not None and options.on is None:
            raise click.UsageError(
                f"{names[name]} cannot be used with --cache-dir: the texts are read once, so "
                "nothing can be tried."
            )
    if "time_limit" in given and was_given(ctx, "effort"):
        raise click.UsageError("Give either --effort or --time-limit, found both.")
    if {"validation", "validation_fraction"} <= given:
        raise click.UsageError("Give either --validation or --validation-fraction, found both.")
    if "patience" in given and not given & {"validation", "validation_fraction"}:
        raise click.UsageError(
            "--patience needs validation data: give --validation FILE, or --validation-fraction "
            "0.1 to hold out a tenth of the training data."
        )


def _check_vectors(names: Mapping[str, str], given: set[str], options: TrainOptions) -> None:
    """Refuse what does not go with word vectors."""
    if {"unlabelled", "pretrained"} <= given:
        raise click.UsageError(
            "Give either --unlabelled, to learn vectors, or --pretrained, a file with vectors; "
            "found both."
        )
    for name in given & {"unlabelled", "pretrained"}:
        for other, why in (
            ("cache_dir", "vectors need all labelled texts in memory"),
            ("on", "vectors need all labelled texts on one machine"),
        ):
            if other in given:
                raise click.UsageError(f"{names[name]} cannot be used with {names[other]}: {why}.")
    if "-" in options.unlabelled and "-" in options.data:
        raise click.UsageError(
            "Standard input holds either the labelled texts or those of --unlabelled, found - for "
            "both."
        )
