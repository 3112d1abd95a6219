"""The training kernels beside the plain reference, at awkward shapes."""

import numpy as np
import pytest
from tests.cases.vectors_reference import Reference, draw_negatives, examples_of, thin_out

from hashembed.hashing.spec import HashSpec
from hashembed.vectors import training
from hashembed.vectors.arrays import GROUP
from hashembed.vectors.corpus import END, encode_corpus, entries_of
from hashembed.vectors.plan_kernels import make_aliases
from hashembed.vectors.settings import Recipe, VectorSettings

RNG = np.random.default_rng(1)
WORDS = ["a", "be", "sea", "dogs", "cats", "house", "houses", "extraordinary", "ordinary", "x"]
TEXTS = [" ".join(RNG.choice(WORDS, size=size)) for size in (1, 0, 40, 2, 90, 7, 3, 31, 1, 64)]

CASES = {
    "usual": {},
    "cbow": {"model": "cbow"},
    "one hash": {"num_hashes": 1, "embedding_dim": 1},
    "three hashes": {"num_hashes": 3, "embedding_dim": 17},
    "words alone": {"subwords": None, "embedding_dim": 33},
    "small tables": {"num_embeddings": 5, "num_buckets": 3},
    "small batches": {"batch_size": 3},
    "odd batches": {"batch_size": 33, "model": "cbow"},
    "wide window": {"window": 100, "batch_size": 64},
    "large tables": {"num_embeddings": 5_000_000, "num_buckets": 70_000},
}


def prepare(options):
    settings = VectorSettings(
        **{"embedding_dim": 8, "min_count": 1, "sample": 0.3, "batch_size": 48, **options}
    )
    corpus = encode_corpus(TEXTS, settings.words, 1, 1000, 1)
    vocabulary, spec = training.new_vocabulary(corpus, settings)
    tables = training.new_tables(
        spec, settings.embedding_dim, len(corpus.dictionary), settings.seed, 1
    )
    # Output vectors that are not 0, so that every part of a gradient shows.
    tables.C[:, : settings.embedding_dim] = RNG.normal(0, 0.5, (len(tables.C), tables.C.shape[1]))[
        :, : settings.embedding_dim
    ]
    return settings, corpus, vocabulary, spec, tables


@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_what_the_reference_computes(case, monkeypatch):
    settings, corpus, vocabulary, spec, tables = prepare(CASES[case])
    jobs = []
    run = training.run_workers
    monkeypatch.setattr(
        training, "run_workers", lambda kernel, n, job: jobs.append(job) or run(kernel, n, job)
    )
    recipe = Recipe(negative_weight=4.0, importance_rate=0.07, decay=0.9)
    reference = Reference(vocabulary, tables, settings.embedding_dim, recipe)
    trainer = training.Trainer(corpus, settings, vocabulary, tables, spec, 3, recipe)
    trainer._train_piece(corpus.ids, 7, 10_000)
    (job,) = jobs

    # The words that are kept, from the same draws.
    seed = training.seed_of_piece(settings.seed, 7)
    words, texts, windows = thin_out(
        corpus.ids.tolist(), trainer.keep, settings.window, seed & (2**64 - 1)
    )
    assert job.tokens.words.tolist() == words
    assert job.tokens.windows.tolist() == windows
    size, cbow = trainer.batch_size, settings.model == "cbow"
    assert len(job.tokens.rates) == -(-len(words) // size) >= 2
    for number, rate in enumerate(job.tokens.rates):
        first, last = number * size, min((number + 1) * size, len(words))
        examples = examples_of(words, texts, windows, first, last, cbow)
        groups = -(-(last - first) // GROUP)
        negatives = draw_negatives(
            groups, number, job.seed & (2**64 - 1), vocabulary.limits, vocabulary.aliases
        )
        reference.step(examples, negatives, float(rate))
    d = settings.embedding_dim
    for name, expected in reference.tables.items():
        found = getattr(tables, name)
        found = found[:, :d] if name in "EC" else found
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-5, err_msg=name)
    assert not tables.E[:, d:].any()
    assert not tables.C[:, d:].any()


def test_negatives_are_drawn_in_proportion_to_their_weights():
    weights = np.array([1, 2, 4, 8, 0.5, 16], np.float32)
    limits, aliases = np.empty((2, 6), np.uint32)
    make_aliases(weights, limits, aliases)
    drawn = draw_negatives(2000, 3, 5, limits, aliases).reshape(-1)
    shares = np.bincount(drawn, minlength=6) / len(drawn)
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.005)


def test_the_corpus_keeps_the_order_of_words_and_the_ends_of_texts():
    corpus = encode_corpus(["b a b", "", "c a a", "d"], VectorSettings(min_count=1).words, 2, 10, 1)
    assert corpus.dictionary.strings.to_pylist() == ["a", "b"]
    assert corpus.ids.tolist() == [1, 0, 1, END, END, 0, 0, END, END]
    assert corpus.words == 5


def test_the_entries_of_a_word_are_its_own_key_and_those_of_its_pieces():
    settings = VectorSettings()
    keys, offsets = entries_of(["cat", "a"], settings.words, (3, 4))
    pieces = ["<ca", "cat", "at>", "<cat", "cat>"]
    assert np.diff(offsets).tolist() == [1 + len(pieces), 2]
    assert HashSpec(10, 10, 2)(keys)[0].shape == (len(keys),)
