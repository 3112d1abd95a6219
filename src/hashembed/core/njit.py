"""Numba's `njit` for all kernels of the package; `core/kernel_cache.py` keeps them on disk."""

import logging
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba

from hashembed.core.kernel_cache import KernelCache, kernels_are_kept, tell_not_kept

LONG = 1.0  # seconds of compiling after which the user is told

# A value of `fastmath`: sums may be reordered and contracted for SIMD, but NaN and infinity keep
# their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}

_seen: set[Hashable] = set()


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """Numba's `njit`; with `cache`, kernels are kept on disk where that is possible."""
    if function is None:
        return lambda function: njit(function, cache=cache, **options)
    dispatcher = numba.njit(**options)(function)
    if cache and hasattr(dispatcher, "enable_caching"):  # with NUMBA_DISABLE_JIT it is the function
        try:
            dispatcher._cache = KernelCache(function)  # what `enable_caching` does
        except Exception as error:  # code without a file, or another version of Numba
            tell_not_kept(error)
    return dispatcher


@contextmanager
def may_compile(what: Hashable) -> Iterator[None]:
    """Around a call that compiles when it is the first of its kind."""
    if what in _seen:
        yield
        return
    timer = threading.Timer(LONG, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seen.add(what)


@cache
def _say() -> None:
    kept = "; they are kept on disk for the next time" if kernels_are_kept() else ""
    message = f"compiling CPU kernels{kept}"
    logging.getLogger("hashembed").info(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"hashembed: {message}", file=sys.stderr)
