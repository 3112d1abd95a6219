"""The first fit of a new process on a GPU, with Triton's cache empty and full.

python -m benchmarks.bench_gpu_first FILE      -> results/gpu_first_fit.txt; FILE: labelled text
"""

import os
import subprocess
import sys
import tempfile

from benchmarks.machine import RESULTS, heading

CODE = """
import sys, time
import torch
from hashembed import TextClassifier
from hashembed.readers import read
torch.zeros(1, device="cuda")
data = read(sys.argv[1], on_error="skip")
for _ in range(2):
    start = time.perf_counter()
    TextClassifier(device="cuda", effort="fast").fit(data.texts, data.labels)
    torch.cuda.synchronize()
    print(f"{time.perf_counter() - start:.2f}")
"""


def main() -> None:
    lines = [heading(), 'TextClassifier(device="cuda").fit in a new process, seconds:', ""]
    with tempfile.TemporaryDirectory() as cache:
        for name in ("Triton's cache empty", "Triton's cache full"):
            done = subprocess.run(
                [sys.executable, "-c", CODE, sys.argv[1]],
                env={**os.environ, "TRITON_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            first, second = done.stdout.split()
            lines.append(f"{name:<22}first fit {first}, second fit {second}")
    (RESULTS / "gpu_first_fit.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
