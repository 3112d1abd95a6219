"""Questions that a small copy answers on a CPU: fewer words, a narrow model, part of the text."""

from dataclasses import replace

import numpy as np

from benchmarks.language_model.data import UNKNOWN, Corpus
from benchmarks.language_model.tables import VARIANTS
from benchmarks.language_model.training import Job, Sizes

WORDS, TRAIN, HELD_OUT = 4_000, 150_000, 20_000
SEEDS = (0, 1)
SIZES = Sizes(dim=64, layers=2, heads=4, length=64, batch=16)
STD = SIZES.dim**-0.5


def cut(corpus: Corpus) -> Corpus:
    """The most frequent words, the others unknown; the beginnings of the texts."""
    unknown = corpus.words.index(UNKNOWN)

    def part(ids: np.ndarray, count: int) -> np.ndarray:
        return np.where(ids[:count] < WORDS, ids[:count], unknown)

    return Corpus(
        corpus.words[:WORDS],
        part(corpus.train, TRAIN),
        part(corpus.validation, HELD_OUT),
        part(corpus.test, HELD_OUT),
    )


def sharing() -> list[Job]:
    """Does it matter which words share a row?"""
    base = Job("sharing", share=1 / 8, std=STD, epochs=2)
    kinds = ("hash", "hashing trick", "quotient-remainder", *VARIANTS)
    return [replace(base, table=kind, seed=seed) for seed in SEEDS for kind in kinds]


def untied() -> list[Job]:
    """Initial values where the output has a full table of its own."""
    base = Job("untied", share=1 / 8, tied=False, epochs=2)
    starts = (("paper", 0.0, 0.0), ("ones", 1.0, 0.02), ("ones", 1.0, STD), ("ones", 1.0, 1.0))
    return [
        replace(base, weights=weights, weight_size=size, std=std, seed=seed)
        for seed in SEEDS
        for weights, size, std in starts
    ]
