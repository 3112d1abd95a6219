"""`hashembed train --stream`."""

import json
import os
from typing import Any

import click

from hashembed.cli.options import option_names, say, was_given

# What a model is made of: options that `TextClassifier` takes by the same name.
MODEL_OPTIONS = (
    "ngrams",
    "subwords",
    "lowercase",
    "punctuation",
    "embedding_dim",
    "num_hashes",
    "num_embeddings",
    "num_buckets",
    "hidden_layers",
    "members",
    "seed",
)


def train_on_stream(
    ctx: click.Context,
    classifier: Any,
    data: tuple[str, ...],
    source: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Learn the files in their order, with a new model or with that of --output."""
    from hashembed.classify.classifier import STREAM_BATCH
    from hashembed.classify.streaming import OtherStreamError, Progressive, learn_stream
    from hashembed.readers import read_batches

    output, quiet = options["output"], options["quiet"]
    if options["resume"] or options["continue_"]:
        classifier = _model_so_far(ctx, classifier, options)
    before = getattr(classifier, "texts_seen_", 0)
    resumed = options["resume"] and before > 0
    report: Any = None
    saved = 0

    def on_save(texts: int) -> None:
        nonlocal saved
        saved = texts

    def pairs() -> Any:
        nonlocal report
        size = classifier.batch_size or STREAM_BATCH
        for batch in read_batches(list(data), rows=size, **source):
            report = batch.report
            yield batch.texts, _as_known(batch.labels, classifier)

    def on_report(progress: Progressive) -> None:
        say(
            f"{progress.texts:>12,} texts  accuracy {progress.accuracy:.4f}  "
            f"of the last {progress.recent_texts:,} {progress.recent_accuracy:.4f}  "
            f"{progress.classes:,} classes  {progress.texts / max(progress.seconds, 1e-9):,.0f}/s",
            quiet,
        )

    try:
        progress = learn_stream(
            classifier,
            pairs(),
            path=output,
            save_seconds=options["save_seconds"],
            resume=resumed,
            on_report=on_report,
            on_save=on_save,
        )
    except OtherStreamError as error:
        raise click.ClickException(
            f"{error}: is it another file, or are --label or --text other ones? "
            "New data is learned with --continue."
        ) from None
    except BaseException:
        if saved:
            say(f"\nWrote {output} after {saved:,} texts; --resume skips them.", quiet)
        raise
    skipped = classifier.stream_position_.texts - progress.texts if resumed else 0
    if report is not None:
        say(report, quiet)
    _tell(output, before, skipped, progress, quiet)
    if options["as_json"]:
        found = {**progress.to_dict(), "learned_before": before, "skipped": skipped}
        click.echo(json.dumps(found, indent=2))


def _model_so_far(ctx: click.Context, classifier: Any, options: dict[str, Any]) -> Any:
    """The model of --output; a new one where there is none yet."""
    from hashembed.classify.classifier import TextClassifier

    output, quiet = options["output"], options["quiet"]
    if not os.path.exists(output):
        if options["continue_"]:
            raise click.UsageError(
                f"There is no model {output} to continue. Without --continue, a new one is made."
            )
        say(f"There is no {output} yet: a new model.", quiet)
        return classifier
    loaded = TextClassifier.load(output, threads=options["threads"])
    _check_same_options(ctx, loaded, options)
    seen, position = loaded.texts_seen_, loaded.stream_position_.texts
    if options["continue_"]:
        say(f"Continuing {output}, which has learned {seen:,} texts, with new data.", quiet)
        if options["learning_rate"] is not None:
            loaded.learning_rate = loaded.stream_rate_ = options["learning_rate"]
        if options["batch_size"] is not None:
            loaded.batch_size = options["batch_size"]
    elif position == 0:
        raise click.UsageError(
            f"{output} does not say which stream it was learning, so nothing can be skipped: "
            "--continue learns these texts as new data."
        )
    else:
        say(f"Resuming {output}: the first {position:,} texts of this stream are skipped.", quiet)
    return loaded


def _check_same_options(ctx: click.Context, loaded: Any, options: dict[str, Any]) -> None:
    """A model keeps the options that it was made with."""
    from hashembed.classify.engine_plan import choose_device

    keeps = list(MODEL_OPTIONS)
    if options["resume"]:  # the same bits as without the interruption
        keeps += ["learning_rate", "batch_size", "class_weight"]
    elif was_given(ctx, "class_weight"):
        loaded.class_weight = options["class_weight"]
    if was_given(ctx, "device"):
        options = {**options, "device": choose_device(options["device"])}
    names = option_names(ctx)
    plan = loaded.engine_plan_
    chosen = {  # by the model itself, where nothing was asked for
        "embedding_dim": plan.embedding_dim,
        "num_embeddings": plan.spec.num_embeddings,
        "num_buckets": plan.spec.num_buckets,
    }
    for name in [*keeps, "device"]:
        has, wanted = chosen.get(name, getattr(loaded, name)), options[name]
        if was_given(ctx, name) and wanted != has:
            raise click.UsageError(
                f"{names[name]} is {_spelled(wanted)}, but {options['output']} was made with "
                f"{_spelled(has)}: leave the option out, or write to another file."
            )


def _spelled(value: Any) -> str:
    """As the command's user would write it."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}-{value[1]}"
    words = {True: "yes", False: "no", None: "no such option"}
    return words.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)


def _as_known(labels: Any, classifier: Any) -> Any:
    """Files hold strings. A model made in Python may have learned numbers, which are meant then."""
    known = getattr(classifier, "classes_", None)
    if known is None or known.dtype.kind == "U":
        return labels
    return [
        [_number(y, known.dtype.kind) for y in label]
        if isinstance(label, list)
        else _number(label, known.dtype.kind)
        for label in labels.to_pylist()
    ]


def _number(label: str, kind: str) -> int | bool:
    truth = {"True": True, "False": False}
    try:
        return truth[label] if kind == "b" else int(label)
    except (KeyError, ValueError):
        wanted = "True and False" if kind == "b" else "whole numbers"
        message = f"The labels of this model are {wanted}, found {label!r}."
        raise click.ClickException(message) from None


def _tell(output: str, before: int, skipped: int, progress: Any, quiet: bool) -> None:
    if progress.texts == 0:
        if before == 0:
            raise click.ClickException("Found no texts to learn from.")
        say(f"Nothing new: {skipped:,} texts had been learned before.", quiet)
        return
    say(
        f"Wrote {output} after {before + progress.texts:,} texts, {progress.texts:,} of them now. "
        "Learn more data with --continue.",
        quiet,
    )
