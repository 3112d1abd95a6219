"""Compiled kernels give the same bits as Numba, at every level, and without importing Numba."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.cases.same_bits import HEAVY, ROOMS

from hashembed.core.native.library import CHOICE, JIT, LEVELS, best_level, runtime

ROOT = Path(__file__).parents[2]
AVAILABLE = [*LEVELS][: [*LEVELS].index(best_level()) + 1]


@pytest.fixture(autouse=True)
def library():
    if runtime().library is None:
        pytest.skip(f"needs the compiled kernels: {runtime().why}")


@cache
def result(room, kernels):
    order = [sys.executable, "-m", "tests.cases.same_bits", room]
    environment = {**os.environ, CHOICE: kernels}
    done = subprocess.run(
        order, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("level", AVAILABLE)
def test_the_same_bits_as_numba(room, level):
    found, expected = result(room, level)["digests"], result(room, JIT)["digests"]
    assert list(found) == list(expected)
    assert [name for name in found if found[name] != expected[name]] == []


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("level", AVAILABLE)
def test_ordinary_use_does_not_import_numba(room, level):
    assert result(room, level)["heavy"] == []
    assert result(room, JIT)["heavy"] == list(HEAVY)
