"""A few short texts as the bytes that kernels read, without Arrow."""

from typing import Any

import numpy as np

from hashembed.core.arrays import I64, U8

FEW = 64  # the most texts that do not go through Arrow
FEW_BYTES = 1 << 20  # and their most bytes


def few_bytes(texts: list[Any]) -> tuple[U8, I64, I64] | None:
    """A few strings as bytes, with their starts and ends; None if they are not that.

    It avoids Arrow, which takes longer than hashing a short text, and longer still to import.
    """
    try:
        encoded = [text.encode() for text in texts]
    except (AttributeError, UnicodeEncodeError):  # not strings, or a lone surrogate
        return None
    ends = np.array([len(text) for text in encoded], np.int64).cumsum()
    data = np.frombuffer(b"".join(encoded), np.uint8)
    if len(data) > FEW_BYTES:
        return None
    starts = np.zeros(len(encoded), np.int64)
    starts[1:] = ends[:-1]
    return data, starts, ends
