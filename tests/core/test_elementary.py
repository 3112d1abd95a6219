"""exp and log of kernels against the C library's."""

import math

import numba
import numpy as np

from hashembed.core.elementary import exp64, log64


@numba.njit
def fill(values, exps, logs):
    for i in range(len(values)):
        exps[i] = exp64(values[i])
        logs[i] = log64(values[i])


def both(values):
    values = np.asarray(values, np.float64)
    exps, logs = np.empty_like(values), np.empty_like(values)
    fill(values, exps, logs)
    return exps, logs


def test_exp():
    values = np.concatenate(
        [np.linspace(-707.9, 708.9, 100_003), np.linspace(-1, 1, 100_003), [0.0, -0.0, 1e-300]]
    )
    want = np.array([math.exp(x) for x in values])
    np.testing.assert_allclose(both(values)[0], want, rtol=1e-15, atol=0)


def test_exp_of_extremes():
    found, _ = both([-1e308, -np.inf, -708.1, 709.1, 1e308, np.inf, np.nan])
    assert found[:6].tolist() == [0, 0, 0, np.inf, np.inf, np.inf]
    assert np.isnan(found[6])


def test_log():
    bits = np.linspace(1, 0x7FE0000000000000, 100_003).astype(np.int64)  # denormal to huge
    values = np.concatenate([bits.view(np.float64), np.linspace(0.5, 2, 100_003), [5e-324, 1.0]])
    want = np.array([math.log(x) for x in values])
    np.testing.assert_allclose(both(values)[1], want, rtol=3e-16, atol=0)


def test_log_of_extremes():
    _, found = both([0.0, -0.0, np.inf, -1.0, -np.inf, np.nan])
    assert found[:3].tolist() == [-np.inf, -np.inf, np.inf]
    assert np.isnan(found[3:]).all()
