"""Without a GPU the Triton kernels are interpreted; Triton looks at this when it is imported."""

import os
from importlib.util import find_spec

import pytest

pytest.register_assert_rewrite("tests.cases")

if find_spec("torch"):  # `make test-wheel` has none
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        if find_spec("triton"):
            from tests.cases import quick_interpreter

            quick_interpreter.use()
