"""Codes of a few bits: what is packed is unpacked."""

import numpy as np
import pytest

from hashembed.vectors.coding import _packed, _unpacked, decode_rows, encode_rows


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 13, 100])
def test_unpacking_is_the_inverse_of_packing(bits, dim):
    codes = np.random.default_rng(dim).integers(0, 2**bits, (5, dim), np.uint8)
    np.testing.assert_array_equal(_unpacked(_packed(codes, bits), bits, dim), codes)


@pytest.mark.parametrize(("bits", "error"), [(8, 0.01), (4, 0.12), (3, 0.25), (2, 0.5)])
def test_numbers_stay_near(bits, error):
    table = np.random.default_rng(0).normal(size=(50, 21)).astype(np.float32)
    out = np.empty_like(table)
    decode_rows(*encode_rows(table, bits), bits, out)
    assert np.linalg.norm(out - table) < error * np.linalg.norm(table)
