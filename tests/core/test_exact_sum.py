"""Exact sums: Python's fsum is the reference."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed.core.exact_sum import ExactSum

FLOATS = st.lists(st.floats(-1e300, 1e300), max_size=30)


@given(FLOATS, st.randoms())
def test_the_order_and_the_parts_do_not_matter(values, random):
    shuffled = random.sample(values, len(values))
    cut = random.randrange(len(values) + 1)
    total = ExactSum().add(np.array(shuffled[:cut]))
    total.merge(ExactSum().add(np.array(shuffled[cut:])))
    assert float(total) == math.fsum(values)


def test_awkward_values():
    values = [5e-324, 1e308, -1e308, 0.1, -0.0, 2.0**-1074, 1.5 * 2.0**1023]
    assert float(ExactSum().add(values)) == math.fsum(values)
    assert float(ExactSum()) == float(ExactSum().add([])) == 0
    assert float(ExactSum().add(np.ones((2, 3)))) == 6


@pytest.mark.parametrize(
    ("values", "want"), [([np.inf, 1], np.inf), ([-np.inf], -np.inf), ([np.inf, -np.inf], np.nan)]
)
def test_values_that_are_not_finite(values, want):
    with np.errstate(invalid="ignore"):
        np.testing.assert_equal(float(ExactSum().add(values)), want)
