"""Continues training on new text: new words join the vocabulary, the tables go on as they are."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import I64, is_among
from hashembed.core.arrow_columns import number_column
from hashembed.core.threads import cpu_count
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.text.dictionary import Dictionary
from hashembed.vectors.arrays import Tables
from hashembed.vectors.corpus import (
    EncodedCorpus,
    Source,
    count_ids,
    count_words,
    entries_of,
    number_words,
    renumber,
)
from hashembed.vectors.id_store import Storage
from hashembed.vectors.model import VectorModel
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import Trainer, VectorProgress, vocabulary_for


class NoTrainingStateError(ValueError):
    """Vectors without the tables that only training needs cannot be trained further."""


def continue_training(
    model: VectorModel,
    source: Source,
    threads: int | None,
    on_progress: Callable[[VectorProgress], object] | None,
    storage: Storage,
    make_trainer: Callable[..., Trainer],
) -> VectorModel:
    """Train on new texts; `WordVectors.partial_fit` says how. The given model stays as it is."""
    if model.state is None:
        raise NoTrainingStateError(
            "these vectors have no training state, so training cannot continue: they came from a "
            "file that was saved without for_training=True"
        )
    settings = model.settings
    corpus, order = _encode(model.dictionary, source, settings, threads, storage)
    tables = _moved(model.state, order)
    keys, offsets = entries_of(corpus.dictionary.strings, settings.words, settings.subwords)
    vocabulary = vocabulary_for(keys, offsets, corpus.dictionary.counts, model.spec)
    # Other windows and negatives than before, in case some of the text is the same.
    seed = (settings.seed + len(model.losses)) % 2**63
    now = replace(settings, seed=seed)
    trainer = make_trainer(corpus, now, vocabulary, tables, model.spec, threads or cpu_count())
    losses = trainer.train(on_progress)
    result = VectorModel.trained(settings, corpus.dictionary, model.spec, tables)
    result.losses, result.threads = [*model.losses, *losses], threads
    return result


def _encode(
    known: Dictionary,
    source: Source,
    settings: VectorSettings,
    threads: int | None,
    storage: Storage,
) -> tuple[EncodedCorpus, I64]:
    """The corpus with its vocabulary, and the place that each word had: known words, new words."""
    config = settings.words
    most = min(settings.max_words + len(known), 2**31 - 1)
    found = count_words(source, config, settings.min_count, most, threads)
    new = np.flatnonzero(~is_among(found.keys, known.keys))
    new = new[: max(settings.max_words - len(known), 0)]
    joined = Dictionary(
        config,
        np.concatenate([known.keys, found.keys[new]]),
        np.concatenate([known.counts, np.zeros(len(new), np.int64)]),
        pa.concat_arrays([known.strings, found.strings.take(number_column(new))]),
    )
    ids = number_words(source, joined, config, threads, storage, settings.phrases)
    counts = count_ids(ids, len(joined))
    same = np.array_equal(counts[len(known) :], found.counts[new])
    if not same and settings.phrases == 1:  # phrases may take new words
        raise ValueError("the texts changed: a function of texts must return the same each time")
    if not counts.any():
        raise ValueError(
            "found no word of the vocabulary, and no new one that occurs "
            f"{settings.min_count} times: there is nothing to learn"
        )
    total = joined.counts + counts
    order = np.lexsort((joined.keys, -total))  # as `Dictionary` orders them
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    renumber(ids, places)
    strings = joined.strings.take(number_column(order))
    dictionary = Dictionary(config, joined.keys[order], total[order], strings)
    return EncodedCorpus(dictionary, ids, int(counts.sum())), order


def _moved(state: Tables, order: I64) -> Tables:
    """Copies of the tables, with the rows of the output in a new order; new words start at 0."""
    E, C = (padded_rows(rows, state.E.shape[1]) for rows in (len(state.E), len(order)))
    E[:], C[:] = state.E, 0
    C_square = np.zeros(len(order), np.float32)
    old = np.flatnonzero(order < len(state.C))
    C[old], C_square[old] = state.C[order[old]], state.C_square[order[old]]
    return Tables(
        E=E,
        E_square=state.E_square.copy(),
        P=state.P.copy(),
        P_square=state.P_square.copy(),
        C=C,
        C_square=C_square,
    )
