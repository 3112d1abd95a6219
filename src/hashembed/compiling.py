"""A word to the user when a first call compiles for long."""

import logging
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache

LONG = 1.0  # seconds of compiling after which the user is told

_seen: set[Hashable] = set()


@cache
def _say() -> None:
    message = "compiling CPU kernels; they are kept on disk for the next time"
    logging.getLogger("hashembed").info(message)
    if sys.stderr.isatty():
        print(f"hashembed: {message}", file=sys.stderr)


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
