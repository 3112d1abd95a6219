"""Freed memory goes back to the system, where the C library can do that."""

import subprocess
import sys

import pytest

from hashembed.core import memory

CODE = """
import numpy as np
from hashembed.core.memory import return_freed

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

parts = [np.ones(100_000, np.uint8) for _ in range(1000)]
parts = parts[::10]
before = resident()
return_freed()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_was_freed_goes_back():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000_000


def test_other_c_libraries(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.return_freed()
