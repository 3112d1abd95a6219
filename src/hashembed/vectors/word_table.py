"""Vectors of known words only: each word has a row of its own, and no hash is needed.

Words are taken whole, as they are: 'New_York' and "don't" are found although text has no such
words. Strings that are not in the table are read as text, and their words are looked up.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from hashembed.core.arrays import F32, I64
from hashembed.core.arrow_columns import text_column
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.text.string_keys import keys
from hashembed.vectors.model import VectorModel
from hashembed.vectors.row_table import RowTable
from hashembed.vectors.settings import VectorSettings


def model_of_table(
    words: list[str], table: F32, dim: int, threads: int | None = None
) -> VectorModel:
    """A model whose word w has the vector table[w, :dim]. The table is kept, not copied."""
    count = len(words)
    settings = VectorSettings(
        embedding_dim=dim,
        num_hashes=1,
        num_embeddings=count,
        num_buckets=count,
        subwords=None,
        lowercase=all(word == word.lower() for word in words),
        min_count=1,
        max_words=count,
    )
    # The files tell no counts, only an order.
    counts = np.zeros(count, np.int64)
    dictionary = exact_dictionary(text_column(words), counts, settings.words)
    spec = HashSpec(count, count, 1, indexing="identity", seed=settings.seed)
    P = np.ones((count, 1), np.float32)
    return VectorModel(settings, dictionary, spec, RowTable(table, dim), P, threads=threads)


def exact_dictionary(strings: pa.LargeStringArray, counts: I64, config: TextConfig) -> Dictionary:
    """A dictionary whose strings are taken whole; an error if a string is there twice."""
    own = keys(strings)
    order = np.argsort(own, kind="stable")
    twice = np.flatnonzero(own[order][1:] == own[order][:-1])
    if len(twice):
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        word: Any = strings[first].as_py()
        raise ValueError(
            f"found {word!r:.60} twice, as word {first + 1:,} and as word {second + 1:,}"
        )
    return Dictionary(config, own, counts, strings)
