"""Settings for a dataset: tried on a sample, each candidate by a task of its own."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import F64, I64
from hashembed.core.arrow_columns import number_column
from hashembed.core.checks import whole_number
from hashembed.distributed.cluster import connected, plain_errors
from hashembed.distributed.columns import Columns, Names, Skipped
from hashembed.distributed.groups import Group, add_up, fetch, remote_task, results, run_groups
from hashembed.hashing.spec import id_keys
from hashembed.readers.report import DataError

if TYPE_CHECKING:
    from hashembed.classify.choose.race import Race, Together
    from hashembed.classify.choose.trial import Trial
    from hashembed.classify.classifier import TextClassifier

ROWS = 100_000


def choose(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    label: str = "label",
    rows: int = ROWS,
    on_error: str = "stop",
) -> "TextClassifier":
    """Choose what a classifier leaves open, on a sample of a Ray dataset -> a new classifier.

    The search is that of `TextClassifier.fit`, for a training on all rows. Its trials run at the
    same time, on all nodes. The attribute `search_` of the new classifier tells what was tried and
    chosen; `fit` and `fit_members` train with it. If the sample has all rows, the model has the
    same bits as that of `TextClassifier.fit`.

    Args:
        clf: a classifier; what its arguments set is respected.
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        label: the column of labels.
        rows: of the sample, which the seed and the numbers of the rows determine.
        on_error: "stop" (default) raises a `DataError` for a row without text or label, "skip"
            leaves it out.
    """
    from hashembed.classify.choose.race import choose_settings
    from hashembed.classify.targets import encode
    from hashembed.classify.training import FitOptions, check_arguments, left_open, weigh
    from hashembed.text.arrow import to_arrow

    ray = connected()
    whole_number("rows", rows, 1, 10**8)
    if clf.time_limit is not None:
        raise ValueError("time_limit is for one machine: set effort instead")
    check_arguments(clf, FitOptions(validation=((), ())))
    columns = Columns.of(ds, text, label, on_error)
    sample = take_sample(ds, columns, rows, clf.seed)
    if not sample.total:
        raise DataError("found no texts to train on")
    texts, labels = sample.rows["text"], sample.rows["label"].combine_chunks()
    weights, targets = weigh(clf, len(texts), encode(labels), None)
    open_ = left_open(clf)

    def run_trials(race: "Race", groups: "list[Together]") -> "Iterator[Trial]":
        reference = ray.put(replace(race, run_trials=_nowhere))
        task = remote_task("trial", 1)
        waiting = [
            task.remote(_run_group, reference, one) for group in groups for one in _apart(group)
        ]
        yield from results(iter(waiting))

    asking = type(clf)(**{**clf.get_params(deep=False), "threads": 1})
    asking.verbose = clf.verbose
    search = choose_settings(
        asking, open_, to_arrow(texts), targets, weights, None, sample.total, run_trials
    )
    found = type(clf)(**clf.get_params(deep=False))
    found.search_ = search
    return found


def _nowhere(race: "Race", groups: "list[Together]") -> "Iterator[Trial]":
    """A task runs the trials that it is given, and starts no others."""
    raise NotImplementedError


def _apart(group: "Together") -> "list[Together]":
    """Each trial for itself: another task hashes the texts again, which takes less than a trial."""
    return [group._replace(runs=(run,)) for run in group.runs]


def _run_group(race: "Race", group: "Together") -> "Trial":
    """The task: one trial."""
    (trial,) = race.together(group)
    return trial


class Drawn(NamedTuple):
    """Some rows, and how many there are in all."""

    numbers: I64  # of the rows
    rows: pa.Table  # text, label
    total: int


def take_sample(ds: Any, columns: Columns, rows: int, seed: int) -> Drawn:
    """Some rows in the order of the dataset.

    A row's number and the seed decide how early it is drawn, so the sample is the same for any
    division into blocks.
    """
    with plain_errors():
        count = int(ds.count())
    share = min(1.0, (1.5 * rows + 1000) / max(count, 1))  # enough, almost certainly
    groups = run_groups(columns.select(ds), "sample", _draw, columns, rows, seed, share)
    total = add_up(groups, "sample: sum", _add_drawn)
    if total is None:
        return Drawn(np.empty(0, np.int64), pa.table({"text": [], "label": []}), 0)
    found: Drawn = fetch(remote_task("sample: cut").remote(_first, total, rows, seed))
    return found


def _draw(group: Group, columns: Columns, rows: int, seed: int, share: float) -> Drawn:
    """The task: the rows of a group that are drawn early."""
    parts = [Drawn(np.empty(0, np.int64), pa.table({}), 0)]
    for first, table in group.tables():
        texts, labels, numbers = columns.read(first, table, Skipped())
        early = np.flatnonzero(_draws(numbers, seed) < share)
        own = pa.table({"text": texts, "label": labels}).take(number_column(early))
        parts.append(Drawn(numbers[early], own, len(texts)))
    return _first(_joined(parts[1:] or parts), rows, seed)


def _draws(numbers: I64, seed: int) -> F64:
    """A number from 0 to 1 for each row."""
    stream = id_keys(np.asarray(seed, np.int64))
    return np.asarray(id_keys(numbers ^ stream).astype(np.uint64) / 2.0**64)


def _first(drawn: Drawn, rows: int, seed: int) -> Drawn:
    """The rows that are drawn first, in the order of the dataset."""
    if len(drawn.numbers) <= rows:
        return drawn
    early = np.sort(np.argsort(_draws(drawn.numbers, seed), kind="stable")[:rows])
    return Drawn(drawn.numbers[early], drawn.rows.take(number_column(early)), drawn.total)


def _add_drawn(one: Drawn, two: Drawn) -> Drawn:
    return _joined([one, two])


def _joined(parts: list[Drawn]) -> Drawn:
    numbers = np.concatenate([part.numbers for part in parts])
    tables = pa.concat_tables([part.rows for part in parts])
    return Drawn(numbers, tables, sum(part.total for part in parts))
