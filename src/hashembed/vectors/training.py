"""Trains word vectors on the CPU: from a numbered corpus to tables."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hashembed.core.arrays import F32, I64, U32, distinct
from hashembed.core.draws import fill_normal
from hashembed.core.threads import cpu_count, run_workers
from hashembed.core.wording import named
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.hashing.spec import HashSpec
from hashembed.vectors.arrays import (
    Job,
    Plan,
    Scratch,
    Tables,
    Tokens,
    Vocabulary,
    make_plan,
    make_scratch,
)
from hashembed.vectors.corpus import EncodedCorpus, encode_corpus, entries_of
from hashembed.vectors.id_store import Storage
from hashembed.vectors.model import VectorModel
from hashembed.vectors.plan_kernels import make_aliases, thin_out
from hashembed.vectors.settings import RECIPE, Recipe, VectorSettings
from hashembed.vectors.step_kernels import train_words

PIECE = 1 << 18  # words of the corpus that one call of the kernel takes: less than a second
_SEED_OF_PIECE = 0x9E3779B97F4A7C15


class VectorProgress(NamedTuple):
    """How far training is."""

    epoch: int  # from 0
    passes: int
    words: int  # read so far, of all passes
    total: int
    words_per_second: float
    seconds_left: float
    loss: float  # of a pair, with its negatives: the mean over the latest piece


class LossNotFiniteError(ArithmeticError):
    """Training stopped: the loss became infinite or not a number."""


def train_model(
    texts: Any,
    settings: VectorSettings,
    threads: int | None,
    on_progress: Callable[[VectorProgress], object] | None,
    storage: Storage | None = None,
    make_trainer: "Callable[..., Trainer] | None" = None,
) -> VectorModel:
    """Learn vectors from texts; `WordVectors.fit` says what they may be.

    make_trainer: instead of `Trainer`, for another device; `devices.py` has them.
    """
    if settings.phrases > 1:
        from hashembed.vectors.phrases import encode_phrases

        corpus = encode_phrases(texts, settings, threads, storage)
    else:
        corpus = encode_corpus(
            texts, settings.words, settings.min_count, settings.max_words, threads, storage
        )
    if not len(corpus.dictionary):
        raise ValueError(
            f"found no word that occurs {settings.min_count} times: give more text, or a lower "
            f"{named('min_count')}"
        )
    workers = threads or cpu_count()
    vocabulary, spec = new_vocabulary(corpus, settings)
    tables = new_tables(
        spec, settings.embedding_dim, len(corpus.dictionary), settings.seed, workers
    )
    trainer = (make_trainer or Trainer)(corpus, settings, vocabulary, tables, spec, workers)
    losses = trainer.train(on_progress)
    model = VectorModel.trained(settings, corpus.dictionary, spec, tables)
    model.losses, model.threads = losses, threads
    return model


def new_vocabulary(
    corpus: EncodedCorpus, settings: VectorSettings, power: float = RECIPE.power
) -> tuple[Vocabulary, HashSpec]:
    """The entries of all words, and the hash with sizes for them."""
    dictionary = corpus.dictionary
    keys, offsets = entries_of(dictionary.strings, settings.words, settings.subwords)
    K, B = settings.sizes(len(distinct(keys)))
    spec = HashSpec(K, B, settings.num_hashes, seed=settings.seed)
    return vocabulary_for(keys, offsets, dictionary.counts, spec, power), spec


def vocabulary_for(
    keys: I64, offsets: I64, counts: I64, spec: HashSpec, power: float = RECIPE.power
) -> Vocabulary:
    """The entries of words with these keys and counts."""
    rows = np.empty(len(keys), np.uint32)
    buckets = np.empty((len(keys), spec.num_hashes), np.uint32)
    for first in range(0, len(keys), 1 << 18):
        part = slice(first, first + (1 << 18))
        rows[part], buckets[part] = spec(keys[part])
    limits, aliases = np.empty((2, len(counts)), np.uint32)
    make_aliases((counts.astype(np.float64) ** power).astype(np.float32), limits, aliases)
    return Vocabulary(offsets.astype(np.int64), rows, buckets.reshape(-1), limits, aliases)


def new_tables(spec: HashSpec, dim: int, words: int, seed: int, threads: int) -> Tables:
    """Tables before training. Importance weights are random signs; the output starts at 0."""
    K, B, k = spec.num_embeddings, spec.num_buckets, spec.num_hashes
    seed &= 2**63 - 1
    E, C = padded_rows(B, dim), padded_rows(words, dim)
    C[:] = 0
    fill_normal(E[:, :dim], 0.5 / dim, (seed, 0), threads)
    signs = np.random.default_rng((seed, 1)).integers(0, 2, (K, k), np.uint8)
    return Tables(
        E=E,
        E_square=np.zeros(B, np.float32),
        P=(2 * signs.astype(np.float32) - 1),
        P_square=np.zeros(K, np.float32),
        C=C,
        C_square=np.zeros(words, np.float32),
    )


def keep_chances(counts: I64, sample: float) -> U32:
    """2^32 times the chance of keeping each word: frequent ones are thinned out, as in word2vec."""
    share = counts / max(int(counts.sum()), 1) / sample
    chance = np.minimum(1.0, (np.sqrt(share) + 1) / np.maximum(share, 1e-30))
    return np.minimum(chance * 2.0**32, 2.0**32 - 1).astype(np.uint32)


class Trainer:
    """Trains tables on a corpus. The result is the same for any number of threads."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        settings: VectorSettings,
        vocabulary: Vocabulary,
        tables: Tables,
        spec: HashSpec,
        threads: int,
        recipe: Recipe = RECIPE,
    ) -> None:
        self.recipe = recipe
        self.corpus, self.settings, self.vocabulary = corpus, settings, vocabulary
        self.tables, self.spec, self.threads = tables, spec, threads
        sample = settings.sample_for(len(corpus.dictionary))
        self.keep = keep_chances(corpus.dictionary.counts, sample)
        thinned = int((corpus.counts * (self.keep / 2.0**32)).sum())
        self.batch_size = settings.batch_for(thinned)
        self._buffers: tuple[Plan, Scratch] | None = None
        self._capacity = 0

    def train(self, on_progress: Callable[[VectorProgress], object] | None = None) -> list[float]:
        """All passes -> the mean loss of each."""
        settings, ids = self.settings, self.corpus.ids
        total, start, losses = len(ids) * settings.passes, time.monotonic(), list[float]()
        for epoch in range(settings.passes):
            sums, steps = 0.0, 0
            for first in range(0, len(ids), PIECE):
                piece = ids[first : first + PIECE]
                done = epoch * len(ids) + first
                means = self._train_piece(piece, done, total)
                sums, steps = sums + float(means.sum(dtype=np.float64)), steps + len(means)
                if on_progress is not None and len(means):
                    done += len(piece)
                    speed = done / max(time.monotonic() - start, 1e-9)
                    left, loss = (total - done) / speed, float(means.mean())
                    on_progress(
                        VectorProgress(epoch, settings.passes, done, total, speed, left, loss)
                    )
            losses.append(sums / max(steps, 1))
        return losses

    def _train_piece(self, ids: np.ndarray, done: int, total: int) -> F32:
        """One piece of the corpus, `done` words after the beginning -> the loss of each step."""
        settings = self.settings
        seed = seed_of_piece(settings.seed, done)
        words, texts, windows = np.empty((3, len(ids)), np.int32)
        kept = thin_out(
            np.ascontiguousarray(ids), self.keep, settings.window, seed, words, texts,
            windows,
        )  # fmt: skip
        batches = -(-kept // self.batch_size)
        starts = np.arange(batches) * self.batch_size / max(kept, 1) * len(ids) + done
        rates = np.array([settings.rate_at(at / total) for at in starts], np.float32)
        tokens = Tokens(words[:kept], texts[:kept], windows[:kept], rates)
        plan, scratch = self._space(tokens.words)
        means = np.zeros(batches, np.float32)
        job = Job(
            vocabulary=self.vocabulary,
            tables=self.tables,
            tokens=tokens,
            plan=plan,
            scratch=scratch,
            means=means,
            batch_size=self.batch_size,
            num_rows=self.spec.num_embeddings,
            num_buckets=self.spec.num_buckets,
            dim=settings.embedding_dim,
            cbow=settings.model == "cbow",
            seed=negatives_seed(seed),
            decay=self.recipe.decay,
            importance_rate=self.recipe.importance_rate,
            negative_weight=self.recipe.negative_weight,
        )
        finished = min(run_workers(train_words, self.threads, job))
        if finished < batches:
            raise LossNotFiniteError(
                "the loss became infinite or not a number: choose a smaller learning_rate (found "
                f"{settings.rate_at(0):g})"
            )
        return means

    def _space(self, words: np.ndarray) -> tuple[Plan, Scratch]:
        """Buffers for batches of these words; they are kept while they are large enough."""
        sizes = np.diff(self.vocabulary.offsets)[words]
        window, batch = self.settings.window, self.batch_size
        edges = np.arange(0, len(words), batch)
        most = 0
        if len(words):
            # With CBOW, the words around a batch belong to it, too.
            around = 2 * window * int(sizes.max()) if self.settings.model == "cbow" else 0
            most = int(np.add.reduceat(sizes, edges).max()) + around
        if self._buffers is None or most > self._capacity:
            self._capacity = most + most // 4 + 1
            pairs = 2 * window * batch
            distinct_words = min(batch + 2 * window, len(self.vocabulary.limits))
            self._buffers = (
                make_plan(batch, pairs, self._capacity, self.spec.num_hashes),
                make_scratch(
                    self.threads, batch, pairs, distinct_words, self._capacity,
                    self.spec.num_hashes, self.tables.E.shape[1],
                ),
            )  # fmt: skip
        return self._buffers


def seed_of_piece(seed: int, done: int) -> int:
    """The seed of a piece of the corpus, `done` words after the beginning."""
    return _signed(((seed & (2**63 - 1)) * 2 + 1) * _SEED_OF_PIECE + done)


def negatives_seed(seed: int) -> int:
    """The seed of the negatives of a piece with this seed."""
    return _signed(seed ^ 0x5DEECE66D)


def _signed(number: int) -> int:
    """The 64 lowest bits as a signed number."""
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number
