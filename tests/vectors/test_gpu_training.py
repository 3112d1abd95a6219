"""Word vectors on a GPU, or interpreted without one: as on the CPU, up to rounding."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
import torch

from hashembed.vectors import training
from hashembed.vectors.gpu import pieces
from hashembed.vectors.gpu.trainer import GpuTrainer
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import LossNotFiniteError, train_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def texts_of(words, count, longest, seed=0):
    """Texts of Zipf-distributed words; some are empty, some have one word."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, words + 1)
    return [
        " ".join(f"w{rank}" for rank in rng.choice(words, length, p=share / share.sum()))
        for length in rng.integers(0, longest + 1, count)
    ]


def settings_of(model="skipgram", d=13, k=2, **options):
    given = {"batch_size": 32, "passes": 1, "min_count": 1, "sample": 0.05, **options}
    return VectorSettings(model, d, num_hashes=k, **given)


def train(texts, settings, on_gpu, on_progress=None):
    trainer = partial(GpuTrainer, device=DEVICE) if on_gpu else None
    return train_model(texts, settings, 1, on_progress, make_trainer=trainer)


def assert_same(texts, settings):
    want, got = (train(texts, settings, on_gpu) for on_gpu in (False, True))
    np.testing.assert_allclose(got.losses, want.losses, rtol=1e-5)
    for name, table in want.state._asdict().items():
        mine = getattr(got.state, name)
        scale = max(float(np.abs(table).max()), 1e-3)
        np.testing.assert_allclose(mine, table, rtol=1e-3, atol=1e-4 * scale, err_msg=name)
        np.testing.assert_array_equal(mine == 0, table == 0, err_msg=f"untouched: {name}")


@pytest.mark.parametrize(("d", "k"), [(13, 1), (13, 3), (32, 2)])
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_as_on_the_cpu(model, d, k):
    # The vocabulary is so small that rows have many items: short runs, and long ones.
    assert_same(texts_of(12, 11, 12), settings_of(model, d, k))


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "texts",
    [
        ["a b"],
        ["a b a b a b a b b b"],  # two words
        ["a", "", "b", "a b c", "c"],  # texts without pairs
        ["a", "b"],  # no pairs at all
        ["x " * 40],  # negatives are always output words
    ],
)
def test_tiny_corpora(model, texts):
    assert_same(texts, settings_of(model, sample=1.0))


def test_batches_of_one_example():
    assert_same(["a b c", "d e"], settings_of(batch_size=1, sample=1.0))


def test_batches_that_end_within_a_tile():
    assert_same(texts_of(9, 8, 12), settings_of(batch_size=35, sample=1.0))


def test_without_subwords_and_with_wide_windows():
    assert_same(texts_of(20, 6, 15), settings_of(subwords=None, window=20))


@pytest.mark.parametrize("chunk", [1, 50])
def test_pieces_chunks_and_passes(monkeypatch, chunk):
    """Several pieces in a chunk, and several chunks: each has the seeds of the CPU."""
    for module in (training, pieces):
        monkeypatch.setattr(module, "PIECE", 37)
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    assert_same(texts_of(12, 9, 12), settings_of(passes=2, seed=-5, sample=0.2))


def test_progress_is_that_of_the_cpu(monkeypatch):
    for module in (training, pieces):
        monkeypatch.setattr(module, "PIECE", 40)
    found = {False: [], True: []}
    for on_gpu, told in found.items():
        train(texts_of(12, 10, 12), settings_of(sample=1.0), on_gpu, told.append)
    assert len(found[True]) > 1
    for mine, wanted in zip(found[True], found[False], strict=True):
        assert (mine.epoch, mine.passes, mine.words, mine.total) == (
            wanted.epoch, wanted.passes, wanted.words, wanted.total
        )  # fmt: skip
        assert mine.loss == pytest.approx(wanted.loss, rel=1e-5)
        assert mine.words_per_second > 0
        assert mine.seconds_left >= 0


def test_same_bits_in_every_run():
    texts = texts_of(12, 10, 12)
    one, other = (train(texts, settings_of(), True) for _ in range(2))
    for name, table in one.state._asdict().items():
        np.testing.assert_array_equal(table, getattr(other.state, name), err_msg=name)
    assert one.losses == other.losses


def test_loss_that_is_not_finite(monkeypatch):
    tables = training.new_tables

    def broken(*arguments):
        made = tables(*arguments)
        made.E[:] = np.nan
        return made

    monkeypatch.setattr(training, "new_tables", broken)
    for on_gpu in (False, True):
        with pytest.raises(LossNotFiniteError, match="smaller learning_rate"):
            train(["a b c"], settings_of(sample=1.0), on_gpu)


@pytest.mark.gpu
def test_large_batches_on_a_gpu():
    """Graphs, and both slots many times; the same bits in every run."""
    texts, settings = texts_of(5000, 3000, 300), settings_of(d=100, batch_size=2048, sample=1e-3)
    one, other, cpu = (train(texts, settings, on_gpu) for on_gpu in (True, True, False))
    for name, table in one.state._asdict().items():
        np.testing.assert_array_equal(table, getattr(other.state, name), err_msg=name)
    np.testing.assert_allclose(one.losses, cpu.losses, rtol=1e-3)
