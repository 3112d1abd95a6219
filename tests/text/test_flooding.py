"""Keys that were chosen to collide, by someone who knows the hash, must not slow a table down.

Time is not measured: the tables' own code runs in Python on arrays that count how often they are
read. Without the number that nobody knows (a salt of 0, or slots from the key's own bits) the
chosen keys take thousands of probes each.
"""

import numpy as np
import pytest

from hashembed.engine.shallow import forward
from hashembed.hashing.scalars import SALT, SPREAD
from hashembed.text.config import TextConfig
from hashembed.text.counts import frequent_kernels, kernels
from hashembed.text.counts.frequent import HeavyHitters
from hashembed.text.dictionary import Dictionary

COUNT = 1500
MOST = 8  # reads a key; about 2 are usual


class Counted:
    """An array that counts how often an element is read."""

    def __init__(self, array):
        self.array, self.reads = array, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        self.reads += 1
        return self.array[index]

    def __setitem__(self, index, value):
        self.array[index] = value


def same_after_spreading() -> np.ndarray:
    """Keys whose product with the public multiplier has the same highest bits."""
    inverse = pow(int(SPREAD), -1, 2**64)
    return np.array([i * inverse % 2**64 for i in range(1, COUNT + 1)], np.uint64).view(np.int64)


def same_lane() -> np.ndarray:
    """Keys whose low lane is the same."""
    return np.arange(1, COUNT + 1, dtype=np.int64) << 32 | 0x12345678


CHOSEN = pytest.mark.parametrize("chosen", [same_after_spreading, same_lane])
SALTS = [int(SALT), 0x0123456789ABCDEF, 0xC0FFEE0DDBA11000]


@pytest.fixture
def in_python(monkeypatch):
    """The kernels' own source, without the compiler; 64-bit products wrap."""
    for module in (kernels, frequent_kernels, forward):
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)
    with np.errstate(over="ignore"):
        yield


@CHOSEN
@pytest.mark.parametrize("salt", SALTS, ids=["own", "first", "second"])
@pytest.mark.usefixtures("in_python")
def test_distinct_tokens_of_a_batch(chosen, salt):
    keys = chosen()
    table = Counted(np.zeros(4 * COUNT, np.uint32))
    places = np.empty(COUNT, np.uint32)
    assert forward.find_distinct(keys.copy(), places, table, np.uint64(salt)) == COUNT
    assert places.tolist() == list(range(COUNT))
    assert table.reads < MOST * COUNT


@pytest.mark.usefixtures("in_python")
def test_the_keys_are_well_chosen():
    """Somebody who knows the salt can slow the table down."""
    table, places = Counted(np.zeros(4 * COUNT, np.uint32)), np.empty(COUNT, np.uint32)
    forward.find_distinct(same_after_spreading(), places, table, np.uint64(0))
    assert table.reads > 100 * MOST * COUNT / 2


@CHOSEN
@pytest.mark.parametrize("salt", SALTS, ids=["own", "first", "second"])
@pytest.mark.usefixtures("in_python")
def test_counters(chosen, salt):
    counts, keys = Counted(np.zeros(4096, np.int64)), np.zeros(4096, np.int64)
    for key in chosen():
        assert kernels._add(keys, counts, key, 1, np.uint64(salt)) == 1
    assert counts.reads < 2 * MOST * COUNT


@CHOSEN
@pytest.mark.parametrize("salt", SALTS, ids=["own", "first", "second"])
@pytest.mark.usefixtures("in_python")
def test_the_index_of_a_dictionary(chosen, salt):
    keys, slots = chosen(), Counted(np.zeros(4096, np.int32))
    kernels.build_index(keys, slots, np.uint64(salt))
    for rank, key in enumerate(keys):
        assert kernels._rank(key, keys, slots, np.uint64(salt)) == rank
    assert slots.reads < 4 * MOST * COUNT


@CHOSEN
@pytest.mark.parametrize("salt", SALTS, ids=["own", "first", "second"])
@pytest.mark.usefixtures("in_python")
def test_heavy_hitters(chosen, salt):
    table = Counted(np.zeros((4096, 3), np.int64))
    for key in chosen():
        table[frequent_kernels._slot(table, key, np.uint64(salt))] = key, 1, 0
    assert table.reads < 2 * MOST * COUNT


def test_the_salt_changes_no_result():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.zipf(1.3, 30) % 500) for _ in range(50)]
    keys = rng.zipf(1.3, 20_000).astype(np.int64) * 0x9E3779B9
    found = []
    for salt in SALTS:
        with pytest.MonkeyPatch.context() as patch:
            for module in ("counts.exact", "dictionary", "counts.frequent"):
                patch.setattr(f"hashembed.text.{module}.SALT", np.uint64(salt))
            hitters = HeavyHitters(memory=1 << 12)
            hitters.update(keys[:2000])
            dictionary = Dictionary.count(texts, TextConfig((1, 2)), 200)
            ranks = dictionary.ranks(dictionary.keys)
        found.append([*hitters.items(), dictionary.keys, dictionary.counts, ranks])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.array_equal(a, b)
