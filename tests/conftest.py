"""Without a GPU the Triton kernels are interpreted; Triton looks at this when it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
