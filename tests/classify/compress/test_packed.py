"""Packed tables: the specification in plain Python, round trips, and damaged streams."""

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashembed.engine.packed import MAX_NUMBERS, pack, packed_table
from hashembed.engine.tensor_file import ModelFileError


def read_plainly(tensors, count, shape):
    """`docs/how-it-works/files.md`, word by word."""
    table, numbers = np.zeros(shape, np.float32), np.zeros(count * shape[1], np.float32)
    rows, row, gap = [], -1, 0
    for byte in zlib.decompress(tensors["rows"].tobytes()):
        gap += byte
        if byte < 255:
            row += gap + 1
            gap = 0
            rows.append(row)
    place, weight = 0, 1
    for s in zlib.decompress(tensors["codes"].tobytes()):
        if s < 2:
            place += (s + 1) * weight
            weight *= 2
        else:
            numbers[place] = tensors["values"][s - 2]
            place += 1
            weight = 1
    assert place == len(numbers)
    assert len(rows) == count
    for i, row in enumerate(rows):
        for j in range(shape[1]):
            table[row, j] = numbers[j * count + i]
    return table


@st.composite
def tables(draw):
    total, columns = draw(st.integers(1, 3000)), draw(st.integers(1, 5))
    rows = np.array(sorted(draw(st.sets(st.integers(0, total - 1), max_size=20))), np.int64)
    values = np.array([-2.5, -0.5, 0.25, 3.0], np.float32)
    code = st.integers(0, 4) if draw(st.booleans()) else st.sampled_from([0] * 20 + [3])
    size = len(rows) * columns
    codes = np.array(draw(st.lists(code, min_size=size, max_size=size)), np.int64)
    return (total, columns), rows, codes.reshape(len(rows), columns), values


@given(tables())
def test_round_trip(case):
    shape, rows, codes, values = case
    tensors = pack(rows, codes, values)
    wanted = np.zeros(shape, np.float32)
    wanted[rows] = np.concatenate([[np.float32(0)], values])[codes]
    packed = packed_table(**tensors, count=len(rows), shape=shape)
    np.testing.assert_array_equal(np.asarray(packed), wanted)
    np.testing.assert_array_equal(read_plainly(tensors, len(rows), shape), wanted)


def test_runs_across_the_parts_that_are_decoded_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    values = np.array([-2.5, 0.25], np.float32)
    for _ in range(40):
        shape = (200, int(rng.integers(1, 6)))
        rows = np.flatnonzero(rng.random(200) < 0.7)
        sparse = rng.random((len(rows), shape[1])) < rng.choice([0.01, 0.1, 0.9])
        codes = np.where(sparse, rng.integers(1, 3, sparse.shape), 0)
        tensors = pack(rows, codes, values)
        wanted = np.zeros(shape, np.float32)
        wanted[rows] = np.concatenate([[np.float32(0)], values])[codes]
        monkeypatch.setattr("hashembed.engine.packed._AT_A_TIME", int(rng.integers(1, 9)))
        packed = packed_table(**tensors, count=len(rows), shape=shape)
        np.testing.assert_array_equal(np.asarray(packed), wanted)


def test_decoding_takes_memory_in_proportion_to_the_numbers():
    """Not eight bytes, several times, for each of them."""
    count = 2**22
    tensors = {
        "rows": np.frombuffer(zlib.compress(bytes(count)), np.uint8),
        "codes": np.frombuffer(zlib.compress(b"\2" * count), np.uint8),
        "values": np.ones(1, np.float32),
    }
    packed = packed_table(**tensors, count=count, shape=(count, 1))
    tracemalloc.start()
    try:
        found = packed._numbers()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.sum() == count
    assert most < 16 * count + 80 * 2**20


def test_the_example_of_the_specification():
    stream = np.frombuffer(zlib.compress(bytes([3, 1, 0, 2])), np.uint8)
    rows = np.frombuffer(zlib.compress(bytes(6)), np.uint8)
    values = np.array([5, 7], np.float32)
    table = np.asarray(packed_table(rows, stream, values, count=6, shape=(6, 1)))[:, 0]
    assert table.tolist() == [7, 0, 0, 0, 0, 5]


GOOD = {"rows": bytes([2, 255, 3]), "codes": bytes([2, 3]), "values": [1.0, 2.0]}


def made(rows=GOOD["rows"], codes=GOOD["codes"], values=(1.0, 2.0), count=2, shape=(300, 1)):
    def stream(content):
        return np.frombuffer(zlib.compress(content), np.uint8)

    own = np.array(values, np.float32)
    return np.asarray(packed_table(stream(rows), stream(codes), own, count=count, shape=shape))


def test_the_good_one_is_good():
    assert np.flatnonzero(made()).tolist() == [2, 261]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": b"\2\3\4"},
        {"rows": b"\2"},
        {"rows": b"\2\3\xff"},
        {"rows": bytes(1000)},
        {"rows": b"\2\xff\xff\1"},
        {"codes": b"\2"},
        {"codes": b"\2\3\2"},
        {"codes": b"\2\4"},
        {"codes": b"\2\1"},
        {"codes": b"\0" * 2},
        {"codes": b"\1" * 60, "count": 100},
        {"count": -1},
        {"count": 301},
        {"count": True},
        {"count": 2.0},
        {"values": [1.0] * 255},
        {"count": 300, "shape": (300, MAX_NUMBERS)},
    ],
)
def test_broken_rules_are_refused(change):
    with pytest.raises(ModelFileError):
        made(**change)


def test_streams_that_do_not_inflate_are_refused():
    good = np.frombuffer(zlib.compress(b"\2\3"), np.uint8)
    values = np.array([1, 2], np.float32)
    for bad in (good[:-1], good[:4], np.append(good, np.uint8(0)), np.zeros(9, np.uint8)):
        with pytest.raises(ModelFileError):
            np.asarray(packed_table(good, bad, values, count=2, shape=(300, 1)))
        with pytest.raises(ModelFileError):
            np.asarray(packed_table(bad, good, values, count=2, shape=(300, 1)))


def test_a_bomb_is_not_inflated():
    bomb = np.frombuffer(zlib.compress(bytes(10**8)), np.uint8)
    values = np.array([1], np.float32)
    with pytest.raises(ModelFileError, match="wrong length"):
        np.asarray(packed_table(bomb, bomb, values, count=2, shape=(300, 1)))
