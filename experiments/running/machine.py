"""Where a run was made: the machine, the versions of packages and the commit."""

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numba", "numpy", "scikit-learn", "fasttext-wheel", "torch")


def device() -> str:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores of {model[1] if model else platform.processor()}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip()
