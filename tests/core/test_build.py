"""The build of the library needs NumPy and Numba, and nothing else that the package uses."""

import subprocess
import sys

NAMES = """
import sys
for name in ("pyarrow", "torch", "rich", "click", "safetensors", "pandas"):
    sys.modules[name] = None
from hashembed.core.native.build import kernels
print(len(kernels()), *(kernel.symbol for kernel in kernels()))
assert "numba" not in sys.modules
"""


def test_modules_with_kernels_import_only_numpy():
    done = subprocess.run(
        [sys.executable, "-c", NAMES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, *symbols = done.stdout.split()
    assert int(count) == len(symbols) == len(set(symbols))
    assert "hashembed_text_key_kernels_fill_keys" in symbols
