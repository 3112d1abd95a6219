"""Triton's compiler, not its interpreter alone, takes the kernels."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import hashembed.nn

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]
LAUNCH = re.compile(r"(?:triton_\w+|kernels)\.(\w+)\[")


@pytest.mark.parametrize("forms", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_every_kernel_compiles_for_a_gpu(forms, tmp_path):
    code = Path(hashembed.nn.__file__).parent.rglob("*.py")
    launched = {name for file in code for name in LAUNCH.findall(file.read_text(encoding="utf8"))}
    assert "bag_forward" in launched
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "TRITON_CACHE_DIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",  # as on a machine without one
    }
    environment.pop("TRITON_INTERPRET", None)
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_kernels.py"), forms],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) == launched
