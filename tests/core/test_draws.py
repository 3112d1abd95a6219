"""Initial values: normal, independent from part to part, the same for any number of threads."""

from math import erf, sqrt

import numpy as np
import pytest

from hashembed.core.draws import PART, fill_normal
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.spec import HashSpec


def drawn(rows: int, width: int, seed=(0, 0), threads: int = 1) -> np.ndarray:
    table = np.full((rows, width), np.nan, np.float32)
    fill_normal(table, 0.1, seed, threads)
    return table


def test_normal():
    values = np.sort(drawn(200_000, 3).ravel().astype(np.float64))
    below = np.array([0.5 + 0.5 * erf(x / 0.1 / sqrt(2)) for x in values[::50]])
    distance = np.abs(below - np.arange(0, len(values), 50) / len(values)).max()
    assert distance < 1.95 / sqrt(len(values))  # Kolmogorov and Smirnov, one in a thousand


def test_parts_are_independent():
    stride = PART // 4
    a, b = drawn(2 * stride, 4).reshape(2, -1)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / sqrt(PART)
    assert not np.array_equal(drawn(5, 2, (0, 0)), drawn(5, 2, (0, 1)))


@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (3, PART + 1), (2 * PART + 3, 1), (100_000, 16)])
def test_the_same_bits_for_any_number_of_threads(shape):
    one = drawn(*shape)
    assert np.isfinite(one).all()
    for threads in (2, 3, 8):
        assert np.array_equal(one, drawn(*shape, threads=threads))


def test_a_view_and_nothing_beside_it():
    table = np.zeros((1000, 4), np.float32)
    fill_normal(table[:, :2], 0.1, (7,), 2)
    assert np.array_equal(table[:, :2], drawn(1000, 2, (7,)))
    assert not table[:, 2:].any()


def test_initial_values_of_a_model():
    one, other, two = (ShallowModel(HashSpec(90_000, 9_000, 2), 16, 3, seed=s) for s in (1, 1, 2))
    for table in ("E", "W", "records"):
        a, b, c = (getattr(model.tables, table) for model in (one, other, two))
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)
    np.testing.assert_allclose(one.tables.E.std(), 0.1, rtol=0.01)
    np.testing.assert_allclose(one.importance_weights.std(), 0.0005, rtol=0.01)
    assert not one.tables.records[:, 2:].any()
