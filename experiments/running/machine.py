"""Where a run was made: the machine and the versions of packages."""

import os
import platform

from benchmarks.machine import commit, cpu, installed

__all__ = ["commit", "device", "versions"]

PACKAGES = ("numba", "numpy", "scikit-learn", "fasttext-wheel", "torch")


def device() -> str:
    return f"{os.cpu_count()} cores of {cpu()}"


def versions() -> dict[str, str]:
    found = {package: installed(package) for package in PACKAGES}
    return {"python": platform.python_version(), **{p: v for p, v in found.items() if v}}
