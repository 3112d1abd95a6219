"""The members of an ensemble, each trained on a node of its own."""

import copy
import os
from typing import TYPE_CHECKING, Any

from hashembed.core.locations import delete_location, join_location
from hashembed.core.wording import given
from hashembed.distributed.cluster import connected
from hashembed.distributed.columns import Names
from hashembed.distributed.groups import fetch, remote_task
from hashembed.distributed.training import (
    Resources,
    Staged,
    check,
    finished,
    fit,
    fit_options,
    loaded,
    resources,
    search_of,
    stage,
    unfitted,
)
from hashembed.engine.loop import STATE_SECONDS

if TYPE_CHECKING:
    from hashembed.classify.choose.search import Search
    from hashembed.classify.classifier import TextClassifier
    from hashembed.engine.defaults import Shuffle
    from hashembed.engine.history import History
    from hashembed.engine.protocol import State


def fit_members(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    label: str = "label",
    storage: str | os.PathLike[str] | None = None,
    on_error: str = "stop",
    shuffle: "Shuffle | None" = None,
    cores: int | None = None,
    gpus: float | None = None,
    cache_dir: str | None = None,
    state_seconds: float = STATE_SECONDS,
) -> "TextClassifier":
    """Train the members of an ensemble at the same time, each on a node of its own.

    The weights are the same bits as those of `fit`, which trains one member after the other. The
    arguments are those of `fit`, without validation: early stopping judges all members together.
    The losses in `history_` are the means of the members' losses.
    """
    for name in ("patience", "validation_fraction"):
        if value := getattr(clf, name):
            raise ValueError(f"{given(name, value)} needs all members in one place: use fit")
    options: dict[str, Any] = {"text": text, "label": label, "storage": storage}
    options |= {"on_error": on_error, "shuffle": shuffle, "cores": cores, "gpus": gpus}
    options |= {"cache_dir": cache_dir, "state_seconds": state_seconds}
    if member_count(clf, search_of(clf)) == 1:
        return fit(clf, ds, **options)
    connected()
    check(clf, False)
    with stage(clf, ds, text, label, storage, None, on_error) as staged:
        trainer = resources(clf, cores, gpus, cache_dir, state_seconds)
        task = remote_task("members", 1)
        trained = fetch(task.remote(_train_all, unfitted(clf), staged, trainer, shuffle))
    vars(clf).update(vars(trained))
    return clf


def member_count(clf: "TextClassifier", search: "Search | None") -> int:
    """How many members the ensemble has."""
    return clf.members or (1 if search is None else search.chosen.members)


def _train_all(
    clf: "TextClassifier", staged: Staged, trainer: Resources, shuffle: "Shuffle | None"
) -> "TextClassifier":
    """The task: let others train the members, join and calibrate them."""
    from hashembed.classify.training import calibrate_model, leaving_out

    threads, clf.threads = clf.threads, 1
    options = {} if not trainer.gpus else {"num_gpus": trainer.gpus}
    task = remote_task("member", trainer.cores, **options)
    members = range(member_count(clf, staged.search))
    waiting = [task.remote(_train_member, clf, staged, trainer, shuffle, i) for i in members]
    with loaded(staged, trainer) as (bags, targets, held_out):
        run = staged.prepare(
            clf, bags, targets, fit_options(staged, held_out, "", shuffle, trainer)
        )
        with leaving_out(run) as left_out:
            pass  # only to know the rows: the members have left them out
        found: list[tuple[State, History]] = fetch(waiting)
        state = {f"{i}.{name}": a for i, (own, _) in enumerate(found) for name, a in own.items()}
        clf.model_.load_state(state)
        clf.history_ = _mean([history for _, history in found])
        calibrate_model(run, left_out)
    for i in members:
        delete_location(_state_of(staged, i))
    return finished(clf, staged, threads)


def _state_of(staged: Staged, member: int) -> str:
    return join_location(staged.folder, f"member-{member}.safetensors")


def _train_member(
    clf: "TextClassifier",
    staged: Staged,
    trainer: Resources,
    shuffle: "Shuffle | None",
    member: int,
) -> "tuple[State, History]":
    """The task: train one member."""
    from dataclasses import replace

    from hashembed.classify.training import leaving_out, run_training
    from hashembed.engine.ensemble import Ensemble

    clf = copy.copy(clf)
    clf.threads = trainer.cores
    with loaded(staged, trainer) as (bags, targets, held_out):
        options = fit_options(staged, held_out, _state_of(staged, member), shuffle, trainer)
        run = staged.prepare(clf, bags, targets, options)
        model = clf.model_
        assert isinstance(model, Ensemble)
        with leaving_out(run):
            alone = copy.copy(clf)
            alone.model_ = model.only(member)
            run_training(replace(run, clf=alone))
        return model.members[member].state(), alone.history_


def _mean(histories: "list[History]") -> "History":
    """The history of the ensemble: the mean of the members' losses."""
    from dataclasses import replace
    from math import fsum

    epochs = [
        replace(
            of_all[0],
            loss=fsum(epoch.loss for epoch in of_all) / len(of_all),
            seconds=max(epoch.seconds for epoch in of_all),
        )
        for of_all in zip(*(history.epochs for history in histories), strict=True)
    ]
    return replace(histories[0], epochs=epochs)
