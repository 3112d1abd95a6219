"""Probabilities, losses and ensembles' scores against NumPy in float64."""

import numpy as np
import pytest

from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_logarithms, fill_losses, fill_mean_scores
from hashembed.engine.protocol import to_probabilities

RANDOM = np.random.default_rng(0)
LOGITS = [
    (RANDOM.standard_normal((200, 7)) * scale).astype(np.float32) for scale in (0.1, 3, 100, 1e4)
]


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("z", LOGITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities(z, dtype):
    z = z.astype(dtype)
    exact = z.astype(np.float64)
    tolerance = 1e-7 if dtype == np.float32 else 1e-14
    found = to_probabilities(z, False)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, softmax(exact), rtol=tolerance, atol=1e-37)
    want = softmax(np.stack([exact, np.zeros_like(exact)], axis=-1))[..., 0]
    np.testing.assert_allclose(to_probabilities(z, True), want, rtol=tolerance, atol=1e-37)


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 4, 5), (5, 1)])
@pytest.mark.parametrize("multilabel", [False, True])
def test_shapes(shape, multilabel):
    z = np.full(shape, -3, np.float32)
    want = 1 / (1 + np.exp(3)) if multilabel else 1 / shape[-1]
    np.testing.assert_allclose(to_probabilities(z, multilabel), np.full(shape, want), rtol=1e-6)
    assert (z == -3).all()


def test_probabilities_of_what_is_not_contiguous():
    z = LOGITS[1][::2, ::-2]
    assert np.array_equal(to_probabilities(z, False), to_probabilities(z.copy(), False))


@pytest.mark.parametrize("z", LOGITS)
def test_losses(z):
    exact, losses = z.astype(np.float64), np.empty(len(z))
    single = Labels.single(np.arange(len(z)) % 7)
    fill_losses(z, single.labels, single.offsets, False, losses)
    want = np.logaddexp.reduce(exact, axis=1) - exact[np.arange(len(z)), single.labels]
    np.testing.assert_allclose(losses, want, rtol=1e-13, atol=1e-13 * abs(exact).max())
    fill_losses(z, single.labels, single.offsets, True, losses)
    want = np.logaddexp(0, exact).sum(axis=1) - exact[np.arange(len(z)), single.labels]
    np.testing.assert_allclose(losses, want, rtol=1e-13, atol=1e-13 * abs(exact).max())


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("scale", [0.1, 3, 300])
def test_mean_scores(scale, multilabel):
    z = (RANDOM.standard_normal((3, 50, 4)) * scale).astype(np.float32)
    found = np.empty((50, 4), np.float32)
    fill_mean_scores(z, multilabel, found)
    exact = z.astype(np.float64)
    if multilabel:
        true, false = (np.logaddexp.reduce(-np.logaddexp(0, s * exact)) for s in (-1, 1))
        want = true - false
    else:
        each = exact - np.logaddexp.reduce(exact, axis=2)[..., None]
        want = np.logaddexp.reduce(each) - np.log(3)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


def test_what_is_not_a_number_stays_so():
    z = np.array([[0, np.nan, 1]], np.float32)
    for multilabel in (False, True):
        assert np.isnan(to_probabilities(z, multilabel)).any()
        losses = np.empty(1)
        fill_losses(z, np.array([0]), np.array([0, 1]), multilabel, losses)
        assert np.isnan(losses[0])


def test_logarithms():
    values = np.linspace(1e-6, 1, 1001)
    found = np.empty_like(values)
    fill_logarithms(values, found)
    np.testing.assert_allclose(found, np.log(values), rtol=1e-15, atol=1e-16)
