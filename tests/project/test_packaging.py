"""Wheels have compiled kernels and do not need Numba, or the other way round."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from hashembed.core.native.library import CHOICE, FOLDER, JIT, LEVELS

ROOT = Path(__file__).parents[2]
LIB = FOLDER.relative_to(FOLDER.parents[3])
LIBRARIES = [f"{LIB}/kernels-{level}.so" for level in LEVELS]

# Calls a function of the build backend as pip does, with libraries that need no compiling.
CALL = """
import json, sys
sys.path.insert(0, "src")
from hashembed.core.native import build
build.is_current = lambda: True
from hatchling import build as backend
print(json.dumps(getattr(backend, sys.argv[1])(*sys.argv[2:])), file=sys.stderr)
"""


@pytest.fixture
def clone(tmp_path):
    """The files that an installation reads, and libraries (not real ones)."""
    folder = tmp_path / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "lib")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    for name in ("LICENSE", "README.md", "hatch_build.py", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    (folder / "src" / LIB).mkdir()
    for name in LIBRARIES:
        (folder / "src" / name).write_bytes(b"machine code")
    return folder


@pytest.fixture
def linker(tmp_path):
    """A PATH with a C compiler that is always successful."""
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    return str(compiler.parent)


def call(folder, function, *arguments, path="", **environment):
    """What the build backend returns in a process with this PATH."""
    clean = {k: v for k, v in os.environ.items() if k not in ("CC", CHOICE)}
    done = subprocess.run(
        [sys.executable, "-c", CALL, function, *map(str, arguments)],
        cwd=folder,
        env={**clean, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


def build_wheel(folder, **environment):
    """A new wheel: its tag, the names of what it requires, its files."""
    name = call(folder, "build_wheel", folder, **environment)
    with zipfile.ZipFile(folder / name) as wheel:
        files = {file: wheel.read(file) for file in wheel.namelist()}
    (metadata,) = (content for file, content in files.items() if file.endswith("/METADATA"))
    required = message_from_bytes(metadata).get_all("Requires-Dist")
    names = [line.split(">")[0] for line in required if "extra ==" not in line]
    return name.split("-", 2)[2].removesuffix(".whl"), names, files


def test_with_a_linker(clone, linker):
    tag, required, files = build_wheel(clone, path=linker)
    assert tag == "py3-none-linux_x86_64"
    assert required == ["click", "numpy", "pyarrow", "rich", "safetensors"]
    assert sorted(file for file in files if file.startswith(f"{LIB}/")) == sorted(LIBRARIES)
    assert any(file.endswith("/licenses/LICENSE") for file in files)
    module = {file for file in files if file.startswith("hashembed/web/module/")}
    assert {Path(file).suffix for file in module} == {".mjs", ".mts", ".json", ".md"}
    template = {file for file in files if file.startswith("hashembed/web/template/")}
    assert {Path(file).suffix for file in template} == {".css", ".html", ".mjs"}
    assert call(clone, "get_requires_for_build_wheel", path=linker)[0].startswith("numba")


@pytest.mark.parametrize("asked", [False, True])
def test_without_compiled_kernels(clone, linker, asked, tmp_path):
    """Without a linker, or as the environment asks: Numba compiles, and users can see why."""
    given = {"path": linker, CHOICE: JIT} if asked else {}
    why = f"{CHOICE}={JIT} was set during" if asked else "found no C compiler that links"
    tag, required, files = build_wheel(clone, **given)
    assert tag == "py3-none-any"
    assert "numba" in required
    assert [file for file in files if file.startswith(f"{LIB}/")] == [f"{LIB}/obstacle.txt"]
    assert call(clone, "get_requires_for_build_wheel", **given) == []
    for file, content in files.items():
        (tmp_path / "installed" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "installed" / file).write_bytes(content)
    shown = subprocess.run(
        [sys.executable, "-c", "from hashembed.cli import run; run()", "info", "--runtime"],
        env={k: v for k, v in os.environ.items() if k != CHOICE}
        | {"PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "jit, compiled by Numba on first use: this installation has no compiled kernels" in shown
    assert why in shown


def test_a_source_distribution_serves_both(clone, linker, tmp_path):
    """What it depends on is decided where it is installed."""
    name = call(clone, "build_sdist", clone, path=linker)
    with tarfile.open(clone / name) as archive:
        files = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert not [file for file in files if f"/{LIB}/" in file]
    unpacked = tmp_path / name.removesuffix(".tar.gz")
    assert "numba" in build_wheel(unpacked)[1]
    for library in LIBRARIES:
        (unpacked / "src" / library).write_bytes(b"machine code")
    tag, required, files = build_wheel(unpacked, path=linker)
    assert tag == "py3-none-linux_x86_64"
    assert "numba" not in required
    assert set(LIBRARIES) < set(files)
