"""Triton's compiler, not its interpreter alone, takes the kernels of word vectors."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import hashembed.vectors

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]
LAUNCH = re.compile(r"triton_\w+\.(\w+)\[")


def test_every_kernel_compiles_for_a_gpu(tmp_path):
    code = (Path(hashembed.vectors.__file__).parent / "gpu").glob("*.py")
    launched = {name for file in code for name in LAUNCH.findall(file.read_text(encoding="utf8"))}
    assert "update_buckets" in launched
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "TRITON_CACHE_DIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",  # as on a machine without one
    }
    environment.pop("TRITON_INTERPRET", None)
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_gpu_kernels.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) == launched
