"""Returns memory to the system."""

import ctypes
from contextlib import suppress


def return_freed() -> None:
    """Return memory that was freed: malloc keeps what lies between parts that are still in use."""
    with suppress(AttributeError, OSError, TypeError):  # the C library is not that of GNU
        ctypes.CDLL(None).malloc_trim(0)
