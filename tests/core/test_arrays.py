"""Small functions on arrays, beside NumPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hashembed.core.arrays import distinct, is_among

NUMBERS = arrays(np.int64, st.integers(0, 20), elements=st.integers(-5, 5))


@given(NUMBERS)
def test_distinct_is_numpys_unique(values):
    np.testing.assert_array_equal(distinct(values), np.unique(values))


@given(NUMBERS, NUMBERS)
def test_is_among_is_numpys_isin(values, among):
    np.testing.assert_array_equal(is_among(values, among), np.isin(values, among))
