"""Where vectors come from: a file, an object, or texts without labels."""

import os
from dataclasses import replace
from typing import Any

import numpy as np

from hashembed.core.arrays import F32
from hashembed.core.locations import local_copy
from hashembed.core.wording import named
from hashembed.vectors.model import VectorModel
from hashembed.vectors.word_vectors import NotTrainedError, WordVectors

Source = WordVectors | str | os.PathLike[str]

BYTES_OF_WORD = 6  # of text: a word and the space after it
WORDS_TO_READ = 10_000_000  # a small corpus is read so often that this many words pass by
FEWEST_PASSES, MOST_PASSES = 3, 50
FEW_WORDS = 1_000_000  # a smaller corpus keeps words that occur RARE times
RARE, USUAL = 2, 5
SAMPLE, KEPT = 1e-4, 5  # `sample`; but a word with KEPT occurrences or fewer is never thinned out


def model_of(source: Any, threads: int | None, name: str = "pretrained") -> VectorModel:
    """The model of trained vectors, or of those in a file."""
    if isinstance(source, str | os.PathLike):
        with local_copy(source) as file:
            return WordVectors.load(file, threads).model
    if not isinstance(source, WordVectors):
        raise TypeError(
            f"{named(name)} must be WordVectors or the path of a file with them, found "
            f"{type(source).__name__}"
        )
    try:
        model = source.model
    except NotTrainedError:
        raise ValueError(
            f"{named(name)} must be trained: call fit of these WordVectors first"
        ) from None
    if "vectors" in vars(model):  # a cache of all words, which a copy does not have
        return model
    return replace(model, threads=threads)


def defaults_for(num_bytes: int) -> dict[str, Any]:
    """min_count, passes and sample of `WordVectors` for a corpus of so many bytes of text."""
    words = max(num_bytes // BYTES_OF_WORD, 1)
    return {
        "min_count": RARE if words < FEW_WORDS else USUAL,
        "passes": min(max(WORDS_TO_READ // words, FEWEST_PASSES), MOST_PASSES),
        "sample": max(SAMPLE, KEPT / words),
    }


def vectors_for(num_bytes: int, **settings: Any) -> WordVectors:
    """Vectors to train on a corpus of so many bytes; settings that are None follow its size."""
    given = {name: value for name, value in settings.items() if value is not None}
    return WordVectors(**{**defaults_for(num_bytes), **given})


def unit_means(model: VectorModel, texts: Any) -> F32:
    """The mean word vector of each text (n, d), scaled to length 1; zeros without words."""
    means = model.embed(texts)
    return means / lengths_of(means)[:, None]


def lengths_of(means: F32) -> F32:
    """The length of each vector (n,); 1 for zeros."""
    lengths = np.sqrt((means.astype(np.float64) ** 2).sum(axis=1))
    return np.asarray(np.where(lengths > 0, lengths, 1), np.float32)
