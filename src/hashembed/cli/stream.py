"""`hashembed train --stream`."""

import json
import os
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.inputs import Batches, as_type
from hashembed.cli.options import option_names, say, was_given
from hashembed.cli.train_options import MODEL_OPTIONS, TrainOptions

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.streaming import Progressive


def train_on_stream(
    ctx: click.Context, classifier: "TextClassifier", options: TrainOptions
) -> None:
    """Learn the files in their order, with a new model or with the one in --output."""
    from hashembed.classify.streaming import OtherStreamError, learn_stream
    from hashembed.classify.trained import NotShallowError
    from hashembed.classify.training import STREAM_BATCH
    from hashembed.readers import read_batches

    if options.resume or options.continue_:
        classifier = _model_so_far(ctx, classifier, options)
    before = getattr(classifier, "texts_seen_", 0)
    resumed = options.resume and before > 0
    size = classifier.batch_size or STREAM_BATCH
    batches = Batches(read_batches(list(options.data), rows=size, **options.source))
    saved: list[int] = []
    try:
        progress = learn_stream(
            classifier,
            ((batch.texts, _as_known(batch.labels, classifier)) for batch in batches),
            path=options.output,
            save_seconds=options.save_seconds,
            resume=resumed,
            on_report=lambda progress: say(_line(progress), options.quiet),
            on_save=saved.append,
        )
    except OtherStreamError as error:
        raise click.ClickException(
            f"{error}. Give the same files with the same --label and --text, or learn them as new "
            "data with --continue."
        ) from None
    except NotShallowError as error:
        raise click.ClickException(f"{error}.") from None
    except BaseException:
        if saved:
            say(
                f"\nWrote {options.output} after {saved[-1]:,} texts. Run the command again with "
                "--resume to learn the rest.",
                options.quiet,
            )
        raise
    skipped = classifier.stream_position_.texts - progress.texts if resumed else 0
    if batches.report is not None:
        say(batches.report, options.quiet)
    _tell(options, before, skipped, progress)


def _line(progress: "Progressive") -> str:
    """How far the stream has been learned, in one line."""
    return (
        f"{progress.texts:>12,} texts  accuracy {progress.accuracy:.4f}  "
        f"(last {progress.recent_texts:,}: {progress.recent_accuracy:.4f})  "
        f"{progress.classes:,} classes  {progress.texts / max(progress.seconds, 1e-9):,.0f} texts/s"
    )


def _model_so_far(
    ctx: click.Context, classifier: "TextClassifier", options: TrainOptions
) -> "TextClassifier":
    """The model in --output, or the new one if there is no such file yet."""
    from hashembed.classify.classifier import TextClassifier

    output, quiet = options.output, options.quiet
    if not os.path.exists(output):
        if options.continue_:
            raise click.UsageError(
                f"Found no model {output} to continue. Leave out --continue to train a new one."
            )
        say(f"Found no model {output} to resume: training a new one.", quiet)
        return classifier
    loaded = TextClassifier.load(output, threads=options.arguments["threads"])
    _check_same_options(ctx, loaded, options)
    seen, position = loaded.texts_seen_, loaded.stream_position_.texts
    if options.continue_:
        say(f"Continuing {output}, which has learned {seen:,} texts, with new data.", quiet)
        if (rate := options.arguments["learning_rate"]) is not None:
            loaded.learning_rate = loaded.stream_rate_ = rate
        if (size := options.arguments["batch_size"]) is not None:
            loaded.batch_size = size
    elif position == 0:
        raise click.UsageError(
            f"{output} was not trained with --stream, so its position in the data is not known. "
            "Use --continue to learn the data as new."
        )
    else:
        say(f"Resuming {output}: skipping the first {position:,} texts of the stream.", quiet)
    return loaded


def _check_same_options(
    ctx: click.Context, loaded: "TextClassifier", options: TrainOptions
) -> None:
    """Refuse options that contradict those that the model was made with."""
    from hashembed.classify.engine_plan import choose_device

    wanted = dict(options.arguments)
    keeps = [*MODEL_OPTIONS, "device"]
    if options.resume:  # the result must be the same as without the interruption
        keeps += ["learning_rate", "batch_size", "class_weight"]
    elif was_given(ctx, "class_weight"):
        loaded.class_weight = wanted["class_weight"]
    if was_given(ctx, "device"):
        wanted["device"] = choose_device(options.device)
    names = option_names(ctx)
    plan = loaded.engine_plan_
    chosen = {  # by the model itself, unless they were given
        "embedding_dim": plan.embedding_dim,
        "num_embeddings": plan.spec.num_embeddings,
        "num_buckets": plan.spec.num_buckets,
    }
    for name in keeps:
        has = chosen.get(name, getattr(loaded, name))
        if was_given(ctx, name) and wanted[name] != has:
            asked, made = _spelled(wanted[name]), _spelled(has)
            raise click.UsageError(
                f"{names[name]} is {asked}, but {options.output} was made with {made}: "
                f"leave out {names[name]}, or write to another file."
            )


def _spelled(value: Any) -> str:
    """The value of an option as the command's user would write it."""
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    if value is None:
        return "its default"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _as_known(labels: Any, classifier: "TextClassifier") -> Any:
    """Labels in the type of the classes that the model has learned, if any."""
    known = getattr(classifier, "classes_", None)
    return labels if known is None else as_type(labels, known, may_be_new=True)


def _tell(options: TrainOptions, before: int, skipped: int, progress: "Progressive") -> None:
    """What was learned, after `before` texts."""
    if progress.texts:
        say(
            f"Wrote {options.output} after {before + progress.texts:,} texts, {progress.texts:,} "
            "of them new. Learn more data with --continue.",
            options.quiet,
        )
    elif before:
        say(f"Found no new texts: {skipped:,} were learned before.", options.quiet)
    else:
        raise click.ClickException("Found no texts to learn from.")
    if options.as_json:
        found = {**progress.to_dict(), "learned_before": before, "skipped": skipped}
        click.echo(json.dumps(found, indent=2))
