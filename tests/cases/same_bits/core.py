"""Tables in half precision, and in 8 and 4 bits."""

import numpy as np

from hashembed.core.code_kernels import fill_decoded
from hashembed.core.half import to_half


def cases():
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.abs(numbers) < 60_000]
    for scale in (1.0, 1e-4, 1e-7):
        for width in (1, 2, 24):
            table = np.random.default_rng(1).standard_normal((9000, 32), np.float32)
            yield f"half {scale} {width}", to_half(table[:, :width] * np.float32(scale), 2)
    yield "half of any bits", to_half(numbers[:, None], 2)
    yield "too large", to_half(np.float32([[1e6]]), 1)
    codes = np.random.default_rng(2).integers(0, 256, (9000, 24), np.uint8)
    for count in (256, 16):
        out = np.zeros((9000, 32), np.float32)
        fill_decoded(codes, np.random.default_rng(3).standard_normal(count, np.float32), 23, out)
        yield f"codes of {count} values", out
