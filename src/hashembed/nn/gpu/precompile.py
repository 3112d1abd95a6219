"""Compiles Triton kernels several at a time, before they are first launched.

Triton compiles a kernel when it is launched, so kernels that follow each other compile one after
the other. Most of that time is spent in other programs (ptxas, the C compiler of the launcher) or
in LLVM, so threads help.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from triton.runtime.jit import JITFunction

THREADS = 8

_lock = threading.Lock()


@contextmanager
def precompiling(device: torch.device) -> Iterator[None]:
    """Kernels that this thread launches in the context are not run, but compiled at its end."""
    launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    own, run = threading.get_ident(), JITFunction.run

    def note(kernel: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:
        if threading.get_ident() != own:
            return run(kernel, *arguments, warmup=warmup, **options)
        launches.append((kernel, arguments, options))
        return None

    def compile_one(launch: Any) -> None:
        kernel, arguments, options = launch
        with torch.cuda.device(device):
            compiled = run(kernel, *arguments, warmup=True, **options)
            if compiled is not None and hasattr(compiled, "_init_handles"):
                compiled._init_handles()  # builds the launcher

    with _lock:
        JITFunction.run = note
        try:
            yield
        finally:
            JITFunction.run = run
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(compile_one, launches))
