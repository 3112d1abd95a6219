import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed.hashing.bags import Bags

quick = settings(max_examples=50, deadline=None)

contents = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), max_size=8)


def make(bags: list[list[int]]) -> Bags:
    keys = np.array([key for bag in bags for key in bag], np.int64)
    return Bags(keys, np.cumsum([0, *map(len, bags)]))


def lists(bags: Bags) -> list[list[int]]:
    return [bags[i].tolist() for i in range(len(bags))]


@quick
@given(contents)
def test_bags_hold_what_they_are_given(bags):
    made = make(bags)
    assert len(made) == len(bags)
    assert lists(made) == bags
    assert [bag.tolist() for bag in made] == bags
    assert made.lengths.tolist() == [len(bag) for bag in bags]


@quick
@given(contents, st.slices(10))
def test_slices(bags, part):
    assert lists(make(bags)[part]) == bags[part]


@quick
@given(contents.filter(len), st.data())
def test_take(bags, data):
    indices = data.draw(st.lists(st.integers(-len(bags), len(bags) - 1), max_size=12))
    taken = make(bags).take(np.array(indices, np.int64))
    assert lists(taken) == [bags[i] for i in indices]


@quick
@given(st.lists(contents, max_size=4))
def test_concat(parts):
    joined = Bags.concat([make(part) for part in parts])
    assert lists(joined) == [bag for part in parts for bag in part]


def test_keys_are_not_copied():
    bags = make([[1, 2], [3], [4, 5]])
    assert np.shares_memory(bags[0], bags.keys)
    assert np.shares_memory(bags[1:].keys, bags.keys)
    assert bags[-1].tolist() == [4, 5]


def test_index_errors():
    bags = make([[1], [2]])
    with pytest.raises(IndexError):
        bags[2]
    with pytest.raises(IndexError, match=r"from -2 to 1, found 2"):
        bags.take([0, 2])
    with pytest.raises(IndexError, match=r"from -2 to 1, found -3"):
        bags.take([-3])
    with pytest.raises(TypeError, match="whole numbers in one dimension, found float64"):
        bags.take([0.5])
    with pytest.raises(TypeError, match="whole numbers in one dimension, found bool"):
        bags.take([True, False])


@pytest.mark.parametrize(
    ("keys", "offsets", "error", "message"),
    [
        (np.zeros(2, np.int32), np.array([0, 2]), TypeError, "keys must be .* found int32"),
        (np.zeros((2, 1), np.int64), np.array([0, 2]), TypeError, r"found int64 of shape \(2, 1\)"),
        ([1, 2], np.array([0, 2]), TypeError, "keys must be an int64 array .* found list"),
        (
            np.zeros(2, np.int64),
            np.array([0.0, 2.0]),
            TypeError,
            "offsets must be .* found float64",
        ),
        (np.zeros(2, np.int64), np.zeros(0, np.int64), ValueError, "offsets must have one entry"),
        (np.zeros(2, np.int64), np.array([0, 1]), ValueError, "number of keys, 2, found 0 to 1"),
        (np.zeros(2, np.int64), np.array([1, 2]), ValueError, "number of keys, 2, found 1 to 2"),
        (np.zeros(2, np.int64), np.array([0, 2, 1, 2]), ValueError, "found 2 and then 1 at bag 1"),
    ],
)
def test_refused(keys, offsets, error, message):
    with pytest.raises(error, match=message):
        Bags(keys, offsets)


# --- snippets ----------------------------------------------------------------------------------


def long_bags(count: int, length: int) -> Bags:
    return Bags(np.arange(count * length), np.arange(count + 1) * length)


@quick
@given(contents, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.integers(1, 5))
def test_snippets_lie_in_their_bags(bags, seed, epoch, minimum):
    made = make(bags)
    starts, lengths = made.snippets(seed, epoch, minimum, minimum + 2)
    assert starts.dtype == lengths.dtype == np.int64
    assert (starts >= made.offsets[:-1]).all()
    assert (starts + lengths <= made.offsets[1:]).all()
    assert (lengths >= np.minimum(minimum, made.lengths)).all()
    assert (lengths <= minimum + 2).all()


def test_snippets_are_uniform():
    bags = long_bags(200_000, 200)
    starts, lengths = bags.snippets(0, 0)
    counts = np.bincount(lengths, minlength=101)
    assert (counts[:4] == 0).all()
    expected = len(bags) / 97
    chi2 = ((counts[4:] - expected) ** 2 / expected).sum()
    assert chi2 < 96 + 5 * np.sqrt(2 * 96)
    room = 200 - lengths + 1
    places = ((starts - bags.offsets[:-1]) + 0.5) / room
    counts = np.histogram(places, 20, (0, 1))[0]
    assert abs(counts - len(bags) / 20).max() < 5 * np.sqrt(len(bags) / 20)
    assert abs(np.corrcoef(lengths, places)[0, 1]) < 5 / np.sqrt(len(bags))


def test_snippets_follow_from_seed_epoch_and_index():
    bags = long_bags(1000, 300)
    starts, lengths = bags.snippets(7, 3)
    again = long_bags(2000, 300).snippets(7, 3)
    assert np.array_equal(again[0][:1000], starts)
    assert np.array_equal(again[1][:1000], lengths)
    for other in (bags.snippets(8, 3), bags.snippets(7, 4), bags.snippets(4, 7)):
        assert (other[1] == lengths).mean() < 0.05
        assert (other[0] == starts).mean() < 0.05


def test_snippets_are_pinned():
    """Training must repeat on another machine."""
    starts, lengths = long_bags(4, 300).snippets(1, 2)
    assert (starts.tolist(), lengths.tolist()) == ([214, 326, 617, 1037], [69, 89, 61, 13])


def test_snippets_refuse():
    with pytest.raises(ValueError, match="maximum must be a whole number from 4 to"):
        long_bags(1, 9).snippets(0, 0, maximum=3)
    with pytest.raises(ValueError, match="minimum must be a whole number from 1 to"):
        long_bags(1, 9).snippets(0, 0, minimum=0)
