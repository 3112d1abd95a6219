"""Training on a dataset: all nodes make keys, one node trains."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hashembed.core.locations import (
    delete_location,
    exists,
    is_uri,
    join_location,
)
from hashembed.core.wording import named
from hashembed.distributed.cluster import connected, largest_node, node_count
from hashembed.distributed.columns import Columns, Names
from hashembed.distributed.groups import fetch, remote_task
from hashembed.distributed.keys import Parts, make_keys
from hashembed.engine.loop import STATE_SECONDS
from hashembed.readers.report import DataError

if TYPE_CHECKING:
    from hashembed.classify.choose.search import Search
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.targets import Targets
    from hashembed.classify.training import FitOptions, Training
    from hashembed.engine.defaults import Shuffle
    from hashembed.engine.loop import Progress
    from hashembed.hashing.bags import Bags

STATE, MODEL, KEYS = "training-state.safetensors", "model.safetensors", "keys"
TELL_SECONDS = 10.0  # between lines of progress


@dataclass(frozen=True)
class Resources:
    """What the trainer gets of its node, and where it keeps its keys and states."""

    cores: int
    gpus: float
    cache_dir: str | None
    state_seconds: float


def fit(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    label: str = "label",
    storage: str | os.PathLike[str] | None = None,
    validation: Any = None,
    on_error: str = "stop",
    shuffle: "Shuffle | None" = None,
    cores: int | None = None,
    gpus: float | None = None,
    cache_dir: str | None = None,
    state_seconds: float = STATE_SECONDS,
) -> "TextClassifier":
    """Train a classifier on a Ray dataset -> the classifier.

    All nodes turn texts into keys. One node reads the keys and trains: the same bits as
    `TextClassifier.fit_batches` gives for the same rows. Settings that are left open follow rules;
    `choose` tries them on a sample.

    Args:
        clf: a new classifier; it becomes the trained one.
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        label: the column of labels.
        storage: a folder that all nodes can reach: a path or a URI such as s3://bucket/run. It gets
            the keys (8 bytes for each n-gram, deleted at the end), the training state and the
            model. If the trainer or its node dies, training resumes from the training state. So
            does a second call with the same data and settings. None (default) uses a temporary
            folder, which works on one node only.
        validation: a Ray dataset to validate on after every pass.
        on_error: "stop" (default) raises a `DataError` for a row without text or label, "skip"
            leaves it out.
        shuffle: as in `TextClassifier.fit_batches`.
        cores: of the trainer. None (default) takes those of the largest node.
        gpus: of the trainer. None (default) is 1 if the classifier trains on a GPU, else 0.
        cache_dir: a folder of the trainer's node for its copy of the keys; None (default) is its
            folder for temporary files.
        state_seconds: seconds between training states within a pass.
    """
    connected()
    check(clf, validation is not None)
    with stage(clf, ds, text, label, storage, validation, on_error) as staged:
        trainer = resources(clf, cores, gpus, cache_dir, state_seconds)
        options = {} if not trainer.gpus else {"num_gpus": trainer.gpus}
        task = remote_task("train", trainer.cores, **options)
        trained = fetch(task.remote(_train, unfitted(clf), staged, trainer, shuffle))
    vars(clf).update(vars(trained))
    return clf


@dataclass(frozen=True)
class Staged:
    """The keys of the rows to train on and to validate on, in a folder; and how to train."""

    folder: str
    train: Parts
    held_out: Parts | None
    search: "Search | None"  # how the settings were chosen
    verbose: bool

    def prepare(
        self, clf: "TextClassifier", bags: "Bags", targets: "Targets", options: "FitOptions"
    ) -> "Training":
        """Make the model, with the settings that were chosen, or by rules."""
        from hashembed.classify.training import prepare

        chosen = None if self.search is None else self.search.chosen
        return prepare(
            clf, bags, targets, None, options, chosen, self.search, fast=self.search is None
        )


@contextmanager
def stage(
    clf: "TextClassifier",
    ds: Any,
    text: Names,
    label: str,
    storage: str | os.PathLike[str] | None,
    validation: Any,
    on_error: str,
) -> Iterator[Staged]:
    """Make the keys; they are deleted in the end. A training state stays if there was an error."""
    import shutil

    from hashembed.classify.training import text_config

    columns = Columns.of(ds, text, label, on_error)
    search = search_of(clf)
    config = text_config(clf) if search is None else search.chosen.text
    folder, temporary = _folder(storage)
    staged: list[Parts] = []
    try:
        for data in (ds, validation):
            if data is not None:
                where = join_location(folder, KEYS)
                staged.append(make_keys(data, columns, config, where))
        if not staged[0].rows:
            raise DataError("found no texts to train on")
        if clf.verbose:
            _tell_staged(staged[0])
        held_out = staged[1] if validation is not None else None
        yield Staged(folder, staged[0], held_out, search, clf.verbose)
        delete_location(join_location(folder, STATE))
    finally:
        for parts in staged:
            parts.delete()
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


def search_of(clf: "TextClassifier") -> "Search | None":
    """What `choose` has found for a classifier that is not trained yet."""
    return None if clf.__sklearn_is_fitted__() else getattr(clf, "search_", None)


def _tell_staged(parts: Parts) -> None:
    import sys

    print(f"{parts.rows:,} texts, {parts.keys:,} n-grams", file=sys.stderr)
    if parts.skipped.rows:
        print(parts.skipped, file=sys.stderr)


def _folder(storage: str | os.PathLike[str] | None) -> tuple[str, bool]:
    """The folder for keys and states, and whether it is a temporary one."""
    if storage is not None:
        where = os.fspath(storage)
        return (where if is_uri(where) else os.path.abspath(where)), False
    if (nodes := node_count()) > 1:
        raise ValueError(
            f"{named('storage')} is missing: found {nodes} nodes, which need a folder that all of "
            "them can reach, such as s3://bucket/run or a shared file system"
        )
    return tempfile.mkdtemp(prefix="hashembed-"), True


def check(clf: "TextClassifier", has_validation: bool) -> None:
    """Refuse arguments that make no sense before anything is read."""
    from hashembed.classify.training import FitOptions, check_arguments

    check_arguments(clf, FitOptions(validation=((), ()) if has_validation else None))


def unfitted(clf: "TextClassifier") -> "TextClassifier":
    """A new classifier with these settings, which prints nothing: its bars are for terminals."""
    return type(clf)(**{**clf.get_params(deep=False), "verbose": False})


def resources(
    clf: "TextClassifier",
    cores: int | None,
    gpus: float | None,
    cache_dir: str | None,
    state_seconds: float,
) -> Resources:
    """What the trainer gets, by default."""
    if gpus is None:
        gpus = 0 if clf.device == "cpu" else 1
    return Resources(cores or largest_node(), gpus, cache_dir, state_seconds)


def _train(
    clf: "TextClassifier", staged: Staged, trainer: Resources, shuffle: "Shuffle | None"
) -> "TextClassifier":
    """The task: train on the keys."""
    from hashembed.classify.training import calibrate_model, leaving_out, run_training

    threads, clf.threads = clf.threads, clf.threads or trainer.cores
    state = join_location(staged.folder, STATE)
    with loaded(staged, trainer) as (bags, targets, held_out):
        options = fit_options(staged, held_out, state, shuffle, trainer)
        run = staged.prepare(clf, bags, targets, options)
        with leaving_out(run) as left_out:
            run_training(run)
        calibrate_model(run, left_out)
    return finished(clf, staged, threads)


def finished(clf: "TextClassifier", staged: Staged, threads: int | None) -> "TextClassifier":
    """The trained classifier. Its model is also written: the process that waits for it may die."""
    clf.threads, clf.verbose = threads, staged.verbose
    clf.save(join_location(staged.folder, MODEL), for_training=True)
    return clf


def fit_options(
    staged: Staged,
    held_out: "tuple[Bags, Any] | None",
    state: str,
    shuffle: "Shuffle | None",
    trainer: Resources,
) -> "FitOptions":
    """How the trainer trains."""
    from hashembed.classify.training import FitOptions

    if state and exists(state) and staged.verbose:
        print(f"resuming from {state}", flush=True)
    callbacks = (_teller(),) if staged.verbose else ()
    return FitOptions(held_out, state, callbacks, shuffle, trainer.state_seconds)


@contextmanager
def loaded(
    staged: Staged, trainer: Resources
) -> "Iterator[tuple[Bags, Targets, tuple[Bags, Any] | None]]":
    """The keys on the disk of this node, with the labels; and the validation data."""
    from hashembed.classify.training import join_batches
    from hashembed.hashing.bags import Bags
    from hashembed.text.key_store import KeyStore

    with KeyStore(trainer.cache_dir or tempfile.gettempdir()) as store:
        bags, targets = join_batches(staged.train, store)
        held_out = None
        if staged.held_out is not None:
            parts = list(staged.held_out)
            labels = pa.chunked_array([labels for _, labels in parts]).combine_chunks()
            held_out = Bags.concat([part for part, _ in parts]), labels
        yield bags, targets, held_out


def _teller() -> "Callable[[Progress], None]":
    """Prints a line of progress now and then, which Ray shows where `fit` was called."""
    last = time.monotonic()

    def tell(progress: "Progress") -> None:
        nonlocal last
        if (now := time.monotonic()) - last < TELL_SECONDS:
            return
        last = now
        share = progress.documents / max(progress.total, 1)
        print(
            f"pass {progress.epoch + 1} of {progress.passes}, {share:.0%}, "
            f"loss {progress.loss:.4f}, {progress.ngrams_per_second / 1e6:.1f}M n-grams/s",
            flush=True,
        )

    return tell
