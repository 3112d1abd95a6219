"""Predictions and measures of a whole dataset, by all nodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hashembed.distributed.cluster import column_names, connected
from hashembed.distributed.columns import Columns, Names, Skipped
from hashembed.distributed.groups import Group, add_up, fetch, in_order, run_groups
from hashembed.readers.report import DataError

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.metrics import Evaluation
    from hashembed.classify.tally import Tally

BLOCK_ROWS = 4096  # texts that are scored at a time


def predict(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    keep: bool | Sequence[str] = True,
    top: int | None = None,
    threshold: float | None = None,
    probabilities: bool = False,
) -> Any:
    """Predict the labels of all texts of a Ray dataset -> a Ray dataset.

    Nothing runs before the result is used, for example by `write_parquet`.

    Args:
        clf: a trained classifier.
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        keep: columns of `ds` to keep; True (default) keeps all.
        top: most labels for each text. None (default) is 1, or with several labels no limit.
        threshold: give only labels with a probability above it, as `TextClassifier.predict` does.
        probabilities: add the probabilities.

    The new column is `prediction`, with probabilities also `probability`. If a text can get several
    answers, the columns are `predictions` and `probabilities` and hold lists, the likeliest first.
    A missing text (null) gets no answer (null).
    """
    ray = connected()
    clf._fitted()
    columns = Columns.of(ds, text, None)
    have = [name for name in column_names(ds) if name != columns.note]
    kept = have if keep is True else [] if keep is False else list(keep)
    if missing := [name for name in kept if name not in have]:
        listed = ", ".join(map(repr, have))
        raise DataError(f"keep: found no column {missing[0]!r}, the columns are {listed}")
    limits = clf._limits(threshold, top)
    options = {
        "model": ray.put(_alone(clf)),
        "columns": columns,
        "kept": kept,
        "limits": limits,
        "probabilities": probabilities,
    }
    used = ds.select_columns(list(dict.fromkeys([*columns.names, *kept])))
    return in_order(
        used.map_batches(
            _answer_block,
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            fn_kwargs=options,
            num_cpus=1,
        )
    )


def evaluate(
    clf: "TextClassifier",
    ds: Any,
    *,
    text: Names = "text",
    label: str = "label",
    threshold: float | None = None,
    top: int | None = None,
    on_error: str = "stop",
) -> "Evaluation":
    """Compute what `TextClassifier.evaluate` does, for a Ray dataset: the same bits.

    Args:
        clf: a trained classifier.
        ds: a Ray dataset.
        text: the column of texts, or several columns, which are joined by a space.
        label: the column of the true labels.
        threshold: as in `TextClassifier.evaluate`.
        top: as in `TextClassifier.evaluate`.
        on_error: "stop" (default) raises a `DataError` for a row without text or label, "skip"
            leaves it out.
    """
    return tally(clf, ds, text=text, label=label, threshold=threshold, top=top, on_error=on_error)[
        0
    ].evaluation()


def tally(
    clf: "TextClassifier", ds: Any, *, text: Names, label: str, on_error: str, **limits: Any
) -> "tuple[Tally, Skipped]":
    """The counts of an evaluation, and the rows that were left out."""
    ray = connected()
    clf._fitted()
    columns = Columns.of(ds, text, label, on_error)
    work = _tally_group, ray.put(_alone(clf)), columns, limits
    total = add_up(run_groups(columns.select(ds), "evaluate", *work), "evaluate: sum", _add_tallies)
    if total is None:
        return clf.tally([], [], **limits), Skipped()
    found: tuple[Tally | None, Skipped] = fetch(total)
    return found[0] or clf.tally([], [], **limits), found[1]


def _alone(clf: "TextClassifier") -> "TextClassifier":
    """The classifier for tasks of one core."""
    import copy

    single = copy.copy(clf)
    single.threads = 1
    return single


def _answer_block(
    table: pa.Table,
    model: Any,
    columns: Columns,
    kept: list[str],
    limits: tuple[float | None, int | None],
    probabilities: bool,
) -> pa.Table:
    """The task: answers for a block, next to the columns that are kept."""
    from hashembed.classify.answers import free_name

    clf = _fetched(model)
    table = columns.without_notes(table, Skipped())
    texts = columns.texts_of(table)
    threshold, top = limits
    several = clf._multilabel or top != 1
    found = answer_columns(clf, texts, threshold, top, several)
    out = {name: table[name] for name in kept}
    for word, column in zip(_names(several)[: 1 + probabilities], found, strict=False):
        out[free_name(word, out)] = column
    return pa.table(out)


def _names(several: bool) -> tuple[str, str]:
    return ("predictions", "probabilities") if several else ("prediction", "probability")


def answer_columns(
    clf: "TextClassifier", texts: Any, threshold: float | None, top: int | None, several: bool
) -> tuple[Any, Any]:
    """Labels and probabilities as Arrow columns; null where a text is null."""
    from hashembed.classify.answers import best, chosen

    classes = pa.array(clf.classes_.tolist())
    parts: list[tuple[Any, Any]] = []
    for start in range(0, max(len(texts), 1), BLOCK_ROWS):
        part = texts.slice(start, BLOCK_ROWS)
        missing = part.is_null().to_numpy(zero_copy_only=False)
        z, empty = clf._scored(part)
        order = best(z, top if several else 1)
        given = np.take_along_axis(chosen(z, clf._multilabel, threshold, None), order, axis=1)
        given &= ~missing[:, None]
        p = np.take_along_axis(clf._probabilities(z, empty), order, axis=1)
        if several:
            lengths = given.sum(axis=1)
            edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            offsets = pa.array(edges, mask=np.append(missing, False))
            labels = classes.take(pa.array(order[given]))
            parts.append(
                (
                    pa.ListArray.from_arrays(offsets, labels),
                    pa.ListArray.from_arrays(offsets, pa.array(p[given])),
                )
            )
        else:
            hidden = ~given[:, 0] if len(given) else missing
            parts.append(
                (
                    classes.take(pa.array(order[:, 0], mask=hidden)),
                    pa.array(p[:, 0], mask=hidden),
                )
            )
    return tuple(pa.chunked_array(list(column)) for column in zip(*parts, strict=True))


def _tally_group(
    group: Group, clf: "TextClassifier", columns: Columns, limits: dict[str, Any]
) -> "tuple[Tally | None, Skipped]":
    """The task: the counts of a group."""
    total: Tally | None = None
    skipped = Skipped()
    for first, table in group.tables():
        texts, labels, _ = columns.read(first, table, skipped)
        for start in range(0, len(texts), BLOCK_ROWS):
            part = texts.slice(start, BLOCK_ROWS), labels.slice(start, BLOCK_ROWS)
            own = clf.tally(*part, **limits)
            total = own if total is None else total + own
    return total, skipped


def _add_tallies(
    one: "tuple[Tally | None, Skipped]", two: "tuple[Tally | None, Skipped]"
) -> "tuple[Tally | None, Skipped]":
    both = [part for part in (one[0], two[0]) if part is not None]
    total = both[0] + both[1] if len(both) == 2 else both[0] if both else None
    return total, one[1] + two[1]


_models: dict[str, Any] = {}  # of this process: one, the latest


def _fetched(reference: Any) -> "TextClassifier":
    """The model behind a reference, which tasks of a process share."""
    key = reference.hex()
    if key not in _models:
        _models.clear()
        _models[key] = fetch(reference)
    return _models[key]  # type: ignore[no-any-return]
