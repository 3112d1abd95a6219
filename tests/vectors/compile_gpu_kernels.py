"""Compile the kernels of word vectors for a GPU, without one: prints their names.

Triton's interpreter runs code that its compiler refuses; see tests/nn/gpu/compile_kernels.py.
"""

from functools import partial

import numpy as np
import torch
from tests.nn.gpu.compile_kernels import compile_kernel, compiled
from triton.runtime.jit import JITFunction

from hashembed.vectors.gpu import steps
from hashembed.vectors.gpu.trainer import GpuTrainer
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import train_model


def main():
    assert not steps.INTERPRETED, "unset TRITON_INTERPRET"
    JITFunction.run = compile_kernel
    torch.empty = torch.zeros  # what a kernel should have written must be valid numbers
    steps.TOGETHER = 1
    texts = [" ".join(np.random.default_rng(0).choice(["a", "b", "c"], 40))]
    for model, d, k in (("skipgram", 100, 2), ("cbow", 300, 3)):
        settings = VectorSettings(
            model, d, num_hashes=k, min_count=1, sample=1.0, passes=1, batch_size=64
        )
        train_model(texts, settings, 1, None, make_trainer=partial(GpuTrainer, device="cpu"))
    print(*sorted(compiled))


if __name__ == "__main__":
    main()
