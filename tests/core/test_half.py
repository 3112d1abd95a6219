"""Half precision: the same bits as NumPy's conversion."""

import numpy as np
import pytest

from hashembed.core.half import to_half

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)].astype(np.float32)


def same_bits(ours, theirs):
    return np.array_equal(ours.view(np.uint16), theirs.view(np.uint16))


def interesting():
    """All halves, all midpoints between two of them, and the floats next to these."""
    magnitudes = np.unique(np.abs(FINITE))
    middles = (magnitudes[1:] + magnitudes[:-1]) / np.float32(2)
    exact = np.concatenate([magnitudes, middles])
    around = [np.nextafter(exact, np.float32(way)) for way in (-1, 1)]
    tiny = np.float32([0, 1e-45, 1e-40, 1e-38, 2**-26, 2**-25, 2**-24])
    numbers = np.concatenate([exact, *around, tiny])
    numbers = numbers[numbers < 65520]  # larger ones become infinite
    return np.concatenate([numbers, -numbers])


@pytest.mark.parametrize("width", [1, 2, 16, 17])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_bits_of_numpy(width, threads):
    numbers = interesting()
    table = numbers[: len(numbers) // width * width].reshape(-1, width)
    assert same_bits(to_half(table, threads), table.astype(np.float16))


def test_random_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 400_000, np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.abs(numbers) < 65520][:, None]
    assert same_bits(to_half(numbers, 2), numbers.astype(np.float16))


@pytest.mark.parametrize("bad", [65520, -65520, 1e30, np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("place", [0, 49_999])
def test_numbers_that_halves_cannot_hold(bad, place):
    table = np.zeros((50_000, 2), np.float32)
    table[place, 1] = bad
    assert to_half(table, 2) is None


def test_the_largest_half():
    table = np.float32([[65504, -65504, 65519.99]])
    assert to_half(table, 1).tolist() == [[65504, -65504, 65504]]


def test_the_first_columns_of_a_table():
    wide = np.random.default_rng(1).standard_normal((5000, 32), np.float32)
    wide[:, 24:] = np.nan  # nobody looks there
    for table in (wide[:, :24], wide[::3, :24], wide[:, 2:24:2], wide[:24, :24].T):
        finite = np.nan_to_num(table)
        if np.isnan(table).any():
            assert to_half(table, 2) is None
        else:
            assert same_bits(to_half(table, 2), finite.astype(np.float16))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_small_tables(shape):
    table = np.ones(shape, np.float32)
    assert to_half(table, 2).shape == shape
