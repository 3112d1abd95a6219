"""Without a GPU the Triton kernels are interpreted; Triton looks at this when it is imported."""

import os

import pytest
import torch

pytest.register_assert_rewrite("tests.cases")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
