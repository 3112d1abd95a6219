"""Kernels that cannot be kept on disk, or whose files are damaged, only take longer to start."""

import ast
import ctypes
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import hashembed
from hashembed.core import kernel_cache
from hashembed.core.native.library import CHOICE, JIT

SOURCE = Path(hashembed.__file__).parent
DROP_CAPABILITY, WRITE_EVERYWHERE = 24, 1  # prctl's, of Linux

ONE_KERNEL = """
import numpy as np
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.counts.distinct_kernels import mark
assert count_distinct(np.arange(5) << 40) == 5
print(sum(mark.dispatcher.stats.cache_hits.values()), "from disk")
"""
A_MODEL = """
import numpy as np
from hashembed import TextClassifier
clf = TextClassifier(threads=2).fit(["good film", "bad film"] * 50, ["+", "-"] * 50)
assert clf.predict(["good"]).tolist() == ["+"]
"""


@pytest.fixture
def copy(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, tmp_path / "package" / "hashembed", ignore=ignored)
    return tmp_path / "package"


def drop_rights():
    """Make permissions count for root too, in this process."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(DROP_CAPABILITY, WRITE_EVERYWHERE, 0, 0, 0) == 0


def run(folder, code, **environment):
    """In a process without a home -> what it printed, and its lines on standard error."""
    given = {"HOME": "/dev/null", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    given[CHOICE] = JIT
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **given, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=drop_rights,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.splitlines()


@contextmanager
def read_only(folder):
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_read_only_installation_without_a_home(copy):
    with read_only(copy):
        for _ in range(2):
            out, lines = run(copy, ONE_KERNEL)
            assert out == "0 from disk"
            assert len(lines) == 1
            assert lines[0].startswith("hashembed: compiled kernels cannot be kept on disk (")
            assert "NUMBA_CACHE_DIR=FOLDER" in lines[0]
        assert run(copy, "import hashembed.classify.classifier") == ("", [])


def test_kernels_of_a_read_only_installation_are_used(copy):
    """As in a container image that ran the command while it was built."""
    assert run(copy, ONE_KERNEL) == ("0 from disk", [])
    with read_only(copy):
        assert run(copy, ONE_KERNEL) == ("1 from disk", [])


def test_a_folder_for_kernels_that_cannot_be_one(copy, tmp_path):
    (copy / "hashembed" / "text" / "counts" / "__pycache__").write_text("a file, not a folder")
    _, lines = run(copy, ONE_KERNEL)
    assert len(lines) == 1
    assert "cannot be kept on disk" in lines[0]
    out, lines = run(copy, ONE_KERNEL, NUMBA_CACHE_DIR="/dev/null/nowhere")
    assert out == "0 from disk"
    assert len(lines) == 1
    for found in ("0 from disk", "1 from disk"):
        assert run(copy, ONE_KERNEL, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == (found, [])


@pytest.mark.slow
def test_a_model_without_a_place_for_kernels(copy):
    with read_only(copy):
        _, lines = run(copy, A_MODEL)
        assert len(lines) == 1


KERNEL = """
from hashembed.core.njit import njit

@njit(cache=True)
def triple(x):
    return 3 * x
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Makes a kernel as a new process would: from its source, or from the files next to it."""
    monkeypatch.setattr(kernel_cache, "_told", [])
    (tmp_path / "module.py").write_text(KERNEL)

    def make():
        kernel_cache._told.clear()
        spec = spec_from_file_location("module", tmp_path / "module.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.triple

    return make


def damage(data, rng):
    kind, at = rng.integers(4), int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return b""
    if kind == 2:
        return data[:at] + rng.bytes(20) + data[at:]
    return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]


def test_damaged_kernels_are_compiled_again(kernel, tmp_path, capfd):
    assert kernel()(7) == 21
    files = sorted((tmp_path / "__pycache__").glob("module.triple*.nb*"))
    assert [file.suffix for file in files] == [".nbc", ".nbi"]
    whole = [file.read_bytes() for file in files]
    rng = np.random.default_rng(0)
    capfd.readouterr()
    for i in range(40):
        files[i % 2].write_bytes(damage(whole[i % 2], rng))
        damaged = kernel()
        assert damaged(7) == 21
        assert not damaged.dispatcher.stats.cache_hits
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert f"kernels in {tmp_path / '__pycache__'} are damaged; compiling them again" in said
        repaired = kernel()
        assert repaired(7) == 21
        assert sum(repaired.dispatcher.stats.cache_hits.values()) == 1
    assert capfd.readouterr().err == ""


def test_files_that_are_whole_and_wrong(kernel, tmp_path, capfd):
    """Files of another program, or of another kernel."""
    triple = kernel()
    assert triple(7) == 21
    index = next((tmp_path / "__pycache__").glob("*.nbi"))
    data = next((tmp_path / "__pycache__").glob("*.nbc"))
    for file in (index, data):
        before = file.read_bytes()
        file.write_bytes(b"\x80\x04." + kernel_cache._seal(b"\x80\x04."))
        again = kernel()
        assert again(7) == 21
        assert "cannot be read; compiling them again" in capfd.readouterr().err
        file.write_bytes(before)
    index_of_ints = index.read_bytes()
    assert kernel()(0.5) == 1.5  # a second kernel, in a file of its own
    files = sorted((tmp_path / "__pycache__").glob("*.nbc"))
    files[0].write_bytes(files[1].read_bytes())  # as if another process had taken the name
    assert kernel()(7) == 21
    assert index_of_ints != index.read_bytes()


def test_all_kernels_are_made_by_our_decorator():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba":
                names = {alias.name for alias in node.names}
                assert not names & {"njit", "jit", "vectorize", "guvectorize", "cfunc"}, path


PROBE = """
import numpy as np
from hashembed.core.njit import njit
from hashembed.text.outer import mixed


@njit(cache=True)
def probe(x):
    return mixed(x)


print(probe(np.uint32(1)), sum(probe.dispatcher.stats.cache_hits.values()))
"""
OUTER = """
from hashembed.core.njit import njit
from hashembed.hashing import (  # the names that follow may be modules
    scalars as s,
)

fmix32 = s.fmix32


@njit
def mixed(x):
    return fmix32(x)
"""


def test_a_change_in_an_inlined_file_is_noticed(copy, tmp_path):
    """The file is two imports away and keeps its size and time: only its content differs."""
    (copy / "hashembed" / "text" / "probe.py").write_text(PROBE)
    (copy / "hashembed" / "text" / "outer.py").write_text(OUTER)
    inlined = copy / "hashembed" / "hashing" / "scalars.py"

    def look():
        printed, _ = run(copy, "import hashembed.text.probe", NUMBA_CACHE_DIR=str(tmp_path / "c"))
        value, hits = printed.split()
        return int(value), int(hits)

    before = look()
    assert before[1] == 0
    assert look() == (before[0], 1)
    old, times = inlined.read_text(), (inlined.stat().st_atime_ns, inlined.stat().st_mtime_ns)
    assert "0x85EBCA6B" in old
    inlined.write_text(old.replace("0x85EBCA6B", "0x85EBCA6D"))
    os.utime(inlined, ns=times)
    after = look()
    assert after[0] != before[0]
    assert after[1] == 0
    assert look() == (after[0], 1)
