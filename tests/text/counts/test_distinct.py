import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed.hashing.spec import id_keys
from hashembed.text.counts.distinct import DistinctCounter

Keys = npt.NDArray[np.int64]

id_lists = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=200)


def counter_of(*batches: Keys, precision: int = 16) -> DistinctCounter:
    counter = DistinctCounter(precision)
    for batch in batches:
        counter.update(batch)
    return counter


def keys_of(ids: list[int]) -> Keys:
    return id_keys(np.array(ids, np.int64))


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compiling takes longer than one example of a test may."""
    counter_of(keys_of([0]))


@given(id_lists, id_lists)
def test_merge_is_union(left: list[int], right: list[int]) -> None:
    merged = counter_of(keys_of(left))
    merged.merge(counter_of(keys_of(right)))
    union = counter_of(keys_of(left + right))
    assert np.array_equal(merged.registers, union.registers)
    assert merged.estimate() == union.estimate()


@given(id_lists, st.randoms(use_true_random=False), st.integers(0, 200))
def test_order_repetition_and_batches_do_not_matter(ids: list[int], random, cut: int) -> None:
    shuffled = ids + ids[:cut]
    random.shuffle(shuffled)
    split = counter_of(keys_of(shuffled[:cut]), keys_of(shuffled[cut:]))
    assert np.array_equal(split.registers, counter_of(keys_of(ids)).registers)


@given(id_lists)
def test_registers_against_plain_python(ids: list[int]) -> None:
    counter = counter_of(keys_of(ids), precision=6)
    expected = [0] * 64
    for key in keys_of(ids).tolist():
        bits = f"{key % 2**64:064b}"
        register, rest = int(bits[-6:], 2), bits[:-6]
        rank = len(rest) - len(rest.lstrip("0")) + 1
        expected[register] = max(expected[register], rank)
    assert counter.registers.tolist() == expected


def test_extreme_keys() -> None:
    counter = DistinctCounter(4)
    counter.update([0, -1, 2**63 - 1, -(2**63)])
    assert counter.registers[0] == 61  # sixty zeros
    assert counter.registers[15] == 2  # of -1 and 2^63 - 1 the longer run


@pytest.mark.parametrize("size", [0, 1, 2, 10])
def test_small_counts_are_exact(size: int) -> None:
    for start in range(0, 50_000, 1000):
        assert round(counter_of(id_keys(np.arange(start, start + size))).estimate()) == size


def test_a_hundred_is_off_by_one_or_two_at_most() -> None:
    for start in range(0, 50_000, 1000):
        assert abs(counter_of(id_keys(np.arange(start, start + 100))).estimate() - 100) < 2.5


@pytest.mark.parametrize(("size", "repeats"), [(1000, 20), (30_000, 20), (200_000, 10), (10**6, 5)])
def test_error_stays_within_the_promise(size: int, repeats: int) -> None:
    errors = []
    for start in range(repeats):
        counter = counter_of(id_keys(np.arange(start * size, (start + 1) * size)))
        errors.append(counter.estimate() / size - 1)
    promised = DistinctCounter().relative_error
    assert np.max(np.abs(errors)) < 4 * promised
    assert abs(np.mean(errors)) < 4 * promised / np.sqrt(repeats)


def test_coarse_sketches_far_beyond_their_registers() -> None:
    errors = []
    for start in range(30):
        keys = id_keys(np.arange(start * 10**5, (start + 1) * 10**5))
        errors.append(counter_of(keys, precision=8).estimate() / 10**5 - 1)
    promised = DistinctCounter(8).relative_error
    assert np.std(errors) < 1.6 * promised  # not far above: the error is what theory says
    assert np.std(errors) > 0.5 * promised  # nor suspiciously below
    assert abs(np.mean(errors)) < 4 * promised / np.sqrt(30)


def test_full_registers_do_not_break_the_estimate() -> None:
    counter = DistinctCounter(4)
    counter.registers[:] = 61
    assert counter.estimate() == np.inf
    counter.registers[:8] = 55
    assert 1e17 < counter.estimate() < 1e19


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="precision must be from 4 to 18, found 3"):
        DistinctCounter(3)
    with pytest.raises(ValueError, match="cannot merge a counter of precision 5 into one of"):
        DistinctCounter(6).merge(DistinctCounter(5))
